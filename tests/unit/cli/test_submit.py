"""`submit` and `run`: ids at once, the documents as written, checks before and after."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from sluice.client.sender import BATCH_BYTES, SqsSender, SubmissionMessage, batches
from sluice.core.lifecycle.options import Dependency, DependencyCondition
from sluice.core.values.identity import workload_id

from tests.unit.api.control_plane import (
    BLUE,
    COMPANY,
    STRANGER,
    ControlPlane,
    cluster_queue,
    native,
)
from tests.unit.cli.terminal import Terminal, items

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  generateName: train-
  labels: {kueue.x-k8s.io/queue-name: batch, since: 2026-11-20}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: train:1
          resources: {requests: {cpu: "4"}}
"""


def test_the_printed_id_is_the_id_of_the_record() -> None:
    terminal = Terminal()

    submitted = items(terminal("submit", "-f", "-", "-o", "json", input=JOB))

    record = terminal.plane.workloads.rows[submitted[0]["id"]]
    assert (record.namespace, record.queue, record.state) == ("red", "red/batch", "PENDING") or (
        record.state == "ADMITTED"
    )
    assert record.labels["since"] == "2026-11-20", "dates stay text"


def test_a_generated_key_makes_a_new_workload_each_time_and_a_given_one_does_not() -> None:
    terminal = Terminal()

    first, second = (items(terminal("submit", "-f", "-", "-o", "json", input=JOB)) for _ in "ab")
    keyed = [
        items(terminal("submit", "-f", "-", "-o", "json", "--idempotency-key", "k", input=JOB))
        for _ in "ab"
    ]

    assert first[0]["id"] != second[0]["id"]
    assert keyed[0][0]["id"] == keyed[1][0]["id"]
    assert [k[0]["result"] for k in keyed] == ["submitted", "the same as before, ADMITTED"]
    assert keyed[0][0]["id"] == workload_id("red", "k")


def test_yaml_json_lists_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        yaml.safe_dump_all([native("one", 1), {"kind": "List", "items": [native("two", 1)]}])
    )
    (tmp_path / "b.json").write_text(json.dumps(native("three", 1)))
    (tmp_path / "notes.txt").write_text("no document")
    terminal = Terminal()

    submitted = items(terminal("submit", "-f", str(tmp_path), "-o", "json"))

    assert [each["name"] for each in submitted] == ["one", "two", "three"]
    assert {w.name for w in terminal.plane.workloads.rows.values()} == {"one", "two", "three"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "no YAML"),
        ("just text", "not a document"),
        ("", "no document"),
        ("kind: Workload\nmetadata: []\n", "metadata must be a mapping"),
    ],
)
def test_what_is_no_document_is_refused_before_anything_is_sent(text: str, told: str) -> None:
    terminal = Terminal()

    result = terminal("submit", "-f", "-", input=text)

    assert result.exit_code == 5
    assert told in result.stderr
    assert not terminal.sent


@pytest.mark.parametrize("dry", [(), ("--dry-run", "client")])
def test_what_nobody_could_read_is_refused_rather_than_awaited_for_ever(
    dry: tuple[str, ...],
) -> None:
    """Its record would be one without name and key, so not of the id that was printed."""
    terminal = Terminal()
    text = json.dumps(native("wide", 1) | {"annotations": {f"a{n}": "" for n in range(1001)}})

    result = terminal("submit", "-f", "-", "--wait", *dry, input=text)

    assert result.exit_code == 5
    assert "an object has 1001 keys; use at most 1000" in result.stderr
    assert not terminal.plane.workloads.rows


def test_two_documents_with_one_key_are_a_mistake() -> None:
    documents = yaml.safe_dump_all([native("one", 1, key="k"), native("two", 1, key="k")])
    terminal = Terminal()

    result = terminal("submit", "-f", "-", input=documents)

    assert result.exit_code == 5
    assert "document 1 and stdin, document 2" in result.stderr
    assert not terminal.sent


def test_dry_run_on_the_client_finds_wrong_fields_and_sends_nothing() -> None:
    document = native("one", 1)
    document["spec"]["imagee"] = "x"
    terminal = Terminal()

    result = terminal("submit", "-f", "-", "--dry-run", "client", input=yaml.safe_dump(document))

    assert result.exit_code == 5
    assert "imagee" in result.stderr
    assert not terminal.sent


