"""One browser for all tests, one deployment for each module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from cli.ui.guard import SessionGuard
from tests.browser.chromium import find_chromium
from tests.browser.serving import Deployment, busy, served


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    cache = Path(os.environ.get("SLUICE_CACHE", Path.home() / ".cache" / "sluice"))
    chromium = find_chromium(cache)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium.program,
            args=["--no-sandbox"],
            env={**os.environ, **chromium.environment},
        )
        yield started
        started.close()


@pytest.fixture
def deployment() -> Deployment:
    return busy()


@pytest.fixture
def guard(deployment: Deployment) -> Iterator[SessionGuard]:
    with served(deployment) as guard:
        yield guard


@pytest.fixture
def page(browser: Browser, guard: SessionGuard) -> Iterator[Page]:
    """A page with an open session. Any error of a script or of the policy fails the test."""
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    page = context.new_page()
    page.set_default_timeout(15_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("dialog", lambda dialog: complaints.append(f"a script ran: {dialog.message}"))
    page.goto(guard.address)
    yield page
    context.close()
    assert complaints == []
