import assert from "node:assert/strict";
import { test } from "node:test";

import { attemptsOf, type Lived, steps } from "../src/timeline.ts";

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
  worker: null,
  errors: [],
};
const failure = (attempt: number, second: number, message = "no") => ({
  attempt,
  time: at(second),
  type: "ValueError",
  message,
  traceback: "",
});

function shown(job: Lived): string[] {
  return attemptsOf(job).map((each) => `${each.title} ${each.outcome}`);
}

test("a job that was claimed and given back has not begun an attempt", () => {
  assert.deepEqual(shown(READY), []);
  assert.deepEqual(shown({ ...READY, started_at: at(3), worker: "w" }), []);
  assert.deepEqual(
    steps({ ...READY, started_at: at(3) }).map((each) => each.title),
    ["Enqueued"],
  );
});

test("each attempt has its length, if it is known, and its worker", () => {
  const done = { state: "succeeded", attempt: 2, started_at: at(20), finished_at: at(25) };
  const [last, first] = attemptsOf({ ...READY, ...done, worker: "w", errors: [failure(1, 9)] });
  assert.deepEqual([last?.from, last?.to, last?.worker], [at(20), at(25), "w"]);
  assert.deepEqual([first?.outcome, first?.from, first?.to], ["failed", null, at(9)]);
});

test("the same error in a row is told once", () => {
  const errors = [failure(1, 1, "other"), failure(2, 9), failure(3, 19), failure(4, 29)];
  const dead = { ...READY, state: "dead", attempt: 4, started_at: at(28), finished_at: at(29) };
  assert.deepEqual(shown({ ...dead, errors }), ["Attempts 2 to 4 dead", "Attempt 1 failed"]);
  assert.equal(attemptsOf({ ...dead, errors })[0]!.times, 3);
});

test("the failed run that was the last has its beginning", () => {
  const retrying = { ...READY, state: "retrying", attempt: 1, started_at: at(2), worker: "w" };
  const [only] = attemptsOf({ ...retrying, errors: [failure(1, 5)] });
  assert.deepEqual([only?.from, only?.to, only?.worker], [at(2), at(5), "w"]);
});

test("turning points, and what lies ahead", () => {
  const titles = (job: Lived) => steps(job).map((each) => each.title);
  assert.deepEqual(titles({ ...READY, state: "scheduled", run_at: at(60) }), ["Enqueued", "Due"]);
  assert.deepEqual(titles({ ...READY, state: "retrying", attempt: 1, run_at: at(60) }), [
    "Enqueued",
    "Attempt 2 is due",
  ]);
  assert.deepEqual(titles({ ...READY, state: "dead", finished_at: at(9) }), [
    "Enqueued",
    "Given up",
  ]);
});
