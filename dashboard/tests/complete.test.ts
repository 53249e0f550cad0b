import assert from "node:assert/strict";
import { test } from "node:test";

import { completions } from "../src/complete.ts";

const KNOWN = { kinds: ["send_email", "send sms", "resize"], queues: ["mail"] };

function offered(text: string): string[] {
  return completions(text, KNOWN).map((each) => each.label);
}

test("names are offered, then the values that are known", () => {
  assert.deepEqual(offered("ki"), ["kind:"]);
  assert.deepEqual(offered("-q"), ["-queue:"]);
  assert.deepEqual(offered("-e"), []);
  assert.deepEqual(offered("kind:se"), ["kind:send_email", "kind:send sms"]);
  assert.deepEqual(offered("kind:size"), ["kind:resize"]);
  assert.deepEqual(offered("queue:mail"), []);
  assert.ok(offered("").includes("state:"));
  assert.deepEqual(offered("refused "), []);
});

test("what is taken replaces the last word, also in a list", () => {
  const [first] = completions("tag:vip state:dead,can", KNOWN);
  assert.equal(first?.text, "tag:vip state:dead,cancelled ");
  assert.equal(completions('kind:"send s', KNOWN)[0]?.text, 'kind:"send sms" ');
});
