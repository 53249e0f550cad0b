"""Each action, by clicking; its effect is checked through the store."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from rowlock import config
from rowlock.job import JobState
from rowlock.store.ops.limit_info import list_limits
from rowlock.store.ops.tokens import list_tokens
from rowlock.store.options import new_job
from tests.dashboard.conftest import make_app
from tests.dashboard.screens import Dashboard, enqueue, job_of, kill, start, wait_for
from tests.support.limits import declare, put
from tests.support.server import Running
from tests.support.states import settle

BIG = 123456789012345678901234567890


def state_of(dashboard: Dashboard, id: str) -> JobState:
    return job_of(dashboard.app, id).state


def test_cancel_and_take_it_back(dashboard):
    """A job that waits is cancelled at once; undo makes it ready again."""
    job = enqueue(dashboard.app)
    page = dashboard.show_job(job)
    dashboard.button("Cancel").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("cancelled")

    assert state_of(dashboard, job.id) == JobState.CANCELLED
    dashboard.button("Undo").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("ready")
    assert state_of(dashboard, job.id) == JobState.READY


def test_cancel_of_a_running_job_asks_its_worker(dashboard):
    """The button says that it stops; the job runs on until its worker heeds it."""
    lease = start(dashboard.app)
    page = dashboard.show_job(lease)
    dashboard.button("Cancel").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("stopping")

    assert job_of(dashboard.app, lease.id).cancel_requested
    expect(dashboard.button("Stopping")).to_be_disabled()


def test_retry(dashboard):
    """A dead job is ready again, its error still there to be read."""
    job = kill(dashboard.app, ValueError("no such address"))
    page = dashboard.show_job(job)
    expect(page.locator(".error-title")).to_have_text("ValueError no such address")
    dashboard.button("Retry").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("ready")

    assert state_of(dashboard, job.id) == JobState.READY


def test_retry_with_an_edited_payload(dashboard):
    """What is no JSON can't be sent; what does not fit the task is refused by name; the rest goes,
    with every digit of its integers."""
    job = kill(dashboard.app, payload=f'{{"to": "ada@example.com", "copies": {BIG}}}')
    page = dashboard.show_job(job)
    expect(page.locator(".json-number")).to_have_text(str(BIG))
    dashboard.button("Edit and retry").click()
    editor = page.get_by_role("textbox", name="Payload")
    send = dashboard.button("Retry with this")

    editor.fill("{")
    expect(page.get_by_text("The text ends too early, in line 1")).to_be_visible()
    expect(send).to_be_disabled()
    editor.fill('{"subject": 7}')
    send.click()
    expect(page.get_by_role("alert")).to_contain_text("payload.to")
    assert state_of(dashboard, job.id) == JobState.DEAD
    dashboard.forgive("422")

    editor.fill(f'{{"to": "grace@example.com", "copies": {BIG + 1}}}')
    send.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("ready")
    assert job_of(dashboard.app, job.id).payload == {"to": "grace@example.com", "copies": BIG + 1}


@pytest.mark.parametrize("state", ["scheduled", "retrying"])
def test_a_cancel_that_undo_would_not_restore_has_none(dashboard, state):
    """A retry makes a job due now, with all of its attempts: mails of next month would go out."""
    if state == "scheduled":
        job = enqueue(dashboard.app, delay=3600)
    else:
        job = start(dashboard.app)
        dashboard.app.store.fail(job, "again later", delay=3600)
    page = dashboard.show_job(job)
    dashboard.button("Cancel").click()
    expect(page.get_by_text("send_email is cancelled")).to_be_visible()

    expect(dashboard.button("Undo")).to_have_count(0)
    assert state_of(dashboard, job.id) == JobState.CANCELLED


def test_delete_asks_and_a_reload_is_no_answer(dashboard):
    """Nothing is deleted until the question is answered."""
    job = kill(dashboard.app)
    page = dashboard.show_job(job)
    dashboard.button("Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("can't be undone")
    dashboard.button("Not now").click()
    dashboard.button("Delete").click()
    page.reload()
    expect(dashboard.button("Delete")).to_be_visible()
    assert dashboard.app.get(job.id) is not None

    dashboard.button("Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("send_email is deleted")).to_be_visible()
    assert dashboard.app.get(job.id) is None
    expect(page.get_by_text("There is no such job")).to_be_visible()
    dashboard.forgive("404")


def test_jobs_are_run_now_later_elsewhere_and_again(dashboard):
    """One by one: each does what its button says."""
    app = dashboard.app
    job = enqueue(app, delay=3600)
    page = dashboard.show_job(job)
    dashboard.button("Move").click()
    dashboard.button("Reschedule").click()
    page.get_by_label("When").fill("soon")
    expect(page.get_by_text("Write how long from now")).to_be_visible()
    page.get_by_label("When").fill("2d")
    page.get_by_role("dialog").get_by_role("button", name="Reschedule").click()
    expect(page.get_by_text("send_email is rescheduled")).to_be_visible()
    assert job_of(app, job.id).run_at - job.run_at > timedelta(days=1)

    dashboard.button("Move").click()
    dashboard.button("Move to a queue").click()
    page.get_by_label("Queue", exact=True).fill("slow")
    page.get_by_role("dialog").get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_text("send_email is moved")).to_be_visible()
    assert job_of(app, job.id).queue == "slow"

    dashboard.button("Run now").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("ready")
    (lease,) = app.store.claim(worker="w", queues=["slow"])
    app.store.succeed([lease], [None])
    expect(page.get_by_role("heading", level=1)).to_contain_text("succeeded")
    dashboard.button("Run again").click()
    page.get_by_role("link", name="Show").click()
    expect(page.get_by_text(job.id)).to_have_count(1)
    assert len(app.list(state="ready").jobs) == 1


def test_copy_as_curl_and_python(dashboard):
    """Both make the same job again; the token is left out."""
    job = enqueue(dashboard.app, payload=f'{{"to": "a\'b", "copies": {BIG}}}')
    page = dashboard.show_job(job)
    dashboard.button("Copy").click()
    dashboard.button("as curl").click()
    expect(page.get_by_text("Copied: a curl command")).to_be_visible()
    curl = page.evaluate("navigator.clipboard.readText()")
    dashboard.button("Copy").click()
    dashboard.button("as Python").click()
    expect(page.get_by_text("Copied: Python")).to_be_visible()
    python = page.evaluate("navigator.clipboard.readText()")

    assert curl.startswith(f"curl '{dashboard.address}v1/jobs'") and str(BIG) in curl
    assert f'"copies": {BIG}' in python and 'queue="mail"' in python


def test_a_running_job_is_followed_live(dashboard):
    """Its progress, its log lines and its end come without a reload."""
    app = dashboard.app
    lease = start(app)
    page = dashboard.show_job(lease)
    expect(page.get_by_text("Nothing is logged yet")).to_be_visible()
    app.store.progress(lease, fraction=0.25, text="a quarter")
    expect(page.get_by_role("progressbar", name="Progress")).to_have_attribute(
        "aria-valuenow", "25"
    )
    app.store.log(lease, ["first line"])
    expect(page.get_by_text("first line")).to_be_visible()
    app.store.succeed([lease], [{"n": BIG}])
    expect(page.get_by_role("heading", level=1)).to_contain_text("succeeded")
    expect(page.locator(".json-number")).to_have_text(str(BIG))


def test_why_it_does_not_run(dashboard):
    """And by what it was followed, once it did."""
    app = dashboard.app
    app.pause("mail")
    job = enqueue(app)
    page = dashboard.show_job(job)
    expect(page.locator(".why")).to_contain_text("paused")
    app.resume("mail")
    (lease,) = app.store.claim(worker="w", queues=["mail"])
    follow_up = new_job(kind="report", payload='{"month": "May"}', queue="reports")
    settle(app, lease, follow_ups=[follow_up])
    page.get_by_role("link", name=re.compile("report …")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("report")
    expect(page.get_by_role("link", name=re.compile("send_email …"))).to_be_visible()


def test_filters_are_in_the_address(dashboard):
    """Typed or chosen; and an address shows what it says."""
    kill(dashboard.app, ConnectionError("refused"))
    kill(dashboard.app, ValueError("bad"), kind="report", payload='{"month": "May"}')
    page = dashboard.show("jobs", "Jobs")
    rows = page.locator("tr[data-id]")
    expect(rows).to_have_count(2)
    page.get_by_role("searchbox").fill("kind:send_email REFUSED")
    expect(rows).to_have_count(1)
    expect(page.get_by_text("1 job matches.")).to_be_visible()
    assert "kind=send_email&error=REFUSED" in page.url

    dashboard.show("jobs?state=dead&kind=report")
    expect(rows).to_have_count(1)
    expect(page.get_by_role("searchbox")).to_have_value("state:dead kind:report")
    page.get_by_label("Kind").select_option("")
    expect(rows).to_have_count(2)
    page.get_by_role("link", name="running").click()
    expect(page.get_by_text("There are no running jobs.")).to_be_visible()


def test_filters_that_are_not_understood_list_nothing(dashboard):
    """They are refused in red, with a hint, also after a reload; completion writes good ones."""
    kill(dashboard.app)
    enqueue(dashboard.app)
    enqueue(dashboard.app, delay=3600)
    page = dashboard.show("jobs", "Jobs")
    rows, box = page.locator("tr[data-id]"), page.get_by_role("searchbox")
    expect(rows).to_have_count(3)
    box.fill("state:deaad")
    expect(page.get_by_role("alert")).to_have_text("deaad is not a state. Did you mean dead?")
    expect(rows).to_have_count(0)
    page.reload()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(box).to_have_value("state:deaad")

    box.fill("state:sche")
    page.get_by_role("option", name="state:scheduled").click()
    expect(rows).to_have_count(1)
    box.fill("state:scheduled,dead")
    expect(rows).to_have_count(2)
    box.fill("-state:dead -kind:report")
    expect(rows).to_have_count(2)
    expect(page.get_by_text("Shown: jobs but not state dead but not kind report.")).to_be_visible()


def test_a_ticked_box_is_ticked(dashboard):
    """In the document as on the screen, by mouse and by keyboard."""
    enqueue(dashboard.app)
    page = dashboard.show("jobs", "Jobs")
    box = page.locator("tr[data-id] input")
    box.click()
    expect(page.locator("tr.chosen")).to_have_count(1)
    expect(box).to_be_checked()
    box.press("Space")
    expect(page.locator("tr.chosen")).to_have_count(0)
    expect(box).not_to_be_checked()


def test_limits_are_shown_set_paused_and_resumed(dashboard):
    """In total and of one key; bad numbers are refused where they were typed."""
    app = dashboard.app
    declare(app.store, "stripe", concurrency=5, per="customer", concurrency_per_key=1)
    put(app.store, "stripe", "acme", jobs=2)
    app.store.claim(worker="w", queues=["default"], limit=1)
    put(app.store, "stripe", "zoo")
    page = dashboard.show("limits", "Limits")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("1 of 5")
    dashboard.button("Set stripe").click()
    page.get_by_label("Running at once", exact=False).first.fill("0")
    dashboard.button("Set").click()
    expect(page.get_by_role("alert")).to_contain_text("concurrency")
    page.get_by_label("Running at once", exact=False).first.fill("7")
    dashboard.button("Set").click()
    expect(row).to_contain_text("1 of 7")
    expect(row).to_contain_text("set by hand")

    page.get_by_role("link", name="stripe").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("stripe")
    dashboard.button("Pause stripe for zoo").click()
    page.get_by_label("Why", exact=False).fill("they asked")
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(dashboard.button("Resume stripe for zoo")).to_be_visible()
    (found,) = app.store.run(list_limits(["stripe"]))
    assert (found.rules.concurrency, found.paused_keys.value) == (7, 1)
    dashboard.button("Resume stripe for zoo").click()
    expect(dashboard.button("Pause stripe for zoo")).to_be_visible()
    dashboard.forgive("422")


def test_some_are_selected_and_cancelled(dashboard):
    """By their boxes, a range of them with Shift; undo takes all of them back."""
    jobs = [enqueue(dashboard.app) for _ in range(5)]
    page = dashboard.show("jobs?state=ready", "Jobs")
    boxes = page.locator("tr[data-id] input")
    boxes.nth(0).click()
    boxes.nth(2).click(modifiers=["Shift"])
    expect(page.get_by_role("region", name="Selected jobs")).to_contain_text("3 selected")
    dashboard.button("Cancel").click()
    expect(page.get_by_text("3 jobs cancelled")).to_be_visible()

    states = [state_of(dashboard, job.id) for job in reversed(jobs)]
    assert states == [JobState.CANCELLED] * 3 + [JobState.READY] * 2
    dashboard.button("Undo").click()
    expect(page.get_by_text("3 jobs are ready again")).to_be_visible()
    assert {state_of(dashboard, job.id) for job in jobs} == {JobState.READY}


def test_all_that_match_are_retried(dashboard):
    """More than are loaded: with a count before, and progress until it is done."""
    app = dashboard.app
    app.store.enqueue([new_job(kind="send_email", payload="{}", queue="q") for _ in range(120)])
    for lease in app.store.claim(worker="w", queues=["q"], limit=120):
        app.store.fail(lease, "broken", permanent=True)
    kill(app, kind="report", payload='{"month": "May"}')
    page = dashboard.show("jobs?state=dead&kind=send_email", "Jobs")
    page.get_by_role("checkbox", name="Select all that are loaded").click()
    dashboard.button("Select all that match").click()
    dashboard.button("Retry").click()
    dashboard.button("Retry 120").click()
    expect(page.get_by_text("120 jobs of 120")).to_be_visible()

    counts = {queue.queue: queue.counts for queue in app.stats()}
    assert counts["q"][JobState.READY].value == 120
    assert counts["mail"][JobState.DEAD].value == 1


def test_endless_list(dashboard):
    """Scrolling loads what follows; only rows near the window exist."""
    new = [new_job(kind="send_email", payload="{}") for _ in range(400)]
    dashboard.app.store.enqueue(new)
    page = dashboard.show("jobs", "Jobs")
    expect(page.locator("tr[data-id]").first).to_be_visible()
    for _ in range(60):
        page.mouse.wheel(0, 3000)
        if page.get_by_text("400 jobs, and no more.").count():
            break
        page.wait_for_timeout(50)
    expect(page.get_by_text("400 jobs, and no more.")).to_be_visible()

    expect(page.locator(f"tr[data-id='{new[0].id}']")).to_be_visible()
    assert page.locator("tr[data-id]").count() < 120


@pytest.mark.parametrize("name", ["mail", "..", "~a/ü"])
def test_queues_are_paused_and_resumed(dashboard, name):
    """With a way back, whatever their names would mean in a path."""
    enqueue(dashboard.app, queue=name)
    page = dashboard.show("queues", "Queues")
    dashboard.button(f"Pause {name}").click()
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    assert dashboard.app.stats()[0].is_paused
    dashboard.button("Undo").click()
    expect(dashboard.button(f"Pause {name}")).to_be_visible()
    assert not dashboard.app.stats()[0].is_paused


def test_queues_beyond_a_page_are_shown(dashboard):
    """The screen follows the pages to the end."""
    number = config.HTTP_LIST_LIMIT_MAX + 5
    dashboard.app.enqueue_many([{"kind": "x", "queue": f"q{each:03}"} for each in range(number)])
    page = dashboard.show("queues", "Queues")

    expect(page.get_by_role("button", name=re.compile("^Pause q"))).to_have_count(number)


def test_schedules_are_told_in_words_run_and_paused(dashboard):
    """A job now, and nothing any more until it is resumed."""
    app = dashboard.app
    app.schedule("weekly", "report", cron="30 9 * * 1", payload={"month": "May"})
    page = dashboard.show("schedules", "Schedules")
    expect(page.get_by_text("Every Monday at 09:30")).to_be_visible()
    dashboard.button("Run now: weekly").click()
    page.get_by_role("link", name="Show").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("report")
    assert app.list(kind="report", full=True).jobs[0].payload == {"month": "May"}

    dashboard.show("schedules", "Schedules")
    dashboard.button("Pause weekly").click()
    expect(dashboard.button("Resume weekly")).to_be_visible()
    assert next(iter(app.store.list_schedules())).is_paused


def test_a_form_is_made_from_the_schema(dashboard):
    """Bad fields are told at their places; a good one is a job."""
    page = dashboard.show("kinds/send_email", "send_email")
    page.get_by_label("to", exact=False).first.fill("ada@example.com")
    page.get_by_label("copies").fill("many")
    dashboard.button("Enqueue").click()
    expect(page.get_by_text("Must be an integer.")).to_be_visible()
    page.get_by_label("copies").fill(str(BIG))
    page.get_by_text("Queue, key, delay").click()
    page.get_by_label("key", exact=True).fill("k-1")
    dashboard.button("Enqueue").click()
    expect(page.get_by_text("send_email is enqueued")).to_be_visible()

    (job,) = dashboard.app.list(full=True).jobs
    assert (
        {"subject": "", **job.payload}, job.key,
    ) == ({"to": "ada@example.com", "copies": BIG, "subject": ""}, "k-1")  # fmt: skip


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_dead_letters_by_group(page, request, store):
    """What died of the same is retried, at a chosen rate, or deleted; the others stay."""
    app = make_app(request.getfixturevalue(f"{store}_url"))
    with Running(app, is_open=True) as running:
        dashboard = Dashboard(page, running.address + "/", app)
        for number in range(3):
            kill(app, ConnectionError(f"refused {number}"))
        kill(app, ValueError("bad"), kind="report", payload='{"month": "May"}')
        dashboard.show("dead", "Dead letters")
        groups = page.locator(".group")
        expect(groups).to_have_count(2)
        dashboard.button("Retry ConnectionError in send_email").click()
        page.get_by_label("How fast").select_option("100")
        dashboard.button("Retry 3").click()
        expect(page.get_by_text("3 jobs of 3")).to_be_visible()
        expect(groups).to_have_count(1)
        assert len(app.list(state="ready").jobs) == 3

        dashboard.button("Delete ValueError in report").click()
        dashboard.button("Delete 1").click()
        expect(page.get_by_text("1 job of 1")).to_be_visible()
        wait_for(page, lambda: not app.list(state="dead").jobs)
        dashboard.leave()


def test_tokens_are_made_and_revoked(dashboard):
    """One that is made is shown once. One that is revoked is struck off."""
    page = dashboard.show("system", "System")
    dashboard.button("New token").click()
    page.get_by_label("Name").fill("operator")
    dashboard.button("Make it").click()
    token = page.locator("dialog code").inner_text()
    dashboard.button("Done").click()
    expect(page.get_by_text("token.create")).to_be_visible()
    expect(page.get_by_text("never used")).to_be_visible()
    assert token.startswith("rwl_")
    (found,) = dashboard.app.store.run(list_tokens()).tokens
    assert (found.name, list(found.scopes)) == ("operator", ["read"])

    dashboard.button("Revoke operator").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("operator is revoked")).to_be_visible()
    (found,) = dashboard.app.store.run(list_tokens()).tokens
    assert found.revoked_at is not None
