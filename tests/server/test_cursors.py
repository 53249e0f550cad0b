"""Cursors are opaque, bound to their list and tenant, and can't be made by anybody else."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from rowlock import config
from rowlock.errors import OptionInvalid
from rowlock.server.cursors import CursorSeal
from rowlock.store.ops.look import worker_page
from rowlock.store.ops.schedule import new_schedule
from rowlock.store.options import new_job
from rowlock.tokens import read_secret
from tests.support.server import Running, make_app

SEAL = CursorSeal(b"k" * 32)


def decoded(cursor: str) -> bytes:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))


@pytest.mark.parametrize("place", ["12345.6", "株" * 200, "z" * 32, "z" * 33])
def test_a_place_is_found_again(place: str):
    """Only with the same key, and for what it was bound to. It can't be read from the cursor."""
    cursor = SEAL.close(place, "list", "acme")

    assert SEAL.open(cursor, "list", "acme") == place
    assert cursor == SEAL.close(place, "list", "acme")
    assert place.encode() not in decoded(cursor)
    for seal, bound in ((SEAL, ("list", "zoo")), (CursorSeal(b"j" * 32), ("list", "acme"))):
        with pytest.raises(OptionInvalid, match="cursor"):
            seal.open(cursor, *bound)


def test_a_changed_cursor_is_refused():
    """Whichever bit is changed, and whatever is cut off or added."""
    cursor = SEAL.close("018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a", "list")
    raw = decoded(cursor)
    changed = [raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :] for at in range(len(raw))]
    for other in (*changed, raw[:-1], raw + b"x", raw[:16], raw[16:], b""):
        text = base64.urlsafe_b64encode(other).decode().rstrip("=")
        with pytest.raises(OptionInvalid):
            SEAL.open(text, "list")
    for text in ("株", "a b", cursor + "!", cursor[:-1]):
        with pytest.raises(OptionInvalid):
            SEAL.open(text, "list")


def test_a_key_is_not_shown():
    """Neither in a log nor in a traceback."""
    assert repr(SEAL) == "CursorSeal()"


def test_a_page_that_stops_at_another_tenants_row_does_not_name_it(api: Running):
    """A bounded read may end anywhere. The next page goes on from there."""
    own = api.app.enqueue("big", tenant="acme")
    others = api.app.enqueue_many([{"kind": "big", "tenant": "zoo"}] * config.PAGE_SCAN_ROWS_MAX)
    read = api("read", tenant="acme")
    first = read.get("/v1/jobs").json()
    second = read.get("/v1/jobs", params={"cursor": first["next"]}).json()

    assert first["jobs"] == []
    assert [job["id"] for job in second["jobs"]] == [own.id]
    # The whole time of their ids would already tell of them.
    assert str(others[0].id)[:13].encode() not in decoded(first["next"])
    assert str(others[0].id)[:13] not in first["next"]


def pages(api: Running, path: str, *, tenant: str | None = "acme") -> str:
    """The cursor of the first page of a list."""
    page = api("admin", tenant=tenant).get(path, params={"limit": 1}).json()
    assert page["next"] is not None
    return str(page["next"])


def filled(api: Running) -> None:
    """Two of everything that is listed by tenant, of two tenants."""
    for tenant in ("acme", "zoo"):
        for number in range(2):
            job = api.app.enqueue("big", tenant=tenant)
            api("admin", tenant=tenant).post(f"/v1/jobs/{job.id}/cancel")
            new = new_job(kind="big", payload="{}", tenant=tenant)
            api.app.store.put_schedule(new_schedule(f"{tenant}-{number}", new, cron="@daily"))


