"""`/v1/kinds`, `/v1/workers`, `/v1/system`, `/v1/tokens`, `/v1/audit`."""

from __future__ import annotations

import jsonschema
import psycopg
import pytest

import rowlock
from rowlock.job import QueueSlots, WorkerVitals
from rowlock.store.ops.hold import announce


def test_kinds_are_paged(api):
    """In the order of their names, with those of the app among them, each counted once."""
    names = [f"k{number}" for number in range(20)] + ["é", "Z", "z"]
    for worker in ("a", "b"):
        api.app.store.announce(worker=worker, queues=[], kinds=names, host="h", pid=1)
    found: list[tuple[str, int]] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        query = {"limit": 7} if cursor is None else {"limit": 7, "cursor": cursor}
        page = api("enqueue").get("/v1/kinds", params=query).json()
        found += [(each["kind"], each["workers"]) for each in page["kinds"]]
        cursor, pages = page["next"], pages + 1

    assert found == sorted([*((name, 2) for name in names), ("order", 0), ("send_email", 0)])
    assert pages == 4


def test_kinds_are_those_of_workers_that_a_tenant_may_use(api):
    """What another tenant's workers announce is theirs."""
    for worker, kind in (("w", "all"), ("tenant:acme/w", "ours"), ("tenant:zoo/w", "theirs")):
        api.app.store.announce(worker=worker, queues=[], kinds=[kind], host="h", pid=1)
    seen = {
        tenant: {
            each["kind"] for each in api("read", tenant=tenant).get("/v1/kinds").json()["kinds"]
        }
        - {"order", "send_email"}
        for tenant in (None, "acme")
    }

    assert seen == {None: {"all", "ours", "theirs"}, "acme": {"all", "ours"}}


def test_kinds_have_schemas(api):
    """Of the server's own tasks; workers tell the names of others."""
    api.app.store.announce(
        worker="w", queues=[], kinds=["send_email", "elsewhere"], host="h", pid=1
    )
    kinds = {kind["kind"]: kind for kind in api("enqueue").get("/v1/kinds").json()["kinds"]}

    assert kinds.keys() == {"send_email", "order", "elsewhere"}
    assert tuple(kinds["send_email"][name] for name in ("queue", "max_attempts", "workers")) == (
        "mail",
        5,
        1,
    )
    assert tuple(kinds["elsewhere"][name] for name in ("is_known", "schema", "workers")) == (
        False,
        None,
        1,
    )
    jsonschema.validate({"items": [{"name": "a", "count": 2}]}, kinds["order"]["schema"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"items": [{"count": 0}]}, kinds["order"]["schema"])


def test_workers_and_what_they_run(api):
    """As `app.workers`."""
    job = api.app.enqueue("big")
    api.app.store.announce(worker="w", queues=["mail"], kinds=["big"], host="h", pid=7)
    api.app.store.claim(worker="w", queues=["default"])
    (worker,) = api("read").get("/v1/workers").json()["workers"]

    assert tuple(worker[name] for name in ("id", "host", "pid", "queues", "kinds", "running")) == (
        "w",
        "h",
        7,
        ["mail"],
        ["big"],
        [job.id],
    )


def test_workers_tell_how_they_do(api):
    """Slots, memory and lost leases; null of one that does not tell."""
    queues = {"mail": QueueSlots(slots=20, busy=3)}
    vitals = WorkerVitals(slots=50, busy=7, ahead=9, queue_slots=queues, memory_bytes=2**30, lost=2)
    op = announce(worker="a", queues=[], kinds=[], host="h", pid=7, vitals=vitals)
    api.app.store.run(op)
    api.app.store.announce(worker="b", queues=[], kinds=[], host="h", pid=8)
    told = api("read").get("/v1/workers").json()["workers"]

    names = ("slots", "busy", "ahead", "queue_slots", "memory_bytes", "lost")
    first = (50, 7, 9, {"mail": {"slots": 20, "busy": 3}}, 2**30, 2)
    assert [tuple(each[name] for name in names) for each in told] == [
        first,
        (None, None, None, {}, None, None),
    ]


def test_who_asks(api):
    """By name, tenant and scopes, with those that `admin` implies; never by its secret."""
    admin, reader = api().get("/v1/me").json(), api("read", tenant="acme").get("/v1/me").json()

    assert (admin["tenant"], admin["scopes"]) == (None, ["enqueue", "read", "work", "admin"])
    assert (reader["tenant"], reader["scopes"], reader["name"]) == ("acme", ["read"], "read")
    assert api.tokens["read", "acme"].split("_")[1] == reader["token_id"]
    assert not admin["is_open"] and rowlock.__version__ == admin["version"]
    assert api.client().get("/v1/me").status_code == 401


