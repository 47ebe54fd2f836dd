"""`apply` and `delete`: all or nothing, with a diff, refused where it would break something."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.unit.api.control_plane import (
    ADMIN,
    COMPANY,
    ControlPlane,
    cluster_queue,
    flavor,
    local_queue,
    native,
)
from tests.unit.cli.terminal import Terminal, items


def administrator(*objects: dict[str, Any]) -> Terminal:
    return Terminal(ControlPlane((*COMPANY, *objects)), ADMIN)


def applied(terminal: Terminal, *documents: dict[str, Any], flags: tuple[str, ...] = ()) -> Any:
    return terminal("apply", "-f", "-", *flags, input=yaml.safe_dump_all(documents))


def test_apply_tells_created_changed_and_unchanged() -> None:
    terminal = administrator()

    result = applied(
        terminal, flavor("gpu"), cluster_queue("red-cq", 128), cluster_queue("blue-cq", 32)
    )

    assert result.exit_code == 0
    results = [line.split()[-1] for line in result.stdout.splitlines()[1:4]]
    assert results == ["created", "changed", "unchanged"]
    changed = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    assert f"- {changed}: 64" in result.stdout
    assert f"+ {changed}: 128" in result.stdout


def test_applying_the_same_again_writes_nothing() -> None:
    terminal = administrator()
    before = terminal.plane.catalog.snapshot()

    result = applied(terminal, *COMPANY)

    assert {row["result"] for row in items(applied(terminal, *COMPANY, flags=("-o", "json")))} == {
        "unchanged"
    }
    assert result.exit_code == 0
    assert terminal.plane.catalog.snapshot() is before


def test_dry_run_shows_the_change_and_writes_nothing() -> None:
    terminal = administrator()
    before = terminal.plane.catalog.snapshot()

    result = applied(terminal, cluster_queue("red-cq", 1), flags=("--dry-run",))

    assert "changed" in result.stdout
    assert "nothing was written" in result.stderr
    assert terminal.plane.catalog.snapshot() is before


def test_prune_deletes_what_the_files_no_longer_name_of_their_kinds() -> None:
    terminal = administrator(flavor("old"), cohort("unused", None))

    asked = applied(terminal, flavor("spot"), flags=("--prune",))
    result = applied(terminal, flavor("spot"), flags=("--prune", "-y"))

    assert asked.exit_code == 2  # there is no terminal to ask
    assert "delete ResourceFlavor old" in asked.stderr
    assert result.exit_code == 0
    snapshot = terminal.plane.catalog.snapshot()
    assert set(snapshot.of("ResourceFlavor")) == {"spot"}
    assert "unused" in snapshot.of("Cohort")


def test_prune_is_refused_as_a_whole_where_something_is_in_use() -> None:
    terminal = administrator()
    before = terminal.plane.catalog.snapshot()

    result = applied(terminal, cluster_queue("other", 4), flags=("--prune", "-y"))

    assert result.exit_code == 5
    assert "red-cq" in result.stderr
    assert terminal.plane.catalog.snapshot() is before


def test_diff_shows_what_apply_would_do_and_writes_nothing() -> None:
    terminal = administrator(flavor("old"))
    before = terminal.plane.catalog.snapshot()
    text = yaml.safe_dump_all([flavor("spot"), cluster_queue("red-cq", 128)])

    def diff(*flags: str, text: str = text) -> Any:
        return terminal("diff", "-f", "-", *flags, input=text)

    assert diff().exit_code == 0
    assert "unchanged" not in diff().stdout
    assert "nominalQuota: 128" in diff().stdout
    pruned = items(diff("--prune", "-o", "json", text=yaml.safe_dump(flavor("spot"))))
    assert [(row["name"], row["result"]) for row in pruned] == [("old", "deleted")]
    assert diff("--exit-code").exit_code == 1
    same = diff("--exit-code", text=yaml.safe_dump(flavor("spot")))
    assert (same.exit_code, same.stdout, same.stderr) == (0, "", "no differences\n")
    assert terminal.plane.catalog.snapshot() is before


def test_kueues_older_version_is_accepted() -> None:
    document = cluster_queue("old", 4, cohort=None)
    document["apiVersion"] = "kueue.x-k8s.io/v1beta1"
    document["spec"]["cohort"] = "company"
    terminal = administrator()

    assert applied(terminal, document).exit_code == 0
    queues = items(terminal("queues", "-o", "json"))
    assert {q["name"]: q["cohort"] for q in queues}["old"] == "company"


def cohort(name: str, parent: str | None) -> dict[str, Any]:
    spec = {"parentName": parent} if parent else {}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Cohort",
        "metadata": {"name": name},
        "spec": spec,
    }


def limited_without_cohort() -> dict[str, Any]:
    document = cluster_queue("alone", 4, cohort=None)
    resource = document["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    resource["borrowingLimit"] = "1"
    return document


def misspelt() -> dict[str, Any]:
    document = cluster_queue("red-cq", 64)
    document["spec"]["cohortNam"] = "company"
    return document


@pytest.mark.parametrize(
    ("documents", "told"),
    [
        ([cohort("a", "b"), cohort("b", "a")], "cycle"),
        ([limited_without_cohort()], "below a cohort"),
        ([misspelt()], "did you mean cohortName"),
        ([local_queue("red", "new", "nowhere")], "nowhere"),
        ([local_queue("red", "batch", "blue-cq")], "immutable"),
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}], "known:"),
        ([flavor("a"), flavor("a")], "twice"),
        ([{**flavor("a"), "metadata": {}}], "metadata.name"),
    ],
)
def test_a_configuration_that_would_be_wrong_is_refused_as_a_whole(
    documents: list[dict[str, Any]], told: str
) -> None:
    terminal = administrator()
    before = terminal.plane.catalog.snapshot()

    result = applied(terminal, flavor("innocent"), *documents)

    assert result.exit_code == 5
    assert told in result.stderr
    assert terminal.plane.catalog.snapshot() is before


def test_a_queue_that_holds_quota_stays_in_its_tree() -> None:
    terminal = administrator()
    workload_id = terminal.plane.send(native("job", 4))

    refused = applied(terminal, cluster_queue("red-cq", 64, cohort="other"))

    assert refused.exit_code == 5
    assert "HoldAndDrain" in refused.stderr
    terminal.plane.run(workload_id)
    terminal.plane.finish(workload_id)
    assert applied(terminal, cluster_queue("red-cq", 64, cohort="other")).exit_code == 0


def test_moving_a_cohort_moves_its_queues_and_is_refused_likewise() -> None:
    terminal = administrator()
    terminal.plane.send(native("job", 4))

    assert applied(terminal, cohort("company", "holding")).exit_code == 5


def test_every_touched_tree_gets_a_new_version_and_a_kick() -> None:
    terminal = administrator()
    first = terminal.plane.catalog.limits("company")

    applied(terminal, cluster_queue("blue-cq", 64, cohort="other"))

    assert terminal.plane.catalog.limits("company") == first + 1
    assert terminal.plane.catalog.limits("other") == 1
    assert set(terminal.plane.kicks.roots) == {"company", "other"}


def test_more_quota_admits_what_waited_for_it() -> None:
    terminal = administrator()
    big = terminal.plane.send(native("big", 64))
    second = terminal.plane.send(native("second", 64))
    assert terminal.plane.workloads.rows[second].state == "PENDING"

    applied(terminal, cluster_queue("red-cq", 128))
    terminal.plane.settle()

    assert terminal.plane.workloads.rows[big].state == "ADMITTED"
    assert terminal.plane.workloads.rows[second].state == "ADMITTED"


def test_an_edit_that_meets_another_writer_is_decided_anew() -> None:
    terminal = administrator()
    catalog = terminal.plane.catalog
    edit, calls = catalog.edit, []

    def contested(wanted: Any) -> bool:
        calls.append(wanted.based_on)
        if len(calls) == 1:
            edit(type(wanted)(wanted.based_on, (("ResourceFlavor", "theirs", flavor("theirs")),)))
        return edit(wanted)

    catalog.__dict__["edit"] = contested

    assert applied(terminal, flavor("mine")).exit_code == 0
    assert {"mine", "theirs"} <= set(catalog.snapshot().of("ResourceFlavor"))
    assert calls == [1, 2]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("ResourceFlavor", "spot"),
        ("ClusterQueue", "red-cq"),
        ("LocalQueue", "red/batch"),
        ("Cluster", "batch-1"),
    ],
)
def test_what_is_in_use_cannot_be_deleted(kind: str, name: str) -> None:
    terminal = administrator()
    terminal.plane.send(native("job", 4))
    before = terminal.plane.catalog.snapshot()

    result = terminal("delete", kind, name, "-y")

    assert result.exit_code == 5
    assert terminal.plane.catalog.snapshot() is before


def test_what_nothing_uses_can_be_deleted() -> None:
    terminal = administrator()

    assert terminal("delete", "localqueue", "blue/batch", "-y").exit_code == 0
    assert terminal("delete", "ClusterQueue", "blue-cq", "-y").exit_code == 0
    assert terminal("delete", "ClusterQueue", "blue-cq", "-y").exit_code == 3
    assert terminal("delete", "resourceflavor", "blue-cq", "-y").exit_code == 3
    assert terminal("delete", "flavour", "blue-cq", "-y").exit_code == 2
    assert "blue-cq" not in terminal.plane.catalog.snapshot().of("ClusterQueue")


def test_more_than_one_transaction_holds_is_refused_and_unchanged_objects_do_not_count() -> None:
    terminal = administrator()
    flavors = [flavor(f"flavor-{n}") for n in range(120)]

    refused = applied(terminal, *flavors)

    assert refused.exit_code == 5
    assert "smaller files" in refused.stderr
    assert applied(terminal, *flavors[:80]).exit_code == 0
    assert applied(terminal, *flavors).exit_code == 0


def a_policy(name: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_a_policy_is_applied_listed_and_kicks_every_root() -> None:
    terminal = administrator(cluster_queue("alone", 1, cohort=None))
    terminal.plane.kicks.roots.clear()

    result = applied(terminal, a_policy(fairSharing={}, minRuntime="5m"))

    assert result.exit_code == 0
    assert terminal.plane.kicks.roots == ["alone", "company"]
    listed = terminal("objects", "schedulingpolicy")
    assert listed.stdout.splitlines()[1].split() == [
        "SchedulingPolicy",
        "default",
        "fairSharing,",
        "minRuntime",
    ]
    shown = terminal("objects", "SchedulingPolicy", "default", "-o", "yaml")
    assert yaml.safe_load(shown.stdout) == a_policy(fairSharing={}, minRuntime="5m")


def test_a_policy_with_a_mistake_is_refused_with_the_field() -> None:
    result = applied(administrator(), a_policy(agin={"interval": "1m"}))

    assert result.exit_code == 5
    assert "spec.agin: unknown field; did you mean aging?" in result.stderr


def test_a_policy_for_no_root_and_a_second_one_for_all_are_refused() -> None:
    terminal = administrator(a_policy())

    unknown = applied(terminal, a_policy("red", rootCohort="red"))
    second = applied(terminal, a_policy("other"))

    assert "no root cohort is named red; known: company" in unknown.stderr
    assert "SchedulingPolicy default is for every root cohort already" in second.stderr
    assert (unknown.exit_code, second.exit_code) == (5, 5)


def test_kueues_own_configuration_is_refused_with_what_to_write_instead() -> None:
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}

    result = applied(administrator(), document)

    assert result.exit_code == 5
    assert "write its fairSharing, admissionFairSharing" in result.stderr


def test_what_waited_for_a_budget_is_looked_at_again_once_that_is_deleted() -> None:
    terminal = administrator()
    budget = {
        "apiVersion": "sluice.dev/v1",
        "kind": "Budget",
        "metadata": {"name": "monthly"},
        "spec": {"clusterQueue": "red-cq", "limitUSD": 1, "window": "24h"},
    }
    applied = terminal("apply", "-f", "-", input=yaml.safe_dump(budget))
    assert applied.exit_code == 0, applied.output
    terminal.plane.kicks.roots.clear()

    assert terminal("delete", "budget", "monthly", "--dry-run").exit_code == 0
    assert terminal.plane.kicks.roots == []

    assert terminal("delete", "budget", "monthly", "-y").exit_code == 0
    assert terminal.plane.kicks.roots == ["company"]


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_check_that_nobody_answers_is_applied_with_a_warning(form: str) -> None:
    terminal = administrator()
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "buy"},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"},
    }

    result = applied(terminal, check, flags=("-o", form))

    assert result.exit_code == 0
    assert "warning: nobody answers AdmissionCheck buy" in result.stderr
    assert "sluice.dev/callback" in result.stderr
    assert "AdmissionCheck" in terminal.plane.catalog.snapshot().documents

    check["spec"] = {"controllerName": "sluice.dev/callback"}
    assert "warning" not in applied(terminal, check).stderr
