"""Takes the pictures of the documentation: `make screenshots`.

They show the pages on a control plane in one process, with recorded interruptions.
"""

from __future__ import annotations

import os
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.chromium import find_chromium
from tests.browser.serving import busy, served

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SETTLED_MS = 1_500


def main() -> None:
    deployment = busy()
    pictures = {
        "interruption": (f"/workloads/{deployment.migrated}", 610),
        "quota": ("/quota?queue=red-cq", 830),
        "what-if": ("/whatif?root=company&queue=red-cq", 560),
        "workloads": ("/workloads?group=phase", 800),
    }
    cache = Path(os.environ.get("SLUICE_CACHE", Path.home() / ".cache" / "sluice"))
    chromium = find_chromium(cache)
    with served(deployment) as guard, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.program,
            args=["--no-sandbox"],
            env={**os.environ, **chromium.environment},
        )
        page = browser.new_context(viewport={"width": 1240, "height": 800}).new_page()
        page.goto(guard.address)
        for name, (path, height) in pictures.items():
            page.set_viewport_size({"width": 1240, "height": height})
            page.goto(f"http://127.0.0.1:{guard.port}{path}")
            page.wait_for_timeout(SETTLED_MS)
            if name == "what-if":
                page.get_by_label("nominal quota").fill("150400")
                page.wait_for_timeout(SETTLED_MS)
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
