"""What a Cluster object says, and what is told of one that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.cedana.settings import CedanaServiceSettings
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.clusters.cluster_spec import read
from sluice.core.config.document import Fields, Flaw

SECRET = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:cedana-AbCdEf"
CEDANA = {"url": "https://cedana.example.org", "clusterId": "c-1", "tokenSecret": SECRET}


def flaws_of(**cedana: Any) -> list[str]:
    found: list[Flaw] = []
    read(Fields({"metadata": {"name": "a"}, "spec": {"cedana": {**CEDANA, **cedana}}}, "", found))
    return [each.field for each in found]


def test_a_cluster_has_cedana_only_where_it_says_so() -> None:
    plain, equipped = ({"metadata": {"name": "a"}, "spec": s} for s in ({}, {"cedana": CEDANA}))

    assert read(Fields(plain, "", [])).services == {}
    spec = read(Fields(equipped, "", [])).services[CheckpointMode.CEDANA]
    assert spec == CedanaServiceSettings("https://cedana.example.org", "c-1", SECRET)
    assert flaws_of() == []
    assert flaws_of(url="http://127.0.0.1:8080/") == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"url": "http://cedana.example.org"}, "spec.cedana.url"),
        ({"url": "https://cedana.example.org/v1"}, "spec.cedana.url"),
        ({"clusterId": None}, "spec.cedana.clusterId"),
        ({"tokenSecret": "s3cr3t"}, "spec.cedana.tokenSecret"),
        ({"token": "s3cr3t"}, "spec.cedana.token"),
    ],
)
def test_a_token_goes_over_no_plain_line_and_into_no_object(
    wrong: dict[str, Any], field: str
) -> None:
    assert flaws_of(**wrong) == [field]


def test_a_cluster_has_the_kinds_of_add_ons_that_it_names() -> None:
    found: list[Flaw] = []
    asked = {"metadata": {"name": "a"}, "spec": {"kinds": ["PyTorchJob", "Deployment"]}}

    spec = read(Fields(asked, "", found))

    assert {"Job", "JobSet", "PyTorchJob"} <= spec.kinds
    assert [flaw.field for flaw in found] == ["spec.kinds"]
    assert "PyTorchJob" not in read(Fields({"metadata": {"name": "a"}}, "", [])).kinds
