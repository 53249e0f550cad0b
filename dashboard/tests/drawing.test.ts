import assert from "node:assert/strict";
import { test } from "node:test";

import { countLabels, DURATION_STEPS, durationLabels, rateLabels } from "../src/axis.ts";
import { lonely, stacked, stretches } from "../src/series.ts";

test("labels of an axis have one unit, that of the largest", () => {
  assert.deepEqual(durationLabels([0, 300, 600, 900]), ["0", "5 min", "10 min", "15 min"]);
  assert.deepEqual(durationLabels([0, 1000]), ["0", "16.7 min"]);
  assert.deepEqual(durationLabels([0, 0.5, 1]), ["0", "0.5 s", "1 s"]);
  assert.deepEqual(rateLabels([0, 0.5, 1], "s"), ["0", "0.5/s", "1/s"]);
  assert.deepEqual(rateLabels([0, 0.5], "min"), ["0", "30/min"]);
  assert.deepEqual(countLabels([0, 0.5, 1, 2000]), ["0", "", "1", "2,000"]);
});

test("ticks are at times that people count in", () => {
  for (const minutes of [1, 2, 5, 10, 15, 30]) assert.ok(DURATION_STEPS.includes(minutes * 60));
  assert.ok(!DURATION_STEPS.includes(20 * 60) && !DURATION_STEPS.includes(100));
  assert.deepEqual(
    DURATION_STEPS,
    [...DURATION_STEPS].sort((a, b) => a - b),
  );
});

test("gaps stay open: a sample between two is a dot, and no line goes over them", () => {
  assert.deepEqual(lonely([null, 4, null, 1, 2, null, 7]), [1, 6]);
  assert.deepEqual(lonely([5]), [0]);
  assert.deepEqual(stretches([1, null, 2, 2], 30, 14), ["0.0,7.0", "20.0,2.0 30.0,2.0"]);
});

test("bars stand one upon the other", () => {
  assert.deepEqual(
    stacked([
      [1, 2, null],
      [3, null, null],
    ]),
    [
      [1, 2, null],
      [4, 2, null],
    ],
  );
});
