"""How long the dashboard takes to draw a workflow, and how many frames a second it has while moved.

    python -m benchmarks.graph

In a headless Chromium without a graphics card, which is the worst case: it draws by the processor.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from random import Random

from playwright.sync_api import Browser, Page, sync_playwright

import rowlock
from rowlock import config
from tests.dashboard.screens import enqueue_workflow
from tests.support.server import Running

LAYERS = 10
RUNS = 5
PAN_STEPS = 120


def folded(app: rowlock.App) -> str:
    """Ten layers of a thousand alike jobs, and one job between each: 10,009 jobs, 19 stacks."""
    jobs: dict[str, tuple[str, list[str]]] = {}
    gate: list[str] = []
    for layer in range(LAYERS):
        names = [f"{layer}.{number}" for number in range(1000)]
        jobs |= dict.fromkeys(names, (f"fetch_{layer}", gate))
        gate = [f"gate {layer}"]
        if layer < LAYERS - 1:
            jobs[gate[0]] = ("merge", names)
    return enqueue_workflow(app, jobs, name="10,000 jobs")


def stacks(app: rowlock.App) -> str:
    """As many stacks as a workflow that is enqueued at once can have."""
    random = Random(3)
    jobs: dict[str, tuple[str, list[str]]] = {}
    for number in range(config.WORKFLOW_STACKS_MAX):
        near = list(jobs)[-25:]
        jobs[str(number)] = (f"step_{number}", random.sample(near, min(len(near), 2)))
    return enqueue_workflow(app, jobs, name="200 stacks")


def drawn(browser: Browser, address: str) -> float:
    """Milliseconds from the navigation of a new browser context to the first frame with a graph."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(".node")
    taken: float = page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => done(performance.now())))"
    )
    context.close()
    return taken


def frames(page: Page) -> list[float]:
    """Milliseconds between frames while the whole graph is dragged to and fro."""
    page.keyboard.press("0")
    box = page.locator(".graph-view").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + 12
    page.evaluate(
        """() => {
            globalThis.frames_ = [];
            const note = (at) => { frames_.push(at); requestAnimationFrame(note); };
            requestAnimationFrame(note);
        }"""
    )
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(PAN_STEPS):
        page.mouse.move(x + 300 * (step % 40) / 40, y + step % 20)
    page.mouse.up()
    times: list[float] = page.evaluate("frames_")
    return [after - before for before, after in pairwise(times)]


def main() -> None:
    """Measure both, and print it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        app = rowlock.App(f"sqlite:///{Path(place) / 'graph.db'}")
        app.migrate()
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        ids = {"10,000 jobs in 19 stacks": folded(app), "200 stacks": stacks(app)}
        with Running(app, is_open=True) as running:
            for name, id in ids.items():
                address = f"{running.address}/#/workflows/{id}"
                times = [drawn(browser, address) for _ in range(RUNS)]
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.goto(address)
                page.wait_for_selector(".node")
                gaps = frames(page)
                per_second = 1000 / statistics.mean(gaps)
                print(
                    f"{name}: drawn after {statistics.median(times):.0f} ms, "
                    f"{per_second:.0f} frames a second while dragged, "
                    f"the longest took {max(gaps):.0f} ms"
                )
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
