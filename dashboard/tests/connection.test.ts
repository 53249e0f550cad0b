import assert from "node:assert/strict";
import { mock, test } from "node:test";

import "./dom.ts";

import { away, watchConnection } from "../src/connection.ts";
import { returns } from "../src/live.ts";
import { enter, type Me } from "../src/session.ts";

const SEEN_MS = 5000;
const BACK_MS = 2000;
const STEP_MS = 100;

/** Let that much time pass by the clock of the page, until it is so; how long it took. */
async function passes(most: number, isSo: () => boolean): Promise<number> {
  for (let passed = 0; passed <= most; passed += STEP_MS) {
    // Answers come between two moments of that clock.
    for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
    if (isSo()) return passed;
    mock.timers.tick(STEP_MS);
  }
  throw new Error(`not within ${most} ms`);
}

test("a server that goes is seen within 5 s, and its return within 2 s", async () => {
  mock.timers.enable({ apis: ["setInterval", "Date"], now: Date.now() });
  enter({ name: "x", tenant: null, scopes: ["read"], token_id: null } as unknown as Me);
  let isThere = true;
  globalThis.fetch = async () => {
    if (!isThere) throw new TypeError("connection refused");
    return new Response("{}");
  };
  const stop = watchConnection();
  try {
    await passes(SEEN_MS, () => false).catch(() => undefined);
    assert.equal(away.value, undefined);
    isThere = false;
    await passes(SEEN_MS, () => away.value !== undefined);
    const before = returns.value;
    await passes(10_000, () => false).catch(() => undefined);
    assert.notEqual(away.value, undefined);
    isThere = true;
    await passes(BACK_MS, () => away.value === undefined);
    // What is shown is asked for again.
    assert.equal(returns.value, before + 1);
  } finally {
    stop();
    mock.timers.reset();
  }
});
