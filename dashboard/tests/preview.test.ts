import assert from "node:assert/strict";
import { test } from "node:test";

import { preview } from "../src/preview.ts";

function shown(json: string): string {
  return preview(json)
    .map(({ name, value }) => `${name}=${value}`)
    .join(" ");
}

test("a payload in one line", () => {
  assert.equal(
    shown('{"to":"ada@example.com","n":12,"ok":true}'),
    'to="ada@example.com" n=12 ok=true',
  );
  assert.equal(shown('{"a": {"b": [1, "}"]}, "c": []}'), 'a={"b": [1, "}"]} c=[]');
  assert.equal(shown("{}"), "");
});

test("what was cut says so, wherever that was", () => {
  const whole =
    '{"name":"Ada \\"L\\"","list":[1,2,{"x":"y"}],"big":123456789012345678901234567890}';
  for (let length = 0; length <= whole.length; length += 1) {
    assert.doesNotThrow(() => shown(whole.slice(0, length)));
  }
  assert.equal(shown(whole.slice(0, 14)), 'name="Ada …"');
  assert.equal(shown(whole.slice(0, 32)), 'name="Ada \\"L\\"" list=[1,2,…');
  assert.equal(shown(`{"t":"${"x".repeat(80)}"}`).length, 't="'.length + 47 + '…"'.length);
});
