import assert from "node:assert/strict";
import { test } from "node:test";

import { type Lived, steps } from "../src/timeline.ts";

function at(second: number): string {
  return new Date(Date.UTC(2030, 0, 1, 0, 0, second)).toISOString();
}

const READY: Lived = {
  state: "ready",
  attempt: 0,
  max_attempts: 3,
  created_at: at(0),
  run_at: at(0),
  started_at: null,
  finished_at: null,
  lease_expires_at: null,
  worker: null,
  errors: [],
};
const failure = (attempt: number, second: number) => ({
  attempt,
  time: at(second),
  type: "ValueError",
  message: "no\nsecond line",
});

function told(job: Lived): string[] {
  return steps(job).map((each) => each.title);
}

test("a job that waits has only begun", () => {
  assert.deepEqual(told(READY), ["Enqueued"]);
  assert.deepEqual(told({ ...READY, state: "scheduled", run_at: at(60) }), [
    "Enqueued",
    "It is due",
  ]);
});

test("waits and runs are told with their lengths", () => {
  const done = steps({
    ...READY,
    state: "succeeded",
    attempt: 1,
    started_at: at(2),
    finished_at: at(5),
    worker: "w",
  });

  assert.deepEqual(
    done.map((each) => [each.title, each.note]),
    [
      ["Enqueued", ""],
      ["Attempt 1 began", "after waiting 2 s, on w"],
      ["Succeeded", "after running 3 s"],
    ],
  );
});

test("failures are in their places, by the first line of their message", () => {
  const retrying = {
    ...READY,
    state: "retrying",
    attempt: 2,
    started_at: at(9),
    run_at: at(20),
    errors: [failure(1, 3), failure(2, 10)],
  };
  const dead = {
    ...retrying,
    state: "dead",
    attempt: 3,
    finished_at: at(30),
    errors: [...retrying.errors, failure(3, 30)],
  };

  assert.deepEqual(told(retrying), [
    "Enqueued",
    "Attempt 1 failed",
    "Attempt 2 failed",
    "Attempt 3 is due",
  ]);
  assert.equal(steps(retrying)[1]!.note, "ValueError: no");
  assert.deepEqual(told(dead).slice(-2), ["Attempt 3 failed", "Given up"]);
});

test("a job that runs again after a failure shows both", () => {
  const running = {
    ...READY,
    state: "running",
    attempt: 2,
    started_at: at(9),
    errors: [failure(1, 3)],
    worker: "w",
  };
  assert.deepEqual(told(running), ["Enqueued", "Attempt 1 failed", "Attempt 2 began"]);
});
