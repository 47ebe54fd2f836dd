from collections import Counter
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from cfnlint.api import ManualArgs, lint

from infra.acknowledgements import acknowledged
from tests.unit.infra.conftest import SETTINGS, Assembly, synthesize


def test_the_same_findings_are_explained_in_a_named_region(
    assembly: Assembly, tmp_path: Path
) -> None:
    named = synthesize(SETTINGS | {"region": "eu-west-1"}, tmp_path)
    (here,) = [r for r in named.report()["pluginReports"] if r["pluginName"] == "AwsSolutions"]
    (there,) = [r for r in assembly.report()["pluginReports"] if r["pluginName"] == "AwsSolutions"]

    assert here["violations"] == []
    assert len(here["suppressedViolations"]) == len(there["suppressedViolations"])


def test_cdk_nag_finds_nothing_that_is_not_explained(assembly: Assembly) -> None:
    (report,) = [r for r in assembly.report()["pluginReports"] if r["pluginName"] == "AwsSolutions"]

    assert report["conclusion"] == "success"
    assert report["violations"] == []


def test_the_explained_findings_are_exactly_these(assembly: Assembly) -> None:
    (report,) = [r for r in assembly.report()["pluginReports"] if r["pluginName"] == "AwsSolutions"]
    found = Counter(each["ruleName"].partition("[")[0] for each in report["suppressedViolations"])

    assert dict(found) == {"AwsSolutions-SQS3": 2, "AwsSolutions-L1": 11, "AwsSolutions-IAM5": 35}


def test_every_acknowledgement_explains_something(assembly: Assembly) -> None:
    (report,) = [r for r in assembly.report()["pluginReports"] if r["pluginName"] == "AwsSolutions"]
    used = {
        (each["acknowledgedId"], each["acknowledgedAt"]) for each in report["suppressedViolations"]
    }

    for entry in acknowledged(assembly.configuration):
        wanted = entry.id(assembly.configuration.name)
        assert any(id_ == wanted and fnmatchcase(at, entry.path) for id_, at in used), wanted


def test_no_acknowledgement_is_past_its_review(assembly: Assembly) -> None:
    today = datetime.now(UTC).date()

    assert not [e for e in acknowledged(assembly.configuration) if e.review < today]


def test_cfn_lint_accepts_every_template(assembly: Assembly) -> None:
    # W3005: CDK writes dependencies that a reference implies already.
    settings = ManualArgs(regions=["eu-west-1", "us-east-1"], ignore_checks=["W3005"])

    for template in assembly.templates():
        found = lint(template.read_text(), config=settings)
        assert not found, "\n".join(f"{template.name}: {each}" for each in found)
