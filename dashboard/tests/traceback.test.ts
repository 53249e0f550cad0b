import assert from "node:assert/strict";
import { test } from "node:test";

import { partsOf } from "../src/traceback.ts";

const TEXT = `Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/rowlock/run.py", line 8, in run
    return call()
           ^^^^^^
  File "/usr/lib/python3.11/asyncio/runners.py", line 1, in run
    go()
  File "/app/shop.py", line 3, in charge
    charge()
  File "/app/shop.py", line 3, in charge
    charge()
  File "/app/shop.py", line 5, in last
    raise ValueError("no")
ValueError: no
`;

test("libraries are told from one's own code, and repeated frames are counted", () => {
  const parts = partsOf(TEXT).map((part) =>
    "text" in part
      ? part.text
      : [part.isLibrary, ...part.frames.map((each) => `${each.path}:${each.line} x${each.times}`)],
  );
  assert.deepEqual(parts, [
    "Traceback (most recent call last):",
    [
      true,
      "/venv/lib/python3.11/site-packages/rowlock/run.py:8 x1",
      "/usr/lib/python3.11/asyncio/runners.py:1 x1",
    ],
    [false, "/app/shop.py:3 x2", "/app/shop.py:5 x1"],
    "ValueError: no",
  ]);
});

test("nothing of the text is lost", () => {
  const lines = partsOf(TEXT).flatMap((part) =>
    "text" in part
      ? part.text.split("\n")
      : part.frames.flatMap((each) => Array.from({ length: each.times }, () => each.lines).flat()),
  );
  assert.equal(lines.join("\n"), TEXT.trimEnd());
  assert.deepEqual(partsOf("just text"), [{ text: "just text" }]);
});