@pytest.mark.parametrize(
    ("cpu", "queue", "verdict", "code"),
    [
        (64, "batch", "would be admitted now", 0),
        (96, "batch", "would be admitted now", 0),
        (97, "batch", "would be rejected", 5),
        (1, "nowhere", "would be rejected", 5),
    ],
)
def test_dry_run_on_the_server_asks_policy_queue_and_quota(
    cpu: int, queue: str, verdict: str, code: int
) -> None:
    document = yaml.safe_dump(native("one", cpu, queue=queue))
    terminal = Terminal()
    terminal.plane.settle()  # the cluster is heard of

    result = terminal("submit", "-f", "-", "--dry-run", "server", input=document)

    assert verdict in result.stdout
    assert result.exit_code == code
    assert not terminal.plane.workloads.rows


def test_dry_run_on_the_server_sees_what_is_in_use() -> None:
    terminal = Terminal()
    terminal.plane.send(native("theirs", 40, namespace="blue"), BLUE)

    result = terminal(
        "submit", "-f", "-", "--dry-run", "server", input=yaml.safe_dump(native("one", 64))
    )

    assert result.exit_code == 0
    assert "would wait" in result.stdout
    assert "a request of 56 cpu would fit now" in result.stderr


def dry_run(terminal: Terminal, *documents: dict[str, Any]) -> list[str]:
    text = yaml.safe_dump_all(documents)
    found = items(terminal("submit", "-f", "-", "--dry-run", "server", "-o", "json", input=text))
    return [item["result"] for item in found]


def test_dry_run_on_the_server_decides_as_a_pass_would() -> None:
    reclaim = {"preemption": {"reclaimWithinCohort": "Any"}}
    objects = [
        cluster_queue("red-cq", 64, **reclaim) if o["metadata"]["name"] == "red-cq" else o
        for o in COMPANY
    ]
    terminal = Terminal(ControlPlane(tuple(objects)))
    terminal.plane.send(native("theirs", 96, namespace="blue"), BLUE)

    # Blue borrows what is red's: red gets its own back, and no more than that.
    verdicts = dry_run(terminal, native("own", 64), native("more", 65))

    assert verdicts == ["would be admitted after preemption", "would wait"]


def test_run_makes_a_workload_of_flags() -> None:
    terminal = Terminal()

    submitted = items(
        terminal(
            *("run", "--image", "example:1", "-q", "batch", "--cpu", "2", "--parallelism", "3"),
            *(
                "--s3",
                "s3://data/in/:/in",
                "--env",
                "A=1=2",
                "-o",
                "json",
                "--",
                "python",
                "-c",
                "1",
            ),
        )
    )

    spec = json.loads(terminal("get", submitted[0]["id"], "-o", "json").stdout)["spec"]
    assert spec["command"] == ["python", "-c", "1"]
    assert spec["env"] == {"A": "1=2"}
    assert spec["volumes"][0]["s3"] == {"bucket": "data", "prefix": "in/"}
    record = terminal.plane.workloads.rows[submitted[0]["id"]]
    assert record.pod_sets[0].count == 3
    assert record.pod_sets[0].requests["cpu"] == 2000


def test_run_makes_arrays_and_waits_for_others() -> None:
    terminal = Terminal()
    first = terminal.plane.send(native("prepare", 1))

    flags = ("run", "--image", "example:1", "-q", "batch", "-o", "json")
    (made,) = items(terminal(*flags, "--array", "0-9%3", "--after", first[:6], "--", "true"))

    record = terminal.plane.workloads.rows[made["id"]]
    assert record.pod_sets[0].count == 3
    assert record.options.depends_on == (Dependency(DependencyCondition.SUCCEEDED, id=first),)
    assert record.blocked
    later = "a" * 13  # whom nobody knows yet: its message may be on the way
    (made,) = items(terminal(*flags, "--after", later, "--", "true"))
    assert terminal.plane.workloads.rows[made["id"]].options.depends_on[0].id == later
    assert terminal(*flags, "--after", "zzz", "--", "true").exit_code == 3


