"""A deadline is kept whatever the spot market does, and spot is used while it can be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from sluice.core.clusters.can_be_late import Pace, Race, pace, race_of
from sluice.core.lifecycle.record import State, Workload
from sluice.core.lifecycle.run import Run

from tests.records import options_of

NOW = 1_800_000_000_000
HOUR = 3_600_000


@dataclass
class Journey:
    """One workload in ticks of 1: on spot, on-demand, or idle; `restart` ticks to start."""

    race: Race
    market: list[bool]
    on: str = "idle"
    starting: int = 0
    since_saved: int = 0
    on_demand: int = 0

    def run(self) -> Journey:
        for spot in self.market:
            if not self.race.work_left or self.race.time_left <= 0:
                break
            self.step(spot=spot)
        while self.race.work_left and self.race.time_left > 0:
            self.step(spot=False)
        return self

    def step(self, *, spot: bool) -> None:
        if self.on == "spot" and not spot:
            lost = min(self.since_saved, self.race.unsaved)
            self.race = replace(self.race, work_left=self.race.work_left + lost)
            self.on = "idle"
        if self.on == "idle":
            now = pace(self.race)
            wanted = "spot" if spot and now is not Pace.LAST_CHANCE else ""
            wanted = wanted or ("" if now is Pace.AHEAD else "on-demand")
            if wanted:
                self.on, self.starting, self.since_saved = wanted, self.race.restart, 0
        self.race = replace(self.race, time_left=self.race.time_left - 1)
        if self.on == "idle":
            return
        self.on_demand += self.on == "on-demand"
        if self.starting:
            self.starting -= 1
            return
        self.race = replace(self.race, work_left=self.race.work_left - 1)
        self.since_saved = (self.since_saved + 1) % (self.race.unsaved or 1)


@given(
    work=st.integers(1, 120),
    slack=st.integers(0, 120),
    restart=st.integers(0, 4),
    unsaved=st.integers(0, 6),
    market=st.lists(st.booleans(), max_size=300),
)
def test_a_deadline_that_can_be_kept_is_kept_whatever_the_market_does(
    work: int, slack: int, restart: int, unsaved: int, market: list[bool]
) -> None:
    allowed = work + restart + slack
    race = Race(work, work, allowed, allowed, restart, min(unsaved, work), tick=1)

    assert not Journey(race, market).run().race.work_left


def test_a_calm_market_costs_no_on_demand_machine() -> None:
    race = Race(48, 48, 70, 70, 1, 1, tick=1)

    assert Journey(race, [True] * 70).run().on_demand == 0


def test_an_empty_market_is_left_for_on_demand_in_time_and_not_at_once() -> None:
    race = Race(48, 48, 70, 70, 1, 1, tick=1)
    journey = Journey(race, [])

    assert pace(race) is Pace.AHEAD
    assert 48 <= journey.run().on_demand < 60
    assert not journey.race.work_left


def a_workload(mode: str = "application", runs: int = 0, **checkpoint: int) -> Workload:
    run = Run(started_at=NOW, ended_at=NOW + HOUR, outcome="migrate", lost_ms=HOUR // 4)
    if mode == "none":
        run = replace(run, lost_ms=HOUR)
    return Workload(
        "w",
        "w",
        "t",
        "t/q",
        State.PENDING,
        created_at=NOW,
        runs=(run,) * runs,
        options=options_of(
            {
                "checkpoint": {"mode": mode, **checkpoint},
                "deadlines": {
                    "finish_within_seconds": 10 * 3600,
                    "expected_runtime_seconds": 4 * 3600,
                },
            }
        ),
    )


def test_what_was_saved_counts_as_done_and_what_was_lost_does_not() -> None:
    saved, lost = (race_of(a_workload(mode, runs=2), NOW) for mode in ("kubelet", "none"))

    assert saved is not None
    assert lost is not None
    assert (saved.work_left, lost.work_left) == (4 * HOUR - 2 * 3 * HOUR // 4, 4 * HOUR)
    assert lost.unsaved == 4 * HOUR, "without checkpoints a loss costs everything"


def test_who_names_no_deadline_runs_no_race() -> None:
    assert race_of(replace(a_workload(), options=options_of({})), NOW) is None
