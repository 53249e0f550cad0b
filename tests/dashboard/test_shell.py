"""The frame: keys, the palette, prefixes, trouble, and rest while nobody looks."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from rowlock.job import JobState
from rowlock.server import asgi
from tests.dashboard.screens import Dashboard, enqueue, job_of, kill
from tests.support.server import served_plainly

KEY_TRIES = 10


def test_below_a_prefix(page, app):
    """It is the same, and loads nothing from anywhere else; without a slash it finds its place."""
    job = enqueue(app)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    api = Starlette(routes=[Mount("/deep/queue", app=asgi(app, is_open=True))])
    with app, served_plainly(api) as address:
        page.goto(f"{address}/deep/queue")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.locator(f"tr[data-id='{job.id}'] a").click()
        Dashboard(page, "", app).button("Cancel").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("cancelled")
        page.goto("about:blank")

    assert job_of(app, job.id).state == JobState.CANCELLED
    ours = f"{address}/deep/queue"
    assert [url for url in asked if not url.startswith((ours, "about:"))] == []


def go_to_jobs(page: Page) -> None:
    """By two keys, which count together for a second and a half: on a busy machine the second may
    come later, and a person would press them again.
    """
    heading = page.get_by_role("heading", level=1)
    for _ in range(KEY_TRIES):
        page.keyboard.press("g")
        page.keyboard.press("j")
        try:
            expect(heading).to_have_text("Jobs", timeout=3000)
        except AssertionError:
            continue
        return
    expect(heading).to_have_text("Jobs")


def test_by_keyboard_alone(dashboard):
    """From the first Tab to a job that is retried."""
    job = kill(dashboard.app)
    page = dashboard.show("", "Overview")
    keys = page.keyboard
    keys.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    keys.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    keys.press("Escape")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_have_count(0)
    go_to_jobs(page)
    expect(page.locator("tr[data-id]")).to_have_count(1)
    keys.press("j")
    keys.press("x")
    expect(page.get_by_role("region", name="Selected jobs")).to_be_visible()
    keys.press("Escape")
    keys.press("j")
    keys.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("send_email")
    retry = dashboard.button("Retry")
    retry.focus()
    keys.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("ready")
    assert job_of(dashboard.app, job.id).state == JobState.READY


def test_the_palette(dashboard):
    """Finds screens, kinds, queues, and a job by its id."""
    job = enqueue(dashboard.app)
    page = dashboard.show("", "Overview")
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox")
    box.fill("dead l")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
    page.keyboard.press("Control+k")
    box.fill("send_em")
    expect(page.get_by_role("option", name=re.compile("send_email Kind"))).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("send_email")
    page.keyboard.press("Control+k")
    box.fill(job.id)
    page.keyboard.press("Enter")
    expect(page.get_by_text(job.id)).to_be_visible()
    page.keyboard.press("Control+k")
    box.fill("state:dead kind:report")
    page.keyboard.press("Enter")
    expect(page.get_by_role("searchbox")).to_have_value("state:dead kind:report")


def test_dark_and_light(dashboard):
    """The system's choice, until there is one here; that is kept."""
    page = dashboard.page
    page.emulate_media(color_scheme="dark")
    dashboard.show("", "Overview")
    theme = page.locator("html")
    expect(theme).to_have_attribute("data-theme", "dark")
    page.keyboard.press("t")
    expect(theme).to_have_attribute("data-theme", "light")
    page.reload()
    expect(theme).to_have_attribute("data-theme", "light")


def test_trouble_is_told_and_tried_again(dashboard):
    """What was shown stays; the button asks again at once."""
    enqueue(dashboard.app)
    page = dashboard.show("queues", "Queues")
    expect(page.get_by_role("link", name="mail")).to_be_visible()
    page.route("**/v1/queues?*", lambda route: route.abort())
    # Seen again, it asks at once.
    hide(page, is_hidden=True)
    hide(page, is_hidden=False)
    expect(page.get_by_role("alert")).to_contain_text("The server can't be reached.")
    expect(page.get_by_role("link", name="mail")).to_be_visible()
    page.unroute("**/v1/queues?*")
    dashboard.button("Try again").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    dashboard.forgive("ERR_FAILED")


def test_nothing_is_asked_while_nobody_looks(dashboard):
    """Hidden, or paused, it rests; seen again, it looks at once."""
    page = dashboard.page
    page.clock.install()
    dashboard.show("queues", "Queues")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # Its timer starts with an answer, which a busy machine may be slow to give.
    for _ in range(120):
        page.clock.run_for(20_000)
        page.wait_for_timeout(100 if asked else 500)
        if asked:
            break
    assert asked

    hide(page, is_hidden=True)
    page.wait_for_load_state("networkidle")
    asked.clear()
    page.clock.run_for(120_000)
    assert asked == []
    with page.expect_request("**/v1/queues?*"):
        hide(page, is_hidden=False)

    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Paused")).to_be_visible()
    page.wait_for_load_state("networkidle")
    asked.clear()
    page.clock.run_for(120_000)
    assert asked == []


def hide(page: Any, *, is_hidden: bool) -> None:
    page.evaluate(
        """(isHidden) => {
            Object.defineProperty(document, "hidden", {get: () => isHidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def test_a_server_that_is_away_is_seen_and_so_is_its_return(dashboard):
    """A banner says since when; whatever screen it is, it has the news once the server is back."""
    page = dashboard.show("schedules", "Schedules")
    expect(page.get_by_text("Nothing is scheduled")).to_be_visible()
    expect(page.get_by_role("button", name="Live")).to_be_visible()
    # Nobody touches the page: its own check sees it.
    page.context.set_offline(True)
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(page.locator(".away-count")).to_have_text(re.compile("again in|asking"))
    expect(page.get_by_role("button", name="No answer")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(1)

    dashboard.app.schedule("weekly", "report", cron="30 9 * * 1", payload={"month": "May"})
    page.context.set_offline(False)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_role("button", name="Live")).to_be_visible()
    expect(page.get_by_text("weekly")).to_be_visible()
    dashboard.forgive("ERR_INTERNET_DISCONNECTED")


def test_a_new_screen_has_the_focus_and_is_announced(dashboard):
    """The first screen leaves it where it is; later ones begin at their heading."""
    page = dashboard.show("", "Overview")
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    page.get_by_role("link", name="Queues", exact=True).click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Queues")
    expect(heading).to_be_focused()
    expect(page.locator(".frame > [role=status]")).to_have_text("Queues")


def test_a_screen_that_breaks_leaves_the_frame(dashboard):
    """An answer that no screen expects is told in its place; the others work."""
    page = dashboard.page
    page.route("**/v1/kinds*", lambda route: route.fulfill(json={"kinds": [None], "next": None}))
    dashboard.show("kinds")
    expect(page.get_by_role("alert")).to_contain_text("This screen could not be drawn")
    page.get_by_role("link", name="Queues", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    dashboard.forgive("the dashboard failed to draw a screen")
