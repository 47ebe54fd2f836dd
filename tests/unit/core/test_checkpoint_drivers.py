"""Every row of the table of checkpoint drivers answers the same questions."""

from __future__ import annotations

import pytest
from sluice.core.checkpoints.driver import (
    Capability,
    CheckpointDriver,
    CheckpointMode,
    JobShape,
    PodFacts,
    WorkKept,
)
from sluice.core.checkpoints.drivers import (
    DRIVERS,
    driver_of,
    needed_service,
    stored_by_service,
    usable_driver,
)
from sluice.core.checkpoints.fit import Bandwidth, CheckpointAction
from sluice.core.lifecycle.options import CheckpointPolicy, Options

EVERY = pytest.mark.parametrize("driver", DRIVERS.values(), ids=lambda driver: driver.mode)
MINUTE_MS = 60_000


def test_every_mode_has_a_driver() -> None:
    assert set(DRIVERS) == set(CheckpointMode)


def test_no_options_mean_no_checkpoints() -> None:
    assert driver_of(Options()).keeps is WorkKept.NOTHING


@EVERY
def test_a_plain_job_is_refused_by_no_driver(driver: CheckpointDriver) -> None:
    assert driver.refuse(JobShape(adopts_pods=True)) is None


@EVERY
def test_without_time_nothing_is_dumped(driver: CheckpointDriver) -> None:
    fit = driver.fit(size=0, left_ms=0, grace_ms=MINUTE_MS, bandwidth=Bandwidth())

    assert fit.action is CheckpointAction.LET_GO
    assert fit.needs_ms == 0


@EVERY
def test_only_drivers_that_save_processes_order_dumps(driver: CheckpointDriver) -> None:
    fit = driver.fit(size=1, left_ms=MINUTE_MS, grace_ms=0, bandwidth=Bandwidth())

    assert (fit.action is CheckpointAction.DUMP) is driver.dumps


@EVERY
def test_a_run_from_the_beginning_needs_nothing(driver: CheckpointDriver) -> None:
    needs = driver.restore_needs("")

    assert not needs.gated
    assert not needs.stand_in
    assert not needs.annotated
    assert not needs.image


@EVERY
def test_a_stand_in_is_gated(driver: CheckpointDriver) -> None:
    needs = driver.restore_needs(f"{driver.scheme}cluster/action")

    assert needs.gated or not needs.stand_in
    assert needs.stand_in is bool(driver.scheme)


@EVERY
def test_a_service_is_read_from_the_cluster_and_missed_in_words(driver: CheckpointDriver) -> None:
    asked = Options(checkpoint=CheckpointPolicy(mode=driver.mode))

    assert needed_service(asked) == (driver.mode if driver.service else None)
    assert bool(driver.without_service) is bool(driver.service)


@EVERY
def test_an_address_tells_who_stores_the_checkpoint(driver: CheckpointDriver) -> None:
    stored = stored_by_service(f"{driver.scheme}cluster/action")

    assert stored is (driver if driver.scheme else None)
    assert stored_by_service("s3://bucket/key.tar") is None


@EVERY
def test_a_driver_that_cannot_save_gives_way_to_the_application(driver: CheckpointDriver) -> None:
    chosen, why = usable_driver(driver, PodFacts(gpus=1), Capability())

    assert (chosen is driver) is (not why)
    assert chosen is driver or chosen.keeps is WorkKept.BY_APPLICATION
