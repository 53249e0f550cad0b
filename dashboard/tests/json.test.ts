import assert from "node:assert/strict";
import { test } from "node:test";

import { Digits, JsonError, parse, stringify } from "../src/json.ts";

const BIG = "1234567890123456789012345678901234567890";

test("big integers keep their digits, there and back", () => {
  const text = `{"id": ${BIG}, "small": 9007199254740991, "edge": 9007199254740993}`;
  const value = parse(text) as Record<string, unknown>;

  assert.equal(value["small"], 9007199254740991);
  assert.ok(value["edge"] instanceof Digits);
  assert.equal(stringify(parse(text), 0), text);
});

test("fractions beyond a double keep their digits", () => {
  for (const text of ["0.12345678901234567890123", "1e400", "-0.1", "2.50", "1E5"]) {
    const value = parse(text);
    assert.equal(Number(stringify(value, 0)), Number(text));
  }
  assert.equal(stringify(parse("0.12345678901234567890123"), 0), "0.12345678901234567890123");
  assert.equal(stringify(parse("1e400"), 0), "1e400");
});

test("whatever JSON.parse reads is read the same", () => {
  const texts = [
    "null",
    "true",
    " [1, 2.5, -3e2] ",
    '{"a": {"b": []}, "c": "\\u00e9\\n\\"x\\""}',
    '""',
    "{}",
    '{"é": "😀", "nested": [[[]]]}',
    "[{}, {}]",
    '"\\ud83d\\ude00"',
  ];
  for (const text of texts) assert.deepEqual(parse(text), JSON.parse(text));
});

test("what JSON.parse refuses is refused, and the place is told", () => {
  const texts = [
    "",
    "{",
    "[1,]",
    '{"a" 1}',
    "{a: 1}",
    "01",
    "1.",
    "tru",
    '"\n"',
    "[1] 2",
    "'a'",
    "NaN",
    "-",
    '"\\x"',
    "{,}",
    "[",
  ];
  for (const text of texts) {
    assert.throws(() => parse(text), JsonError, text);
    assert.throws(() => JSON.parse(text));
  }
  assert.throws(() => parse('{\n  "a": 1,\n  b\n}'), { line: 3, column: 3 });
});

test("__proto__ is a name like any other", () => {
  const value = parse('{"__proto__": {"polluted": 1}}');

  assert.equal(({} as Record<string, unknown>)["polluted"], undefined);
  assert.equal(stringify(value, 0), '{"__proto__": {"polluted": 1}}');
});

test("depth is bounded", () => {
  assert.throws(() => parse("[".repeat(100_000)), JsonError);
});

test("it is written with indentation as one expects", () => {
  assert.equal(
    stringify({ a: [1, { b: null }], c: {} }),
    JSON.stringify({ a: [1, { b: null }], c: {} }, null, 2),
  );
});