def test_submit_and_wait_reports_a_rejection_with_its_fields() -> None:
    terminal = Terminal()

    result = terminal(
        "submit", "-f", "-", "--wait", input=yaml.safe_dump(native("one", 1, queue="nowhere"))
    )

    assert result.exit_code == 104
    assert "spec.queue" in result.stderr
    assert "batch" in result.stderr, "the message names the queues that exist"


def test_a_key_that_stands_for_another_body_is_reported_as_such() -> None:
    terminal = Terminal()
    terminal("submit", "-f", "-", input=yaml.safe_dump(native("one", 1, key="k")))

    result = terminal(
        "submit", "-f", "-", "--wait", input=yaml.safe_dump(native("two", 1, key="k"))
    )

    assert result.exit_code == 6
    assert "idempotency key" in result.stderr


def messages(*sizes: int) -> list[SubmissionMessage]:
    return [SubmissionMessage(str(n), "red", "x" * size) for n, size in enumerate(sizes)]


def test_a_key_of_another_body_is_told_before_anything_is_sent() -> None:
    terminal = Terminal()
    other = JOB.replace('cpu: "4"', 'cpu: "5"')
    assert terminal("submit", "-f", "-", "--idempotency-key", "k", input=JOB).exit_code == 0

    result = terminal("submit", "-f", "-", "--idempotency-key", "k", input=other)

    assert result.exit_code == 6
    assert "was used before, for another document" in result.stderr
    assert len(terminal.sent) == 1


def test_a_corrected_document_takes_the_place_of_a_rejected_one_and_is_waited_for() -> None:
    terminal = Terminal()
    wrong = JOB.replace("train:1", "")
    words = ("submit", "-f", "-", "--idempotency-key", "k")
    assert terminal(*words, "--wait", input=wrong).exit_code == 104
    late: list[SubmissionMessage] = []
    terminal.deliver = late.extend  # type: ignore[method-assign]

    def arrive() -> None:
        while late:
            Terminal.deliver(terminal, [late.pop()])
            (record,) = terminal.plane.workloads.rows.values()
            terminal.plane.run(record.id)
            terminal.plane.finish(record.id)

    terminal.sleeping = arrive

    result = terminal(*words, "--wait", input=JOB)

    assert result.exit_code == 0, result.output


def a_reference(terminal: Terminal, document: dict[str, Any]) -> str:
    """The text of a reference to a document that the caller may read."""
    stored = json.dumps(document).encode()
    terminal.stored["s3://bucket/job.json"] = stored
    digest = hashlib.sha256(stored).hexdigest()
    return json.dumps({"manifestRef": "s3://bucket/job.json", "sha256": digest})


