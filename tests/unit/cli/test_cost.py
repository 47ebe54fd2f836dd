"""`sluice cost`: windows, groups, pages, forms, and who sees what."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from typing import Any

import pytest
from sluice.usecases.reading.costs import Costs

from tests.unit.api.control_plane import ADMIN, BLUE, RED, native
from tests.unit.cli.terminal import Terminal

HOUR = 3_600_000
SPOT = {"usd_per_hour": 1.0, "on_demand_usd_per_hour": 3.0, "capacity": "spot"}


def a_day() -> tuple[Terminal, list[str]]:
    """Red: one hour that succeeded at $1, one that failed, one without a price; blue: one hour."""
    terminal = Terminal()
    plane = terminal.plane
    ids = []
    for name, machine, succeeded in (("a", SPOT, True), ("b", SPOT, False), ("c", {}, True)):
        ids.append(plane.send(native(name, 8)))
        plane.run(ids[-1], **machine)
        plane.clock.pass_ms(HOUR)
        plane.finish(ids[-1], succeeded=succeeded)
    ids.append(plane.send(native("d", 8, namespace="blue"), BLUE))
    plane.run(ids[-1], **SPOT)
    plane.clock.pass_ms(HOUR)
    return terminal, ids


def asked(terminal: Terminal, *arguments: str) -> dict[str, Any]:
    result = terminal("cost", *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_the_parts_of_a_queue_add_up_and_what_has_no_price_is_told() -> None:
    terminal, _ = a_day()

    (red,) = asked(terminal)["items"]

    assert red["key"] == "red/batch"
    assert red["parts"]["useful"]["usd"] == pytest.approx(1.0)
    assert red["parts"]["failed"]["usd"] == pytest.approx(1.0)
    assert red["total"]["usd"] == pytest.approx(2.0)
    assert red["spotSavedUsd"] == pytest.approx(4.0)
    assert red["total"]["cpuSeconds"] == pytest.approx(3 * 8 * 3_600)
    assert red["unpriced"]["cpuSeconds"] == pytest.approx(8 * 3_600)
    for name in ("seconds", "cpuSeconds", "usd"):
        assert sum(part[name] for part in red["parts"].values()) == pytest.approx(
            red["total"][name]
        )


def test_people_read_a_table_with_a_total_and_what_it_does_not_say() -> None:
    terminal, _ = a_day()
    terminal.signer = ADMIN

    result = terminal("cost")

    headings, blue, red, total = result.stdout.splitlines()
    assert headings.split()[:6] == ["QUEUE", "RUNS", "CPU-H", "MEM-GIB-H", "GPU-H", "USEFUL"]
    assert (blue.split()[0], red.split()[0], total.split()[:3]) == (
        "blue/batch", "red/batch", ["total", "4", "32.00"],
    )  # fmt: skip
    assert "$3.00" in total
    assert "8.00 CPU hours have no price" in result.stderr


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("user", {"AROARED", "AROABLUE"}),
        ("namespace", {"red", "blue"}),
        ("flavor", {"spot"}),
        ("label:team", {""}),
    ],
)
def test_groups(by: str, keys: set[str]) -> None:
    terminal, _ = a_day()
    terminal.signer = ADMIN

    answer = asked(terminal, "--by", by)

    assert {item["key"] for item in answer["items"]} == keys
    assert answer["sum"]["runs"] == 4


def test_a_window_counts_what_ran_in_it_and_no_more() -> None:
    terminal, ids = a_day()
    terminal.signer = ADMIN
    now = terminal.plane.clock.now()

    last = asked(terminal, "--since", "30m", "--by", "workload")
    parts = [
        asked(terminal, "--since", s, "--until", u) for s, u in (("10h", "90m"), ("90m", "0s"))
    ]

    assert [item["key"] for item in last["items"]] == [f"{ids[-1]} d"]
    assert last["sum"]["total"]["usd"] == pytest.approx(0.5)
    assert last["until"] == now
    both = sum(part["sum"]["total"]["cpuSeconds"] for part in parts)
    assert both == pytest.approx(asked(terminal, "--since", "10h")["sum"]["total"]["cpuSeconds"])


def test_one_that_was_submitted_long_before_the_window_and_ended_in_it_counts() -> None:
    terminal = Terminal()
    plane = terminal.plane
    old = plane.send(native("old", 8))
    plane.run(old, **SPOT)
    plane.clock.pass_ms(72 * HOUR)
    plane.finish(old)
    plane.clock.pass_ms(HOUR)

    assert asked(terminal)["sum"]["total"]["usd"] == pytest.approx(23.0)


def test_pages_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, _ = a_day()
    terminal.signer = ADMIN
    whole = asked(terminal)
    terminal.plane.api = replace(terminal.plane.api, costs=Costs(terminal.plane.api.query, page=1))

    paged = asked(terminal)

    assert [item["runs"] for item in paged["items"]] == [1, 3]
    assert paged["sum"] == whole["sum"]


def test_each_sees_the_bill_of_its_own_namespaces() -> None:
    terminal, _ = a_day()
    seen = {}
    for signer in (RED, BLUE):
        terminal.signer = signer
        seen[signer.role] = [item["key"] for item in asked(terminal)["items"]]

    assert seen == {"Red": ["red/batch"], "Blue": ["blue/batch"]}
    terminal.signer = RED
    assert terminal("cost", "-q", "blue/batch").exit_code == 4


def test_a_table_for_a_spreadsheet() -> None:
    terminal, _ = a_day()

    head, line = csv.reader(terminal("cost", "-o", "csv").stdout.splitlines())
    row = dict(zip(head, line, strict=True))

    assert (row["queue"], row["runs"], row["workloads"]) == ("red/batch", "3", "3")
    assert float(row["useful.usd"]) == pytest.approx(1.0)
    assert float(row["total.cpuSeconds"]) == pytest.approx(3 * 8 * 3_600)
    assert row["lossesUntold"] == "0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--by", "colour"), "choose one of queue"),
        (("--since", "yesterday"), "is no moment"),
        (("--since", "1h", "--until", "2h"), "the window is empty"),
    ],
)
def test_questions_that_have_no_answer(arguments: tuple[str, ...], said: str) -> None:
    result = Terminal()("cost", *arguments)

    assert result.exit_code in {2, 5}
    assert said in result.output


def test_where_the_time_went_adds_up_to_the_life_of_the_workload() -> None:
    terminal, ids = a_day()

    found = json.loads(terminal("describe", ids[0], "-o", "json").stdout)
    text = terminal("describe", ids[0]).stdout

    whole = (found["finishedAt"] - found["createdAt"]) / 1_000
    assert sum(part["seconds"] for part in found["time"]["parts"]) == pytest.approx(whole)
    assert "3,600.0 s  running" in text
