import assert from "node:assert/strict";
import { test } from "node:test";

import { build, fieldsOf } from "../src/fields.ts";
import { parse, type JsonObject, stringify } from "../src/json.ts";

const SCHEMA = parse(`{
  "type": "object", "required": ["to", "items"],
  "properties": {
    "to": {"type": "string", "description": "Who gets it"},
    "n": {"type": "integer", "default": 3},
    "size": {"$ref": "#/$defs/Size"},
    "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
    "urgent": {"type": "boolean", "default": false},
    "items": {"type": "array", "items": {"type": "object"}},
    "at": {"type": "string", "format": "date-time"}
  },
  "$defs": {"Size": {"enum": ["s", "m"]}}
}`) as JsonObject;

test("a schema becomes fields", () => {
  const fields = fieldsOf(SCHEMA)!;
  assert.deepEqual(
    fields.map((each) => [each.name, each.type, each.isRequired]),
    [
      ["to", "text", true],
      ["n", "integer", false],
      ["size", "choice", false],
      ["note", "text", false],
      ["urgent", "boolean", false],
      ["items", "json", true],
      ["at", "text", false],
    ],
  );
  assert.deepEqual(
    [fields[0]!.description, fields[1]!.initial, fields[6]!.hint],
    ["Who gets it", "3", "date-time"],
  );
  assert.equal(fieldsOf({ type: "array" }), undefined);
});

test("what was typed becomes a payload, big integers intact", () => {
  const fields = fieldsOf(SCHEMA)!;
  const made = build(fields, {
    to: "a",
    n: "123456789012345678901",
    items: "[{}]",
    urgent: "true",
  });
  assert.ok("payload" in made);
  assert.equal(
    stringify(made.payload, 0),
    '{"to": "a", "n": 123456789012345678901, "urgent": true, "items": [{}]}',
  );
});

test("what can't be meant is told field by field", () => {
  const made = build(fieldsOf(SCHEMA)!, { to: "a", n: "1.5", items: "[" });
  assert.ok("problems" in made);
  assert.deepEqual(Object.keys(made.problems), ["n", "items"]);
});
