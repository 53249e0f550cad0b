"""Every screen: hostile text stays text, axe finds nothing serious, the console stays clean."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

import rowlock
from rowlock.job import WorkerVitals
from rowlock.store.ops.tokens import list_tokens, new_token, revoke_token
from tests.dashboard.screens import (
    HOSTILE,
    Dashboard,
    enqueue,
    enqueue_workflow,
    kill,
    start,
)
from tests.house.source import ROOT
from tests.support.server import Running

AXE = ROOT / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
KIND, QUEUE = f"kind {HOSTILE}", f"queue/{HOSTILE}"
PATHS = {
    "": "Overview",
    "jobs": "Jobs",
    "jobs?error=nothing%20has%20this": "Jobs",
    "dead": "Dead letters",
    "workflows": "Workflows",
    "queues": "Queues",
    f"queues/{quote(QUEUE, safe='')}": "queue/",
    "workers": "Workers",
    "limits": "Limits",
    "schedules": "Schedules",
    "kinds": "Kinds",
    "kinds/send_email": "send_email",
    "system": "System",
}


def fill(app: rowlock.App) -> str:
    """Hostile text in every field that there is; the id of the worst job."""
    options = {
        "kind": KIND,
        "queue": QUEUE,
        "tags": [HOSTILE],
        "meta": {HOSTILE: HOSTILE},
        "payload": rowlock.codec.encode_payload(KIND, {HOSTILE: [HOSTILE, {"x": HOSTILE}]}),
    }
    dead = kill(app, ValueError(HOSTILE), key=f"dead {HOSTILE}", **options)
    lease = start(app, key=f"running {HOSTILE}", worker=f"worker {HOSTILE}", **options)
    app.store.progress(lease, fraction=0.5, text=HOSTILE)
    app.store.log(lease, [HOSTILE])
    enqueue(app, key=f"ready {HOSTILE}", **options)
    app.store.announce(
        worker=f"worker {HOSTILE}", queues=[QUEUE], kinds=[KIND], host=HOSTILE, pid=1
    )
    app.schedule(f"schedule {HOSTILE}", KIND, cron="0 9 * * *", payload={HOSTILE: HOSTILE})
    enqueue_workflow(app, {"a": (KIND, []), "b": (KIND, ["a"])}, name=f"flow {HOSTILE}")
    return dead.id


def check(page: Page) -> None:
    """Axe finds nothing that is serious or critical."""
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate(
        """async () => (await axe.run(document, {
            resultTypes: ["violations"],
        })).violations.filter((each) => ["serious", "critical"].includes(each.impact))
            .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3)}`)"""
    )
    assert found == []


@pytest.fixture
def crowded(dashboard: Dashboard) -> tuple[Dashboard, str]:
    return dashboard, fill(dashboard.app)


def test_every_screen_with_hostile_text(crowded):
    """It is shown, and nothing else comes of it; in light and dark colours, at three widths."""
    dashboard, dead = crowded
    page = dashboard.page
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    for scheme, width in (("light", 1440), ("light", 1024), ("dark", 390)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        for path, heading in {**PATHS, f"jobs/{dead}": "kind"}.items():
            dashboard.show(path, heading)
            expect(page.locator(".bone")).to_have_count(0)
            assert page.locator("main img, main script").count() == 0
            check(page)
            # Nothing is wider than the window, but what scrolls by itself.
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    dashboard.show(f"jobs/{dead}", "kind")
    expect(page.locator(".json-name").first).to_have_text(HOSTILE)
    expect(page.locator(".error-title")).to_contain_text(HOSTILE)


def test_a_graph_by_keyboard(dashboard):
    """Arrow keys move between the stacks and bring them into view; Enter shows their jobs."""
    page = dashboard.page
    chain = {str(n): (f"step_{n}", [str(n - 1)] if n else []) for n in range(12)}
    fan = {f"of 0, {n}": ("part", ["0"]) for n in range(30)}
    id = enqueue_workflow(dashboard.app, {**chain, **fan})
    dashboard.show(f"workflows/{id}", "crawl")
    expect(page.locator(".node")).to_have_count(13)
    check(page)
    page.locator(".node[tabindex='0']").focus()
    for _ in range(11):
        page.keyboard.press("ArrowRight")
    focused = page.locator(".node:focus")
    expect(focused).to_have_accessible_name("step_11 1 waiting")
    expect(focused).to_be_in_viewport(ratio=0.99)
    assert page.locator(".graph-view").evaluate("(element) => element.scrollLeft") == 0
    page.keyboard.press("0")
    expect(page.locator(".node").first).to_be_in_viewport(ratio=0.99)
    page.keyboard.press("Enter")
    jobs = page.get_by_role("region", name="Jobs of step_11")
    expect(jobs.locator("tr[data-id]")).to_have_count(1)

    jobs.get_by_role("link", name="step_11").last.click()
    expect(page.get_by_role("heading", name="Waits for", exact=True)).to_be_visible()
    page.get_by_role("navigation", name="Where this is").get_by_role("link").last.click()
    dashboard.button("Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the workflow").click()
    expect(page.get_by_text("42 jobs of crawl cancelled")).to_be_visible()


def test_dialogs(crowded):
    """Those that ask, and those that show: nothing serious either, in both sets of colours."""
    dashboard, dead = crowded
    page = dashboard.page
    opened = [
        ("", lambda: page.keyboard.press("Control+k")),
        ("", lambda: page.keyboard.press("?")),
        ("dead", page.locator(".group button").first.click),
        (f"jobs/{dead}", dashboard.button("Edit and retry").click),
    ]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for path, show in opened:
            dashboard.show(path, "")
            expect(page.locator("h1")).to_be_visible()
            expect(page.locator(".bone")).to_have_count(0)
            show()
            expect(page.get_by_role("dialog")).to_be_visible()
            check(page)
            page.keyboard.press("Escape")
            expect(page.get_by_role("dialog")).to_have_count(0)


def test_nothing_jumps_while_it_loads(crowded):
    """The place of what is to come is kept."""
    dashboard, _ = crowded
    page = dashboard.page
    page.add_init_script(
        """globalThis.shift = 0;
        new PerformanceObserver((list) => {
            for (const each of list.getEntries()) globalThis.shift += each.value;
        }).observe({type: "layout-shift", buffered: true});"""
    )
    shifts = {}
    for path in ("", "jobs", "queues", "dead"):
        dashboard.leave()
        dashboard.show(path)
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator(".bone")).to_have_count(0)
        shifts[path] = page.evaluate("globalThis.shift")

    # What is called good on the web.
    assert {path: shift for path, shift in shifts.items() if shift > 0.1} == {}


HOUR = 60


@pytest.fixture
def incident(dashboard: Dashboard) -> Dashboard:
    """An hour in which jobs waited up to 16 minutes, with a gap, and one sample alone."""
    minute = (int(time.time()) // 60 - HOUR) * 60
    times = [datetime.fromtimestamp(minute + 60 * each, UTC).isoformat() for each in range(HOUR)]
    ages: list[float | None] = [None] * HOUR
    ages[5:20] = [1000.0 - 10 * each for each in range(15)]
    ages[40] = 500.0
    counts = [None if age is None else 31 for age in ages]
    none = [0] * HOUR
    times_of = {"count": 0, "mean": None, "p50": None, "p95": None, "p99": None, "buckets": []}
    total = dict.fromkeys(("succeeded", "retrying", "dead", "cancelled", "released"), 0)
    series = {
        "queue": None, "kind": None, "total": {**total, "run": times_of, "wait": times_of},
        **dict.fromkeys(total, none),
        **{f"{of}_p{share}": ages for of in ("run", "wait") for share in (50, 95, 99)},
    }  # fmt: skip
    depth = {
        "queue": None, "ready": counts, "scheduled": counts, "running": counts,
        "retrying": counts, "oldest_ready_seconds": ages,
    }  # fmt: skip
    answer = {
        "times": times, "step": 60, "by": "all", "series": [series], "depths": [depth],
        "is_cut": False,
    }  # fmt: skip
    dashboard.page.route("**/v1/history*", lambda route: route.fulfill(json=answer))
    return dashboard


def test_charts_show_what_was_measured_and_nothing_else(incident):
    """Labels are whole, in minutes; without a cursor the legend has the last step, which had no
    sample; under the cursor it has that step's values, and its time."""
    page = incident.page
    page.add_init_script(
        """globalThis.written = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
            const left = this.textAlign === "right" ? x - this.measureText(text).width : x;
            written.push([text, left]);
            return write.call(this, text, x, y);
        };"""
    )
    incident.show("", "Overview")
    panel = page.locator(".chart-panel", has_text="Age of the oldest ready job")
    legend = panel.locator(".legend")
    expect(legend).to_contain_text("oldest ready –")
    expect(page.locator(".chart-panel", has_text="Depth").locator(".legend")).to_contain_text(
        "ready –"
    )
    expect(page.locator(".chart-panel", has_text="Throughput")).to_contain_text("Nothing ran")
    written = page.evaluate("written")
    assert {"5 min", "10 min", "15 min"} <= {text for text, _ in written}
    # No label begins outside of its canvas.
    assert [text for text, left in written if left < 0 and text.endswith("min")] == []

    plot = panel.locator(".u-over")
    width = plot.evaluate("(element) => element.clientWidth")
    # The dot alone, at minute 40 of the 58 steps between the first and the last that are drawn.
    plot.hover(position={"x": width * 40 / (HOUR - 2), "y": 20})
    expect(legend).to_contain_text("oldest ready 8 min 20 s")
    expect(legend.locator(".legend-time")).to_have_text(re.compile(r"^\d\d:\d\d$"))


def test_a_job_that_waits_for_its_worker_is_not_shown_as_running(dashboard):
    """Of five jobs that a worker with two slots holds, three wait there for a slot."""
    app = dashboard.app
    for _ in range(5):
        enqueue(app)
    app.store.claim(worker="w1", queues=["mail"], limit=5, lease=600, begun=False)
    vitals = WorkerVitals(slots=2, busy=2, ahead=3)
    app.store.announce(worker="w1", queues=["mail"], kinds=[], host="h", pid=1, vitals=vitals)
    page = dashboard.show("", "Overview")
    tile = page.locator(".tile", has_text="Running")
    expect(tile.locator(".tile-value")).to_have_text("2")
    expect(tile.locator(".tile-note")).to_have_text("of 2 slots, 3 claimed ahead")
    dashboard.show("workers", "Workers")
    expect(page.get_by_text("2 jobs running in 2 slots, 3 claimed ahead")).to_be_visible()
    dashboard.show("jobs", "Jobs")
    expect(page.locator(".tab", has_text="running")).to_have_text("running2, 3 claimed ahead")
    (held, *_) = app.list(state="running").jobs
    dashboard.show_job(held)
    expect(page.locator(".why")).to_contain_text(
        "holds 5 jobs for 2 slots, so this one may not have begun"
    )


def test_times_are_in_one_zone_which_is_named(browser, running):
    """Also those that the server writes in UTC; and dead jobs have a retention of their own."""
    job = enqueue(running.app, run_at=datetime(2030, 1, 1, 12, tzinfo=UTC))
    dead = kill(running.app)
    context = browser.new_context(timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto(f"{running.address}/#/jobs/{job.id}")
    expect(page.locator(".why")).to_contain_text("It is not due until Jan 1 2030, 17:30.")
    expect(page.locator(".timeline")).to_contain_text("Jan 1 2030, 17:30")
    expect(page.locator(".zone")).to_have_text("Times in Asia/Calcutta, UTC+5:30")
    page.goto(f"{running.address}/#/jobs/{dead.id}")
    expect(page.locator(".facts", has_text="Kept if dead")).to_contain_text("30 d")
    context.close()


def test_an_empty_system_says_what_to_type(dashboard):
    """On every screen that has nothing to show."""
    page = dashboard.page
    for path, told in {
        "": "rowlock enqueue hello",
        "jobs": "rowlock enqueue hello",
        "dead": "rowlock.Fail",
        "queues": "rowlock enqueue hello",
        "workers": "rowlock --app shop:app worker",
        "limits": "app.limit(",
        "schedules": "@app.task(cron=",
        "jobs/018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a": "There is no such job",
        "nowhere": "There is nothing here",
    }.items():
        dashboard.show(path)
        expect(page.get_by_text(told).first).to_be_visible()
        check(page)
    dashboard.forgive("404")


def test_a_token_that_only_reads_is_offered_nothing_else(locked_dashboard, locked):
    """No button that would be refused, on any screen."""
    dead = fill(locked_dashboard.app)
    page = locked_dashboard.page
    sign_in(locked_dashboard, locked.make_token("read"))
    for path in (*PATHS, f"jobs/{dead}"):
        locked_dashboard.show(path, PATHS.get(path, "kind"))
        expect(page.locator(".bone")).to_have_count(0)
        names = page.get_by_role("button").all_inner_texts()
        refused = ("Retry", "Cancel", "Delete", "Pause", "Resume", "Run now", "Enqueue", "Revoke")
        assert not {*refused} & {*names}, path
        assert page.locator("tr[data-id] input").count() == 0
    expect(page.get_by_text("read-only")).to_be_visible()


def test_a_token_that_only_enqueues_gets_the_forms(locked_dashboard, locked):
    """And nothing that it could not read."""
    sign_in(locked_dashboard, locked.make_token("enqueue"))
    page = locked_dashboard.page
    expect(page.get_by_role("heading", level=1)).to_have_text("Kinds")
    page.get_by_role("link", name="report", exact=True).click()
    page.get_by_label("month").fill("May")
    locked_dashboard.button("Enqueue").click()
    expect(page.get_by_text("report is enqueued")).to_be_visible()

    menu = page.get_by_role("navigation", name="Main")
    assert [text.strip() for text in menu.locator("li").all_inner_texts()] == ["Kinds"]
    assert locked_dashboard.app.list(kind="report", full=True).jobs[0].payload == {"month": "May"}


def test_a_tenant_sees_its_own(locked_dashboard, locked):
    """Neither jobs of others nor what concerns all."""
    enqueue(locked_dashboard.app, tenant="acme", kind="own")
    enqueue(locked_dashboard.app, tenant="zoo", kind="foreign")
    sign_in(locked_dashboard, locked.make_token("admin", tenant="acme"))
    page = locked_dashboard.show("jobs", "Jobs")
    expect(page.locator("tr[data-id]")).to_have_count(1)
    expect(page.get_by_role("link", name="own")).to_be_visible()
    menu = page.get_by_role("navigation", name="Main")

    expect(menu.get_by_role("link", name="Workers")).to_have_count(0)
    expect(menu.get_by_role("link", name="System")).to_have_count(0)
    locked_dashboard.show("", "Overview")
    expect(page.get_by_text("All is well")).to_be_visible()
    expect(page.locator(".bone")).to_have_count(0)


def sign_in(dashboard: Dashboard, token: str) -> None:
    page = dashboard.show("", "Sign in")
    page.get_by_label("Token").fill(token)
    dashboard.button("Sign in").click()
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    dashboard.forgive("401")


def test_a_session_is_shared_by_all_tabs(locked_dashboard, locked):
    """Until one of them signs out. No script can read it, and the token is kept nowhere."""
    token = locked.make_token("read")
    sign_in(locked_dashboard, token)
    page = locked_dashboard.page
    (cookie,) = page.context.cookies()
    places = "[{...localStorage}, {...sessionStorage}, document.cookie]"
    kept = page.evaluate(f"JSON.stringify({places})")
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    assert token not in kept + cookie["value"] and cookie["value"] not in kept

    other = page.context.new_page()
    other.goto(locked_dashboard.address)
    expect(other.get_by_role("heading", level=1)).to_have_text("Overview")
    other.get_by_role("button", name="Sign out", exact=True).click()
    expect(other.get_by_role("heading", level=1)).to_have_text("Sign in to rowlock")
    other.close()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to rowlock")


def test_a_login_link_signs_in_and_a_lost_session_loses_no_page(locked_dashboard, locked):
    """Its code leaves the address bar. What was typed is still there after the next sign-in."""
    page = locked_dashboard.page
    page.goto(locked.server.login_link)
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    assert "login" not in page.url
    locked_dashboard.show("kinds/send_email", "send_email")
    page.get_by_label("to", exact=False).first.fill("ada@example.com")
    (token,) = locked.app.store.run(list_tokens()).tokens
    locked.app.store.run(revoke_token(token.id))
    expect(page.get_by_text("Your session is over")).to_be_visible()
    check(page)
    page.get_by_label("Token").fill(locked.make_token("admin"))
    locked_dashboard.button("Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("send_email")
    expect(page.get_by_label("to", exact=False).first).to_have_value("ada@example.com")
    locked_dashboard.button("Enqueue").click()
    expect(page.get_by_text("send_email is enqueued")).to_be_visible()
    locked_dashboard.forgive("401")


def test_a_bad_token_is_told(locked_dashboard, locked):
    """And can be typed again."""
    locked.app.store.run(new_token(name="x", scopes=["read"]).add())
    page = locked_dashboard.show("", "Sign in")
    page.get_by_label("Token").fill("rwl_nonsense")
    locked_dashboard.button("Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    check(page)
    locked_dashboard.forgive("401")


def test_on_postgresql(page, postgres_url):
    """The system tells of what only a server has; and every screen shows."""
    app = rowlock.App(postgres_url)
    with Running(app, is_open=True) as running:
        dashboard = Dashboard(page, running.address + "/", app)
        dead = fill(app)
        for path, heading in {**PATHS, f"jobs/{dead}": "kind"}.items():
            if path == "kinds/send_email":
                continue
            dashboard.show(path, heading)
            expect(page.locator(".bone")).to_have_count(0)
        dashboard.show("system", "System")
        expect(page.get_by_text("Oldest transaction")).to_be_visible()
        expect(page.get_by_text("Dead tuples")).to_be_visible()
        dashboard.leave()
