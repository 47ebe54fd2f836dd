"""All stacks of one deployment with every setting used, synthesized once without bundling."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from sluice.configuration import Configuration, parse

from infra.application import add_stacks
from infra.findings import check_findings

CLONE = Path(__file__).parents[3]
SETTINGS = {
    "name": "sluice",
    "state": {"warmThroughput": {"reads": 20000, "writes": 8000}},
    "observability": {
        "tracing": True,
        "alarmTopics": ["arn:aws:sns:eu-west-1:111122223333:on-call"],
    },
    "submissions": {
        "principals": ["arn:aws:iam::111122223333:role/research-submitter"],
        "organization": "o-abcdefghij",
        "manifestBuckets": ["research-manifests"],
    },
    "clusters": [
        {
            "name": "batch-1",
            "namespaces": ["nlp", "research"],
            "agent": {"image": f"111122223333.dkr.ecr.eu-west-1.amazonaws.com/a@sha256:{'0' * 64}"},
        },
        {
            "name": "batch_2",
            "cedana": {
                "tokenSecret": "arn:aws:secretsmanager:eu-west-1:111122223333:secret:cedana-AbCdEf",
                "serviceAccount": "cedana-systems/cedana",
            },
        },
    ],
    "drills": True,
}


@dataclass(frozen=True)
class Assembly:
    """What `cdk synth` writes."""

    folder: Path
    configuration: Configuration

    def template(self, stack: str) -> dict[str, Any]:
        return json.loads((self.folder / f"{stack}.template.json").read_text())

    def resources(self, stack: str, kind: str) -> dict[str, dict[str, Any]]:
        """Properties by logical id."""
        found = self.template(stack)["Resources"].items()
        return {name: each.get("Properties", {}) for name, each in found if each["Type"] == kind}

    def templates(self) -> list[Path]:
        return sorted(self.folder.glob("*.template.json"))

    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "validation-report.json").read_text())


def synthesize(settings: dict[str, Any], folder: Path) -> Assembly:
    configuration = parse(settings)
    context = json.loads((CLONE / "cdk.json").read_text())["context"]
    app = cdk.App(outdir=str(folder), context=context | {"aws:cdk:bundling-stacks": []})
    add_stacks(app, configuration=configuration)
    check_findings(app, configuration=configuration)
    app.synth()
    return Assembly(folder, configuration)


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesize(SETTINGS, tmp_path_factory.mktemp("cdk.out"))
