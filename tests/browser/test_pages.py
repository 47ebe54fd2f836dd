"""Each page in a real browser: what it shows, what it changes, and what it must not do."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from cli.ui.guard import SessionGuard
from tests.browser.serving import HOSTILE, Deployment, served
from tests.unit.api.control_plane import BLUE, ControlPlane

pytestmark = pytest.mark.browser

PAGES = {
    "/": "Overview",
    "/workloads": "Workloads",
    "/quota": "Quota",
    "/whatif": "What if a quota were another",
    "/capacity": "Capacity and cost",
    "/operate": "Operate",
}


def go(page: Page, guard: SessionGuard, path: str) -> None:
    page.goto(f"http://127.0.0.1:{guard.port}{path}")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_and_says_what_it_is(page: Page, guard: SessionGuard, path: str) -> None:
    go(page, guard, path)

    expect(page.get_by_role("heading", level=1)).to_have_text(PAGES[path])
    expect(page.locator("nav a[aria-current=page]")).to_have_count(1)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_of_an_empty_deployment_is_whole(browser: Browser, path: str) -> None:
    with served(Deployment(ControlPlane(objects=()))) as guard:
        context = browser.new_context()
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(guard.address)
        go(page, guard, path)
        expect(page.get_by_role("heading", level=1)).to_have_text(PAGES[path])
        page.wait_for_timeout(500)
        context.close()
    assert errors == []


def test_the_overview_leads_to_those_that_wait_for_a_reason(page: Page) -> None:
    expect(page.locator(".figure").first).to_contain_text("active workloads")

    page.get_by_role("link", name=re.compile("QUOTA:CohortExhausted")).click()

    expect(page).to_have_url(re.compile(r"/workloads\?state=PENDING&group=reason"))
    expect(page.locator("tr.group")).to_contain_text("QUOTA:CohortExhausted")


def test_the_view_of_the_list_is_its_address(page: Page, guard: SessionGuard) -> None:
    go(page, guard, "/workloads")
    page.get_by_label("Group by", exact=True).select_option("queue")
    page.get_by_label("Phase", exact=True).select_option("RUNNING")
    expect(page).to_have_url(re.compile(r"state=RUNNING&group=queue"))
    expect(page.locator("tbody .phase-pending")).to_have_count(0)

    page.reload()

    expect(page.get_by_label("Group by", exact=True)).to_have_value("queue")
    expect(page.locator("tr.group").first).to_contain_text("red/")


def test_the_keyboard_reaches_the_filter_and_a_workload(page: Page, guard: SessionGuard) -> None:
    go(page, guard, "/workloads")
    page.get_by_role("link", name="train-1").wait_for()

    page.keyboard.press("/")
    page.keyboard.type("train-1")
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile("name=train-1"))
    page.get_by_role("link", name="train-1").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("train-1")


def test_a_change_says_what_it_does_before_it_is_done(
    page: Page, guard: SessionGuard, deployment: Deployment
) -> None:
    go(page, guard, "/workloads?state=PENDING")
    page.get_by_label("select hostile").check()
    page.get_by_role("button", name="cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("A cancelled workload cannot be resumed")
    cancelled = [w for w in deployment.plane.workloads.rows.values() if w.name == "hostile"]
    assert cancelled[0].state == "PENDING"

    dialog.get_by_label("Reason").fill("a test")
    dialog.get_by_role("button", name="cancel").click()

    expect(dialog.locator(".results")).to_contain_text("hostile")
    cancelled = [w for w in deployment.plane.workloads.rows.values() if w.name == "hostile"]
    assert cancelled[0].state != "PENDING"


def test_why_names_the_quota_and_what_would_help(page: Page, guard: SessionGuard) -> None:
    go(page, guard, "/workloads?state=PENDING")
    page.get_by_role("link", name="train-5").click()

    why = page.locator(".why")

    expect(why).to_contain_text("It waits for quota of red-cq")
    expect(why).to_contain_text("What would admit it")


def test_an_interruption_is_lanes_with_what_is_left_of_two_minutes(
    page: Page, guard: SessionGuard, deployment: Deployment
) -> None:
    go(page, guard, f"/workloads/{deployment.migrated}")

    lanes = page.locator("figure.lanes")

    expect(lanes).to_have_count(2)
    expect(lanes.nth(0).locator(".countdown")).to_have_text(re.compile(r"\d+ s are left"))
    expect(lanes.nth(1)).to_contain_text("runs again 6.4 s after the notice")
    expect(lanes.nth(1).locator("rect.dump")).to_have_count(2)


def test_a_drill_is_confirmed_and_then_warns_the_instance(
    page: Page, guard: SessionGuard, deployment: Deployment
) -> None:
    go(page, guard, f"/workloads/{deployment.migrated}")
    page.get_by_role("button", name="drill").click()
    expect(page.get_by_role("dialog")).to_contain_text("This is a real interruption")
    assert deployment.drilled == []

    page.get_by_role("dialog").get_by_role("button", name="drill").click()

    expect(page.get_by_role("dialog")).to_contain_text("i-0 is warned")
    assert deployment.drilled == [deployment.migrated]


def test_hostile_text_is_text(page: Page, guard: SessionGuard, deployment: Deployment) -> None:
    """The fixture fails if a script runs or the policy has to stop one."""
    go(page, guard, f"/workloads/{deployment.migrated}")

    expect(page.locator(".timeline")).to_contain_text(HOSTILE)
    expect(page.locator("pre.log")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0


def test_the_treemap_is_used_by_keyboard_and_names_who_waits(
    page: Page, guard: SessionGuard
) -> None:
    go(page, guard, "/quota")
    tile = page.get_by_role("button", name=re.compile("^red-cq: 120 of 64 cpu used"))

    tile.focus()
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile("queue=red-cq"))
    expect(page.get_by_role("link", name="who waits in red/batch")).to_be_visible()


def test_the_slider_decides_again_at_once(page: Page, guard: SessionGuard) -> None:
    go(page, guard, "/whatif?root=company&queue=red-cq")
    expect(page.locator(".verdict")).to_contain_text("1 start, 0 yield, 3 wait")

    page.get_by_label("nominal quota").fill("192000")

    expect(page.locator(".delta").first).to_contain_text("3 would start too")
    expect(page.locator(".delta").first).to_contain_text("train-4")


def test_a_tenant_sees_nothing_of_another(browser: Browser, deployment: Deployment) -> None:
    deployment.signer = BLUE
    deployment.answers.clear()
    with served(deployment) as guard:
        context = browser.new_context()
        page = context.new_page()
        page.goto(guard.address)
        for path in (*PAGES, f"/workloads/{deployment.migrated}"):
            go(page, guard, path)
            page.wait_for_timeout(600)
            text = page.locator("main").inner_text()
            assert "train-" not in text
            assert "AROARED" not in text
        context.close()


def test_nothing_is_loaded_from_another_host(browser: Browser, guard: SessionGuard) -> None:
    hosts: set[str] = set()
    context = browser.new_context()
    page = context.new_page()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.goto(guard.address)
    for path in PAGES:
        go(page, guard, path)
    context.close()

    assert hosts - {""} == {f"127.0.0.1:{guard.port}"}


@pytest.mark.parametrize("path", PAGES)
def test_every_control_has_a_name_and_every_page_its_landmarks(
    page: Page, guard: SessionGuard, path: str
) -> None:
    go(page, guard, path)
    page.wait_for_timeout(500)

    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, a, [role=button]")]
            .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim()
                || node.closest("label")?.textContent.trim()))
            .map((node) => node.outerHTML)"""
    )

    assert nameless == []
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.get_by_role("navigation")).to_have_count(1)
