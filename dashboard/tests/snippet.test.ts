import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { parse, type JsonObject } from "../src/json.ts";
import { asCurl, asPython, type Enqueued, shell } from "../src/snippet.ts";

const JOB: Enqueued = {
  kind: "it's",
  payload: parse(
    '{"n": 12345678901234567890123, "b": true, "x": null, "t": "a\'b\\n$(id)`"}',
  ) as JsonObject,
  queue: "mail",
  priority: 5,
  tenant: "acme",
  tags: ["x"],
};

test("the shell passes the body on as it is", () => {
  const command = asCurl(JOB, "http://127.0.0.1:8765/queue/", true);
  const shown = execFileSync(
    "sh",
    ["-c", `curl() { for each; do printf '%s\\0' "$each"; done; }; ${command}`],
    {
      env: { ROWLOCK_TOKEN: "secret" },
    },
  );
  const [address, flag, header, json, body] = shown.toString().split("\0");

  assert.deepEqual(
    [address, flag, header, json],
    ["http://127.0.0.1:8765/queue/v1/jobs", "-H", "Authorization: Bearer secret", "--json"],
  );
  assert.match(body!, /"n": 12345678901234567890123/);
  assert.equal((JSON.parse(body!) as { payload: { t: string } }).payload.t, "a'b\n$(id)`");
});

test("a quote in single quotes is still one word", () => {
  assert.equal(shell("a'b"), "'a'\\''b'");
});

test("Python's words are Python's", () => {
  const text = asPython(JOB);
  assert.match(text, /"n": 12345678901234567890123, "b": True, "x": None/);
  assert.match(text, /queue="mail", priority=5, tenant="acme", tags=\["x"\]/);
});
