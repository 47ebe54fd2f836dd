"""The ports Manifests, Timeline, Leases, Nodes, LogArchive and Recordings."""

from __future__ import annotations

import gzip
import hashlib
import secrets
from dataclasses import replace

import pytest
from sluice.adapters.s3_logs import S3Logs
from sluice.core.lifecycle.faults import Fault
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.inventory_row import DeclaredLost, Heartbeat, InventoryRow
from sluice.errors import ManifestUnavailable

from tests.contract.aws.builders import CLUSTER, NOW, a_workload
from tests.contract.aws.ports import Ports


def test_manifests_come_back_verbatim_whatever_their_size(ports: Ports) -> None:
    large = {"noise": secrets.token_hex(400_000)}  # too much for an item, even compressed
    small = {"kind": "Job", "n": 1.5, "text": "ünïcode ✓", "empty": {}, "none": None}

    ports.manifests.put_many({"small": small, "large": large})

    assert ports.manifests.get_many(["large", "missing", "small"]) == {
        "small": small,
        "large": large,
    }


def test_more_manifests_than_one_request_takes(ports: Ports) -> None:
    many = {f"m{number}": {"n": number} for number in range(60)}

    ports.manifests.put_many(many)

    assert ports.manifests.get_many(many) == many
    assert ports.manifests.get_many([]) == {}


def test_a_reference_is_fetched_if_its_digest_agrees(ports: Ports) -> None:
    body = b'{"kind": "Job"}'
    uri = ports.bucket.put("some/place.json", body)
    digest = hashlib.sha256(body).hexdigest()

    assert ports.manifests.fetch(uri, digest) == body
    with pytest.raises(ManifestUnavailable, match="sha256"):
        ports.manifests.fetch(uri, "0" * 64)
    with pytest.raises(ManifestUnavailable, match="cannot read"):
        ports.manifests.fetch(f"{uri}.missing", digest)


def test_the_newest_fault_of_a_function_takes_the_place_of_the_former(ports: Ports) -> None:
    older = Fault("act", CLUSTER, "MISCONFIGURATION:MissingRight", "cannot create jobs", NOW)
    newer = replace(older, message="cannot patch jobs", at=NOW + 1)
    other = Fault("sweep", "", "MISCONFIGURATION:MissingRight", "Query: not authorized", NOW)

    for fault in (older, other, newer):
        ports.faults.note(fault)

    assert sorted(ports.faults.noted(), key=lambda fault: fault.function) == [newer, other]


def happening(at: int, what: str, message: str = "", generation: int = 0) -> Happening:
    workload = a_workload(generation=generation)
    return Happening(workload, at, what, message, {"n": 1})


def test_a_timeline_is_ordered_by_time_and_bears_repetition(ports: Ports) -> None:
    lines = [happening(NOW + 5, "Admitted", generation=1), happening(NOW, "Submitted", "hello")]

    ports.timeline.append(lines)
    ports.timeline.append(lines[:1])

    assert ports.timeline.of("w1") == [
        {"at": NOW, "generation": 0, "what": "Submitted", "message": "hello", "detail": {"n": 1}},
        {"at": NOW + 5, "generation": 1, "what": "Admitted", "message": "", "detail": {"n": 1}},
    ]
    assert ports.timeline.of("nobody") == []


def test_lines_of_one_change_are_written_together_and_read_one_by_one(ports: Ports) -> None:
    change = [happening(NOW + 2, "QuotaReleased"), happening(NOW, "Admitted", "to a")]

    for _ in range(2):
        ports.timeline.append_together([change, [happening(NOW + 1, "Held")]])

    lines = ports.timeline.of("w1")
    assert [(line["at"] - NOW, line["what"]) for line in lines] == [
        (0, "Admitted"), (1, "Held"), (2, "QuotaReleased"),
    ]  # fmt: skip
    assert lines[0] == {
        "at": NOW, "generation": 0, "what": "Admitted", "message": "to a", "detail": {"n": 1},
    }  # fmt: skip


def test_one_batch_may_hold_the_same_line_twice(ports: Ports) -> None:
    ports.timeline.append([happening(NOW, "Submitted"), happening(NOW, "Submitted")])

    assert len(ports.timeline.of("w1")) == 1


def test_a_lease_belongs_to_one_owner_until_it_ends(ports: Ports) -> None:
    leases = ports.leases

    assert leases.acquire(CLUSTER, "a", now=NOW, until=NOW + 10)
    assert not leases.acquire(CLUSTER, "b", now=NOW + 10, until=NOW + 20)
    assert leases.acquire("elsewhere", "b", now=NOW, until=NOW + 10)
    assert leases.acquire(CLUSTER, "a", now=NOW + 10, until=NOW + 20)
    assert leases.acquire(CLUSTER, "b", now=NOW + 21, until=NOW + 30)
    assert not leases.acquire(CLUSTER, "a", now=NOW + 21, until=NOW + 30)
    assert leases.acquire(CLUSTER, "b", now=NOW + 22, until=0)
    assert leases.acquire(CLUSTER, "a", now=NOW + 22, until=NOW + 30)


