"""Screenshots of the dashboard, light and dark, of a shop that has been busy for five minutes."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.dashboard.browser import LAUNCH, find_chromium
from tests.docs.pictures.recording import PLACE

SHOP = Path(__file__).with_name("shop.py")
# The overview shows five minutes, and its first point is a few seconds old.
BUSY_SECONDS = 330
SCHEMES = ("light", "dark")
VIEW = {"width": 1200, "height": 760}
# Sharper than the page needs. At 1.5, a picture has more than 200 KB.
DENSITY = 1.25


def make(folder: Path) -> None:
    """Write `dashboard-light.png`, `dashboard-job-light.png` and their dark twins."""
    PLACE.mkdir()
    try:
        shutil.copy(SHOP, PLACE / "shop.py")
        with chdir(PLACE), served() as address, sync_playwright() as playwright:
            shop = runpy.run_path("shop.py")
            customers = threading.Thread(target=shop["keep_busy"], args=(BUSY_SECONDS + 60,))
            customers.start()
            time.sleep(BUSY_SECONDS)
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=LAUNCH)
            page = browser.new_page(viewport=VIEW, device_scale_factor=DENSITY)
            page.goto(f"{address}#/?range=5m")
            expect(page.get_by_role("heading", name="Throughput")).to_be_visible()
            take(page, folder, "dashboard")
            job = shop["app"].wait(shop["be_given_up"]().id, timeout=60)
            page.goto(f"{address}#/jobs/{job.id}")
            expect(page.get_by_role("heading", level=1)).to_contain_text(job.kind)
            take(page, folder, "dashboard-job")
            browser.close()
            customers.join()
    finally:
        shutil.rmtree(PLACE)


def take(page: Page, folder: Path, name: str) -> None:
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        # Charts are drawn on a canvas, in the frame after the colours have changed.
        page.wait_for_timeout(2_500)
        page.screenshot(path=folder / f"{name}-{scheme}.png")


@contextmanager
def served() -> Iterator[str]:
    """The address of `rowlock up`, with two worker processes."""
    words = ["--app", "shop:app", "up", "--open", "--port", "0", "-p", "2", "--no-log-jobs"]
    with subprocess.Popen(
        [sys.executable, "-m", "rowlock", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.match(r"dashboard: (\S+)", line):
                    yield found[1]
                    break
        finally:
            process.terminate()
