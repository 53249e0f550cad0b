import assert from "node:assert/strict";
import { test } from "node:test";

import {
  type Filter,
  fromQuery,
  fromSearch,
  inWords,
  moment,
  toQuery,
  toSearch,
} from "../src/filters.ts";

const FULL: Filter = {
  state: "dead",
  kind: "send email",
  queue: "a/b?c&d=e",
  tenant: "acmé",
  key: "k#1",
  tag: "x y",
  error: "Connection refused <b>",
  since: "2h",
  until: "2030-01-01T00:00:00.000Z",
};

test("a filter survives the address, hostile characters included", () => {
  assert.deepEqual(fromQuery(new URLSearchParams(toQuery(FULL).toString())), FULL);
  assert.equal(toQuery({}).toString(), "");
});

test("what the address can't mean is left out", () => {
  const query = new URLSearchParams("state=sleeping&since=yesterdayish&kind=&queue=mail&x=y");
  assert.deepEqual(fromQuery(query), { queue: "mail" });
});

test("times may be relative, so that a shared link stays meaningful", () => {
  const now = Date.UTC(2030, 0, 1, 12);
  assert.equal(moment("90m", now), "2030-01-01T10:30:00.000Z");
  assert.equal(moment("2030-01-01T01:00:00+01:00", now), "2030-01-01T00:00:00.000Z");
});

test("a typed search is a filter, and the other way round", () => {
  assert.deepEqual(fromSearch('state:dead kind:"send email" timed out'), {
    state: "dead",
    kind: "send email",
    error: "timed out",
  });
  assert.deepEqual(fromSearch("http://example.com"), { error: "http://example.com" });
  assert.deepEqual(fromSearch(toSearch(FULL)), FULL);
});

test("a filter in words", () => {
  assert.equal(
    inWords({ state: "dead", kind: "send_email", queue: "mail", since: "1h" }),
    "dead jobs of kind send_email in queue mail created in the last hour",
  );
  assert.equal(inWords({}), "jobs");
});
