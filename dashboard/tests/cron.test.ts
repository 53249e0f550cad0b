import assert from "node:assert/strict";
import { test } from "node:test";

import { words } from "../src/cron.ts";

const TOLD: [string, string | undefined][] = [
  ["* * * * *", "Every minute"],
  ["*/5 * * * *", "Every 5 minutes"],
  ["0 * * * *", "Every hour"],
  ["@hourly", "Every hour"],
  ["15,45 * * * *", "Every hour, 15 and 45 minutes past"],
  ["0 */6 * * *", "Every 6 hours"],
  ["30 */6 * * *", "Every 6 hours, 30 minutes past"],
  ["0 0 * * *", "Every day at 00:00"],
  ["@daily", "Every day at 00:00"],
  ["30 9 * * 1-5", "Every weekday at 09:30"],
  ["30 9 * * MON-FRI", "Every weekday at 09:30"],
  ["0 8,20 * * *", "Every day at 08:00 and 20:00"],
  ["0 12 * * 0", "Every Sunday at 12:00"],
  ["0 12 * * 7", "Every Sunday at 12:00"],
  ["0 12 * * 6,0", "On Saturday and Sunday at 12:00"],
  ["0 3 1 * *", "On the 1st of the month at 03:00"],
  ["0 3 1,15 * *", "On the 1st and 15th of the month at 03:00"],
  ["0 3 L * *", "On the last day of the month at 03:00"],
  ["0 0 1 1 *", "Every year on 1 January at 00:00"],
  ["0 0 * 6-8 *", "Every day in June, July and August at 00:00"],
  ["*/10 9-17 * * 1-5", "Every 10 minutes from 09:00 to 17:59, every weekday"],
  ["*/30 * * * * *", "Every 30 seconds"],
  ["0 30 9 * * *", "Every day at 09:30"],
  ["0 9 13 * 5", undefined],
  ["0 0 * * 1#2", undefined],
  ["nonsense", undefined],
  ["99 0 * * *", undefined],
  ["", undefined],
];

for (const [expression, sentence] of TOLD) {
  test(`${expression || "nothing"} is ${sentence ?? "beyond words"}`, () => {
    assert.equal(words(expression), sentence);
  });
}