def test_a_reference_is_sent_as_it_is_under_the_id_of_its_document() -> None:
    terminal = Terminal()
    reference = a_reference(terminal, native("big", 1, key="big-1"))

    (row,) = items(terminal("submit", "-f", "-", "-o", "json", input=reference))

    assert row["id"] == workload_id("red", "big-1")
    assert json.loads(terminal.sent[0].body) == json.loads(reference)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sha256": "0" * 64}, "has the sha256"),
        ({"sha256": "x"}, "sha256: must be the 64 hexadecimal digits"),
        ({"manifestRef": "s3://bucket/none"}, "cannot be read"),
        ({"name": "x"}, "name: unknown field"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(change: dict[str, str], told: str) -> None:
    terminal = Terminal()
    reference = json.loads(a_reference(terminal, native("big", 1))) | change

    result = terminal("submit", "-f", "-", input=json.dumps(reference))

    assert result.exit_code in {1, 5}
    assert told in result.stderr
    assert terminal.sent == []


def test_a_referenced_document_without_a_key_has_no_id_that_anybody_knows() -> None:
    terminal = Terminal()
    document = native("big", 1)
    del document["metadata"]["idempotencyKey"]

    result = terminal("submit", "-f", "-", input=a_reference(terminal, document))

    assert result.exit_code == 5
    assert "write metadata.idempotencyKey into it" in result.stderr


def test_a_dry_run_on_the_client_knows_how_much_a_message_holds() -> None:
    document = native("big", 1)
    document["spec"]["command"] = ["x" * (BATCH_BYTES + 1)]

    result = Terminal()("submit", "-f", "-", "--dry-run", "client", input=json.dumps(document))

    assert result.exit_code == 5
    assert "more than a message can hold" in result.stderr
    assert "manifestRef" in result.stderr


def test_run_refuses_what_nobody_would_take() -> None:
    terminal = Terminal()

    result = terminal("run", "-q", "batch", "-N", "red", "--image", "x:1", "--cpu", "abc")

    assert result.exit_code == 5
    assert "spec.resources.cpu" in result.stderr
    assert "is missing" not in result.stderr, "a wrong amount is not a missing one"
    assert terminal.sent == []


def test_batches_hold_at_most_ten_messages_and_one_mebibyte() -> None:
    many = list(batches(messages(*[10] * 25)))
    large = list(batches(messages(BATCH_BYTES, 1, BATCH_BYTES - 1, 1)))

    assert [len(batch) for batch in many] == [10, 10, 5]
    assert [len(batch) for batch in large] == [1, 2, 1]


class Sqs:
    """Takes messages, except that the first attempt of the named ones fails."""

    def __init__(self, *failing: str) -> None:
        self.failing = set(failing)
        self.taken: list[str] = []
        self.groups: set[str] = set()

    def send_message_batch(self, QueueUrl: str, Entries: list[dict[str, str]]) -> object:  # noqa: N803 - as boto3
        assert QueueUrl == "queue"
        failed = []
        for entry in Entries:
            body = entry["MessageBody"]
            if body in self.failing:
                self.failing.remove(body)
                failed.append({"Id": entry["Id"], "SenderFault": False, "Code": "Internal"})
            else:
                self.taken.append(body)
                self.groups.add(entry["MessageGroupId"])
        return {"Successful": [], "Failed": failed}


def test_messages_that_sqs_did_not_take_are_sent_again_and_only_those() -> None:
    sqs = Sqs("xx", "xxx")

    SqsSender(sqs, "queue")(messages(1, 2, 3, 4))

    assert sorted(sqs.taken) == ["x", "xx", "xxx", "xxxx"]
    assert sqs.groups == {"red"}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("binary.yaml", b"\xff\xfe", "no text in UTF-8"),
        ("tabs.yaml", b"a:\n\t- b\n", "line 2, column 1"),
        ("bytes.yaml", b"metadata: {name: !!binary aGVsbG8=}", "JSON does not have"),
        ("nan.yaml", b"spec: {resources: {cpu: .nan}}", "JSON does not have"),
        ("deep.json", b"[" * 100_000, "nested too deeply"),
        ("deep.yaml", b"spec: " + b"[" * 50_000, "line 1, column 70: nested more than 64 deep"),
        ("within-itself.yaml", b"spec: &a [*a]", "line 1, column 11: *a stands inside"),
        ("twice.json", b'{"kind": "Job", "kind": "Job"}', "occurs twice"),
        (
            "bomb.yaml",
            b"a0: &a0 [1]\n"
            + b"".join(
                b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9))
                for n in range(1, 10)
            ),
            "2 MiB",
        ),
        ("empty.yaml", b"# nothing\n---\n", "no document"),
        ("text.yaml", b"just words", "holds str"),
    ],
)
def test_what_is_no_document_is_refused_in_one_line_wherever_it_comes_from(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    terminal = Terminal()

    for place in (str(tmp_path / name), str(tmp_path)):
        result = terminal("submit", "-f", place)

        assert result.exit_code == 5
        assert said in result.stderr
        assert result.stderr.count("\n") == 1
    assert terminal.plane.workloads.rows == {}


def test_waiting_for_what_was_sent_to_a_foreign_namespace_ends_with_its_rejection() -> None:
    terminal = Terminal()

    result = terminal("submit", "-f", "-", "-N", "blue", "--wait", input=JOB)

    assert result.exit_code == 104
    assert "tenant red may use only red" in result.stderr


def test_a_dry_run_here_needs_no_api_and_shows_no_id_that_it_cannot_know() -> None:
    document = native("a", 1)
    del document["metadata"]["namespace"]
    terminal = Terminal(signer=STRANGER)

    result = terminal(
        "submit", "-f", "-", "--dry-run", "client", "-o", "json", input=json.dumps(document)
    )

    assert items(result) == [{"id": "", "namespace": "", "name": "a", "result": "valid"}]
