import assert from "node:assert/strict";
import { test } from "node:test";

import { findings, inSlots, type QueueFacts } from "../src/health.ts";

function queue(changes: Partial<QueueFacts> = {}, ready = 0): QueueFacts {
  const none = { value: 0, exact: true };
  return {
    queue: "mail",
    is_paused: false,
    oldest_ready_seconds: null,
    counts: { ready: { value: ready, exact: true }, retrying: none },
    ...changes,
  };
}

const GOOD = { succeeded: 1000, retrying: 3, dead: 0 };

test("nothing to say where all is well", () => {
  assert.deepEqual(findings({ queues: [queue()], workers: 2, runs: GOOD }), []);
  assert.deepEqual(findings({ queues: [], workers: undefined, runs: undefined }), []);
});

test("no worker is urgent only if somebody waits for one", () => {
  const idle = findings({ queues: [queue()], workers: 0, runs: GOOD });
  const waiting = findings({ queues: [queue({}, 3)], workers: 0, runs: GOOD });

  assert.deepEqual(
    idle.map((each) => [each.level, each.text]),
    [["warn", "No worker is running"]],
  );
  assert.deepEqual(
    waiting.map((each) => [each.level, each.text]),
    [["bad", "No worker is running, and 3 jobs wait"]],
  );
});

test("old jobs, paused queues and failures are told, the worst first", () => {
  const found = findings({
    queues: [
      queue({ oldest_ready_seconds: 90 }, 5),
      queue({ queue: "images", oldest_ready_seconds: 3600 }, 5),
      queue({ queue: "slow", is_paused: true, oldest_ready_seconds: 9999 }, 7),
    ],
    workers: 1,
    runs: { succeeded: 50, retrying: 30, dead: 20 },
  });

  assert.deepEqual(
    found.map((each) => each.level),
    ["bad", "bad", "warn", "warn", "warn"],
  );
  assert.equal(found[0]!.text, "The oldest ready job of images has waited 1 h");
  assert.equal(found[1]!.text, "50% of all runs failed");
  assert.ok(
    found.some((each) => each.text.includes("slow is paused, and 7 of its jobs are ready")),
  );
});

test("of two things that are urgent, the one further beyond the usual comes first", () => {
  const old = (name: string, seconds: number) =>
    queue({ queue: name, oldest_ready_seconds: seconds }, 5);
  const found = findings({
    queues: [old("mail", 900), old("images", 7200)],
    workers: 0,
    runs: { succeeded: 40, retrying: 60, dead: 0 },
  });
  assert.deepEqual(
    found.map((each) => each.text),
    [
      "No worker is running, and 10 jobs wait",
      "The oldest ready job of images has waited 2 h",
      "The oldest ready job of mail has waited 15 min",
      "60% of all runs failed",
    ],
  );
});

test("a few failed runs of a few are no reason to worry", () => {
  assert.deepEqual(
    findings({ queues: [], workers: 1, runs: { succeeded: 3, retrying: 2, dead: 0 } }),
    [],
  );
});

test("jobs that a worker holds ahead of a slot don't run", () => {
  const workers = [
    { slots: 10, ahead: 5 },
    { slots: 10, ahead: 2 },
  ];
  assert.deepEqual(inSlots(27, workers), { running: 20, ahead: 7, slots: 20 });
  assert.deepEqual(inSlots(3, workers), { running: 0, ahead: 3, slots: 20 });
  assert.deepEqual(inSlots(40, workers), { running: 20, ahead: 20, slots: 20 });
  assert.deepEqual(inSlots(3, [{ slots: null, ahead: null }]), { running: 3, ahead: 0, slots: 0 });
});