def test_who_takes_a_lease_ends_the_former_owner(ports: Ports) -> None:
    leases = ports.leases
    assert leases.acquire(CLUSTER, "a", now=NOW, until=NOW + 10, done=NOW - 3)

    assert leases.take(CLUSTER, "b", until=NOW + 10) == NOW - 3
    assert leases.take("elsewhere", "b", until=NOW + 10) == 0

    assert not leases.acquire(CLUSTER, "a", now=NOW + 1, until=NOW + 11)
    assert leases.acquire(CLUSTER, "b", now=NOW + 1, until=NOW + 11)


def test_nodes_are_kept_by_cluster_and_instance_and_leases_are_none(ports: Ports) -> None:
    first = InventoryRow("i-1", type="c5.large", ready=False, allocatable={"cpu": "2"}, price=0.5)
    ports.leases.acquire(CLUSTER, "a", now=NOW, until=NOW + 10)

    ports.nodes.put_many(CLUSTER, [first, replace(first, instance="i-2")])
    ports.nodes.put_many(CLUSTER, [replace(first, ready=True)])
    ports.nodes.put_many("other", [replace(first, instance="i-3")])

    found = {node.instance: node for node in ports.nodes.of(CLUSTER)}
    assert set(found) == {"i-1", "i-2"}
    assert found["i-1"] == replace(first, ready=True)
    assert found["i-2"] == replace(first, instance="i-2")
    assert ports.nodes.find(CLUSTER, "i-2") == found["i-2"]
    assert ports.nodes.of("nowhere") == []


def test_a_heartbeat_of_a_cluster_replaces_the_one_before_with_its_mark(ports: Ports) -> None:
    lost = Heartbeat(CLUSTER, NOW, DeclaredLost(NOW + 1, "alice", "flooded"))
    ports.nodes.put_heartbeat(Heartbeat("other", NOW))
    ports.nodes.put_heartbeat(lost)

    assert sorted(ports.nodes.heartbeats(), key=lambda each: each.instance) == sorted(
        [lost, Heartbeat("other", NOW)], key=lambda each: each.instance
    )
    ports.nodes.put_heartbeat(Heartbeat(CLUSTER, NOW + 2))
    assert Heartbeat(CLUSTER, NOW + 2) in ports.nodes.heartbeats(), "it answers again"


def test_logs_are_listed_and_read_by_generation_pod_and_container(ports: Ports) -> None:
    ports.logs.put("w1", 0, "pod-a", "main", b"first\n")
    ports.logs.put("w1", 1, "pod-b", "side", "ünïcode\n".encode())
    ports.logs.put("w10", 0, "pod", "main", b"of another\n")

    assert sorted(ports.logs.list("w1")) == ["0/pod-a/main", "1/pod-b/side"]
    assert ports.logs.get("w1", 1, "pod-b", "side") == "ünïcode\n".encode()
    assert ports.logs.list("nobody") == []


def test_what_a_node_has_stored_counts_as_long_as_it_is_more(ports: Ports) -> None:
    """Pieces that nodes store while a log grows, beside the complete one."""
    if not isinstance(ports.logs, S3Logs):
        pytest.skip("only the bucket has what nodes store")
    client, bucket = ports.logs.client, ports.logs.bucket
    for number, text in enumerate((b"one\n", b"two\n")):
        key = f"logs/w3/0/pod/main.part-{number:04}.gz"
        client.put_object(Bucket=bucket, Key=key, Body=gzip.compress(text))

    assert ports.logs.list("w3") == ["0/pod/main"]
    assert ports.logs.get("w3", 0, "pod", "main") == b"one\ntwo\n"

    ports.logs.put_if_absent("w3", 0, "pod", "main", b"(gone)\n")
    assert ports.logs.get("w3", 0, "pod", "main") == b"one\ntwo\n"

    ports.logs.put("w3", 0, "pod", "main", b"one\ntwo\nthree\n")
    assert ports.logs.get("w3", 0, "pod", "main") == b"one\ntwo\nthree\n"
    assert ports.logs.list("w3") == ["0/pod/main"]


def test_a_note_does_not_replace_an_archived_log(ports: Ports) -> None:
    ports.logs.put_if_absent("w2", 0, "pod", "main", b"(the node is away)\n")
    ports.logs.put("w2", 0, "pod", "main", b"printed\n")

    ports.logs.put_if_absent("w2", 0, "pod", "main", b"(the pod is gone)\n")

    assert ports.logs.get("w2", 0, "pod", "main") == b"printed\n"


def test_a_recording_comes_back_under_its_root_and_version(ports: Ports) -> None:
    ports.recordings.put("company", 7, '{"plan": "ü"}')
    ports.recordings.put("company", 7, '{"plan": "✓"}')

    assert ports.recordings.get("company", 7) == '{"plan": "✓"}'
    assert ports.recordings.get("company", 8) is None
    assert ports.recordings.get("other", 7) is None
