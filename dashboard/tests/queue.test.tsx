import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { answers, asked, until } from "./dom.ts";

import { type ComponentChildren, render } from "preact";

import { replace } from "../src/router.ts";
import { QueueScreen } from "../src/screens/queue.tsx";
import { TenantScreen } from "../src/screens/tenant.tsx";
import { enter, type Me } from "../src/session.ts";

const place = document.createElement("div");
document.body.append(place);

function show(content: ComponentChildren): void {
  render(content, place);
}

afterEach(() => show(null));

const exact = (value: number) => ({ value, exact: true });
const NONE = Object.fromEntries(
  "waiting scheduled ready running retrying succeeded dead cancelled"
    .split(" ")
    .map((state) => [state, exact(0)]),
);
const TIMES = { count: 3, mean: 1, p50: 1, p95: 2, p99: 2, buckets: [] };

/** A stretch of two steps in which nothing is drawn: charts need a real document. */
function history(kind: string | null) {
  const none = [null, null];
  const runs = [0, 0];
  const total = { succeeded: 3, retrying: 1, dead: 0, cancelled: 0, released: 0 };
  return {
    times: ["2030-01-01T00:00:00Z", "2030-01-01T00:01:00Z"],
    step: 60,
    by: "all",
    is_cut: false,
    depths: [],
    series: [
      {
        queue: null,
        kind,
        total: { ...total, run: TIMES, wait: TIMES },
        ...Object.fromEntries(Object.keys(total).map((each) => [each, runs])),
        ...Object.fromEntries(
          ["run", "wait"].flatMap((of) => ["50", "95", "99"].map((at) => [`${of}_p${at}`, none])),
        ),
      },
    ],
  };
}

function serve(): void {
  enter({ name: "x", tenant: null, scopes: ["read", "admin"], token_id: null } as unknown as Me);
  const beat = new Date().toISOString();
  const worker = { id: "w", host: "web-1", pid: 1, kinds: [], running: [], last_beat_at: beat };
  answers.set("v1/queues", {
    queues: [
      {
        queue: "mail",
        is_paused: false,
        oldest_ready_seconds: 700,
        counts: { ...NONE, ready: exact(5), running: exact(2) },
      },
    ],
    next: null,
  });
  answers.set("v1/workers", {
    workers: [
      {
        ...worker,
        queues: ["mail"],
        slots: 8,
        busy: 4,
        queue_slots: { mail: { slots: 3, busy: 2 } },
      },
      { ...worker, id: "v", queues: ["other"], slots: 9, busy: 9, queue_slots: {} },
    ],
    next: null,
  });
  answers.set("v1/jobs", { jobs: [{ limit: "stripe" }, { limit: null }], next: null });
  const limit = { running: exact(2), waiting: exact(7), is_paused: false };
  answers.set("v1/limits", {
    limits: [
      { ...limit, name: "stripe", rules: { concurrency: 2 } },
      { ...limit, name: "other", rules: { concurrency: 1 } },
    ],
    next: null,
  });
  answers.set("v1/history", history("send_email"));
  asked.length = 0;
}

test("a queue shows its own slots, the limits of its jobs, and asks for its history", async () => {
  serve();
  replace("#/queues/mail?range=7d");
  show(<QueueScreen name="mail" />);
  await until(() => /stripe/.test(place.textContent ?? ""));
  await until(() => /send_email/.test(place.textContent ?? ""));
  const text = place.textContent ?? "";
  assert.match(text, /of 3 slots/);
  assert.match(text, /2 of 2 running7 waiting/);
  assert.doesNotMatch(text, /other/);
  assert.match(text, /11 min 40 s/);
  const queries = asked
    .filter((each) => each.startsWith("v1/history"))
    .map((each) => new URLSearchParams(each.split("?")[1]));
  assert.deepEqual(
    queries.map((each) => [each.get("queue"), each.get("range"), each.get("by")]),
    [
      ["mail", "7d", null],
      ["mail", "7d", "kind"],
    ],
  );
});

test("a queue that is not there says so", async () => {
  serve();
  answers.set("v1/queues", { queues: [], next: null });
  show(<QueueScreen name="gone" />);
  await until(() => /There is no such queue/.test(place.textContent ?? ""));
});

test("a tenant has its jobs counted by state", async () => {
  serve();
  answers.set("v1/jobs", { jobs: [], next: null });
  answers.set("v1/jobs/count", { value: 10_000, exact: false });
  answers.set("v1/workflows", { workflows: [], next: null });
  show(<TenantScreen tenant="acme" />);
  await until(() => place.querySelectorAll(".tile").length === 8);
  assert.match(place.textContent ?? "", /10,000\+/);
  assert.ok(asked.filter((each) => each.includes("tenant=acme")).length >= 8);
});