def test_a_cursor_is_refused_elsewhere(api: Running):
    """For another tenant, without a tenant, for another list or filter, and if it is made up."""
    filled(api)
    lists = ("/v1/jobs", "/v1/audit", "/v1/schedules")
    cursors = {path: pages(api, path) for path in lists}
    made_up = base64.urlsafe_b64encode(b'["018f3c5e-7c1a-7000-8000-3f6c1d2e4b5a"]').decode()

    for path, cursor in cursors.items():
        asked = {"cursor": cursor}
        assert api("admin", tenant="acme").get(path, params=asked).status_code == 200
        refused = [
            api("admin", tenant="zoo").get(path, params=asked),
            api("admin").get(path, params=asked),
            *(api("admin", tenant="acme").get(other, params=asked) for other in {*lists} - {path}),
            api("admin", tenant="acme").get(path, params={"cursor": made_up}),
        ]
        assert [each.status_code for each in refused] == [422] * len(refused)
        assert {each.json()["errors"][0]["field"] for each in refused} == {"cursor"}
    filtered = {"cursor": cursors["/v1/jobs"], "state": "dead"}
    assert api("admin", tenant="acme").get("/v1/jobs", params=filtered).status_code == 422


def listed(api: Running, path: str, items: str, *, tenant: str | None = None) -> list[list[Any]]:
    """All pages of a list, of two items each."""
    found, cursor = [], None
    while True:
        query = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = api("admin", tenant=tenant).get(path, params=query).json()
        found.append(page[items])
        if (cursor := page["next"]) is None:
            return found


def test_queues_are_paged(api: Running):
    """By name, each once, of all tenants or of one."""
    for number in range(5):
        api.app.enqueue("big", queue=f"q{number}", tenant="acme")
    api.app.pause("paused")
    of_all, of_one = (listed(api, "/v1/queues", "queues", tenant=each) for each in (None, "acme"))

    assert [len(page) for page in of_all] == [2, 2, 2, 0]
    names = [each["queue"] for page in of_all for each in page]
    assert names == ["paused", *(f"q{number}" for number in range(5))]
    assert [each["queue"] for page in of_one for each in page] == names[1:]
    assert {each["counts"]["ready"]["value"] for page in of_one for each in page} == {1}


def test_workers_are_paged(api: Running):
    """By name, each once: those that announced themselves and those that only hold a lease."""
    for number in range(5):
        worker = f"w{number}"
        job = api.app.enqueue("big", queue=worker)
        if number % 2:
            api.app.store.announce(worker=worker, queues=[worker], kinds=["big"], host="h", pid=1)
        assert [each.id for each in api.app.store.claim(worker=worker, queues=[worker])] == [job.id]
    pages = listed(api, "/v1/workers", "workers")
    found = [each for page in pages for each in page]

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [each["id"] for each in found] == [f"w{number}" for number in range(5)]
    assert [len(each["running"]) for each in found] == [1] * 5
    assert [each["id"] for each in found] == [each.id for each in api.app.workers()]


def test_workers_with_very_many_leases_are_paged(api: Running, monkeypatch: pytest.MonkeyPatch):
    """A page ends where the bounded read of the leases did, and none is left out."""
    monkeypatch.setattr(config, "LIST_SCAN_ROWS_MAX", 3)
    for number in range(4):
        api.app.enqueue_many([{"kind": "big", "queue": f"w{number}"}] * 2)
        api.app.store.claim(worker=f"w{number}", queues=[f"w{number}"], limit=2)
    found, after = [], ""
    while True:
        page = api.app.store.run(worker_page(after=after, limit=10))
        found += [each.id for each in page.workers]
        if page.next is None:
            break
        after = page.next

    assert found == ["w0", "w1", "w2", "w3"]


def test_tokens_are_paged(api: Running):
    """Newest first, each once, also those that were made at the same time."""
    made = {read_secret(api.make_token("read", tenant="paged")).id for _ in range(5)}
    found = [each["id"] for page in listed(api, "/v1/tokens", "tokens") for each in page]

    assert len(found) == len({*found}) == len({*found} | made)
    assert {*found[:5]} == made


def test_another_server_accepts_a_cursor(api: Running):
    """All servers of a database have the same key, also those that start later."""
    filled(api)
    cursor = pages(api, "/v1/jobs")
    with Running(make_app(api.app.url)) as second:
        answer = second.client(api.tokens["admin", "acme"]).get(f"/v1/jobs?cursor={cursor}")

    assert (answer.status_code, len(answer.json()["jobs"])) == (200, 1)
