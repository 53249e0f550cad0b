import assert from "node:assert/strict";
import { test } from "node:test";

import {
  bytes,
  clock,
  count,
  counted,
  duration,
  exact,
  inZone,
  plural,
  rate,
  rateUnit,
  relative,
  seconds,
  share,
  zone,
} from "../src/format.ts";

test("durations have at most two parts, and never lie about the unit", () => {
  const told: [number, string][] = [
    [0, "0 s"],
    [0.0000004, "1 µs"],
    [0.00034, "340 µs"],
    [0.0213, "21.3 ms"],
    [0.9996, "1 s"],
    [1.04, "1 s"],
    [59.94, "59.9 s"],
    [59.99, "1 min"],
    [60, "1 min"],
    [245, "4 min 5 s"],
    [3599.6, "1 h"],
    [11520, "3 h 12 min"],
    [86400, "1 d"],
    [525600, "6 d 2 h"],
    [-3, "−3 s"],
  ];
  for (const [value, text] of told) assert.equal(duration(value), text);
});

test("times are told by one part", () => {
  const now = Date.UTC(2030, 0, 1);
  assert.equal(relative(now - 400, now), "now");
  assert.equal(relative(now - 59_900, now), "59 s ago");
  assert.equal(relative(now + 3 * 60_000 + 1, now), "in 3 min");
  assert.equal(relative(now - 25 * 3_600_000, now), "1 d ago");
});

test("the exact time has its zone, and its milliseconds", () => {
  const at = new Date("2030-07-01T12:34:56.789Z");
  assert.equal(exact(at, "UTC"), "2030-07-01 12:34:56.789 UTC");
  assert.match(exact(at, "Asia/Kolkata"), /^2030-07-01 18:04:56\.789 /);
});

test("a time is as short as it can be told apart", () => {
  const now = Date.UTC(2030, 0, 1, 12);
  const at = (text: string, zone = "UTC") => clock(Date.parse(text), now, zone);
  assert.equal(at("2030-01-01T02:30:09Z"), "02:30:09");
  assert.equal(at("2030-01-02T02:30:09Z"), "Wed 02:30");
  assert.equal(at("2029-12-31T23:30:09Z", "Europe/Berlin"), "00:30:09");
  assert.equal(at("2030-03-03T02:30:09Z"), "Mar 3, 02:30");
  assert.equal(at("2029-03-03T02:30:09Z"), "Mar 3 2029, 02:30");
});

test("a page has one zone, and says which", () => {
  const winter = new Date("2030-01-01T12:00:00Z");
  assert.equal(zone(winter, "Europe/Berlin"), "Europe/Berlin, UTC+1");
  assert.equal(zone(winter, "UTC"), "UTC");
  assert.equal(
    inZone("it is not due until 2030-01-01 13:00:00 UTC", winter.getTime(), "Europe/Berlin"),
    "it is not due until 14:00:00",
  );
});

test("rates beside each other have one unit", () => {
  const rates = [0.2, 3, null];
  assert.equal(rateUnit(rates), "s");
  assert.equal(rateUnit([0.2, 0.5]), "min");
  assert.equal(rate(0.2, rateUnit(rates)), "0.2/s");
  assert.equal(rate(0.2, "min"), "12/min");
  assert.equal(rate(0, "min"), "0/min");
});

test("counts and rates are short, and lower bounds are marked", () => {
  assert.equal(count(12345), "12,345");
  assert.equal(count(1_234_567), "1.23 M");
  assert.equal(counted({ value: 10_000, exact: false }), "10,000+");
  assert.equal(plural(1, "job"), "1 job");
  assert.equal(plural(2, "retry", "retries"), "2 retries");
  assert.equal(rate(0.05), "3/min");
  assert.equal(rate(1234.5), "1,235/s");
  assert.equal(share(1, 3), "33.3%");
  assert.equal(share(0, 0), "–");
  assert.equal(bytes(1536), "1.5 KiB");
});

test("spans of time that people type", () => {
  assert.equal(seconds("90"), 90);
  assert.equal(seconds("1.5h"), 5400);
  assert.equal(seconds("5 min"), 300);
  assert.equal(seconds("soon"), undefined);
});