def test_the_system(api):
    """What runs on what; neither a path nor an address of the database."""
    answer = api("read").get("/v1/system")
    system = answer.json()
    dialect = "sqlite" if api.app.url.startswith("sqlite") else "postgres"

    assert (system["version"], system["store"]) == (rowlock.__version__, dialect)
    assert (system["is_open"], system["schema"]) == (False, "rowlock")
    assert system["migration"] >= 1 and system["now"].endswith("Z")
    assert "rowlock.db" not in answer.text and "127.0.0.1" not in answer.text


def test_how_the_database_does(api):
    """Size and migrations on both; what only PostgreSQL has is null on SQLite, and its log not."""
    job = api.app.enqueue("big")
    api.app.store.claim(worker="w", queues=["default"], lease=0.001)
    system = api("read").get("/v1/system").json()
    is_sqlite = api.app.url.startswith("sqlite")

    assert system["size_bytes"] > 10_000
    assert [each["is_applied"] for each in system["migrations"]] == [True] * system["migration"]
    assert system["migrations"][0]["name"] == "schema"
    assert is_sqlite == (system["wal_bytes"] is not None) == (system["connections"] is None)
    assert is_sqlite == (system["dead_tuples"] is None)
    assert job.id and system["expired_leases"]["count"] in (0, 1)
    if not is_sqlite:
        assert 0 < system["connections"]["used"] <= system["connections"]["limit"]


def test_who_holds_the_oldest_transaction(api):
    """By process, user and state; not by its query."""
    if api.app.url.startswith("sqlite"):
        assert api("read").get("/v1/system").json()["oldest_transaction"] is None
        return
    with psycopg.connect(api.app.url, application_name="holder") as connection:
        connection.execute("SELECT 'a secret' FROM rowlock.job")
        answer = api("read").get("/v1/system")
    found = answer.json()["oldest_transaction"]

    assert (found["application"], found["state"]) == ("holder", "idle in transaction")
    assert "secret" not in answer.text


def test_a_token_is_made_and_revoked(api):
    """Its text is shown this once; it works until it is revoked, and not a moment longer."""
    made = api().post("/v1/tokens", json={"name": "ci", "scopes": ["enqueue"], "expires": 60})
    client = api.client(made.json()["token"])
    used = client.post("/v1/jobs", json={"kind": "big"})
    listed = api().get("/v1/tokens")
    revoked = api().delete(f"/v1/tokens/{made.json()['id']}")
    after = client.post("/v1/jobs", json={"kind": "big"})

    assert (
        made.status_code,
        used.status_code,
        revoked.status_code,
        after.status_code,
    ) == (201, 201, 204, 401)
    assert made.json()["expires_at"] is not None
    assert made.json()["token"] not in listed.text and made.json()["id"] in listed.text
    assert api().delete("/v1/tokens/nobody").status_code == 404


def test_a_tenants_admin_makes_tokens_of_it(api):
    """And of no other; what it makes reaches no further."""
    acme = api("admin", tenant="acme")
    made = acme.post("/v1/tokens", json={"name": "own", "scopes": ["admin"]})
    other = acme.post("/v1/tokens", json={"name": "x", "scopes": ["read"], "tenant": "zoo"})
    inner = api.client(made.json()["token"])

    assert (made.status_code, made.json()["tenant"], other.status_code) == (201, "acme", 403)
    assert inner.get("/v1/system").status_code == 403
    assert {token["tenant"] for token in inner.get("/v1/tokens").json()["tokens"]} == {"acme"}


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["root"]},
        {"name": "", "scopes": ["read"]},
        {"name": "x", "scopes": ["read"], "expires": 0},
        {"name": "x"},
    ],
)
def test_bad_tokens_are_not_made(api, body):
    """422."""
    assert api().post("/v1/tokens", json=body).status_code == 422


def test_the_audit_is_paged(api):
    """Newest first; a tenant's admin sees what was done in that tenant."""
    for queue in ("a", "b", "c"):
        api().post(f"/v1/queues/{queue}/pause")
    job = api.app.enqueue("big", tenant="acme")
    api("admin", tenant="acme").post(f"/v1/jobs/{job.id}/cancel")
    first = api().get("/v1/audit?limit=2").json()
    rest = api().get(f"/v1/audit?limit=2&cursor={first['next']}").json()
    own = api("admin", tenant="acme").get("/v1/audit").json()

    assert [entry["target"] for entry in first["entries"] + rest["entries"]] == [
        job.id,
        "c",
        "b",
        "a",
    ]
    assert [entry["action"] for entry in own["entries"]] == ["job.cancel"]
    assert api().get("/v1/audit?cursor=x").status_code == 422
