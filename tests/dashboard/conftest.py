"""A real Chromium, and a real server on a database of the test's own.

The browser is started for each module, and ended with it: while Playwright's blocking API is in
use, no other test of the same process could run a loop.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import rowlock
from tests.dashboard.browser import LAUNCH, find_chromium
from tests.dashboard.screens import Dashboard
from tests.house.source import PACKAGE
from tests.support.server import Running

# A machine may be busy with much else.
PATIENCE_MS = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert (PACKAGE / "dashboard" / "index.html").is_file(), "run `make dashboard` first"
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=LAUNCH)
        yield browser
        browser.close()


@pytest.fixture
def app(sqlite_url: str) -> rowlock.App:
    return make_app(sqlite_url)


def make_app(url: str) -> rowlock.App:
    """Tasks that the tests run by hand, through the store."""
    app = rowlock.App(url)

    @app.task(queue="mail", max_attempts=3)
    def send_email(to: str, subject: str = "", copies: int = 1) -> None: ...

    @app.task(queue="reports")
    def report(month: str) -> None: ...

    return app


@pytest.fixture
def running(app: rowlock.App) -> Iterator[Running]:
    """A server that is open: nobody needs a token."""
    with Running(app, is_open=True) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own, whose console must stay clean."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, permissions=["clipboard-read", "clipboard-write"]
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"uncaught: {error}"))
    forgiven: list[str] = []
    page.said = said  # type: ignore[attr-defined]
    page.forgiven = forgiven  # type: ignore[attr-defined]
    yield page
    context.close()
    assert [line for line in said if not any(told in line for told in forgiven)] == []


@pytest.fixture
def dashboard(running: Running, page: Page) -> Dashboard:
    """The dashboard of that server, not yet shown; the page goes before the server does."""
    return Dashboard(page, running.address + "/", running.app)


@pytest.fixture
def locked(app: rowlock.App) -> Iterator[Running]:
    """A server that wants a token, and has a login link as long as there is none."""
    with Running(app, has_login=True) as running:
        yield running


@pytest.fixture
def locked_dashboard(locked: Running, page: Page) -> Dashboard:
    """The dashboard of that server."""
    return Dashboard(page, locked.address + "/", locked.app)
