import assert from "node:assert/strict";
import { test } from "node:test";

import {
  admits,
  asOne,
  type Filter,
  filterOf,
  fromQuery,
  fromSearch,
  inWords,
  moment,
  toQuery,
  toSearch,
  variants,
} from "../src/filters.ts";

const FULL: Filter = {
  is: {
    state: ["dead"],
    kind: ["send email", "a,b"],
    queue: ["a/b?c&d=e"],
    tenant: ["acmé"],
    key: ['k#1 "x" \\'],
  },
  not: { tag: ["x y", "z"] },
  error: "Connection refused <b>",
  since: "2h",
  until: "2030-01-01T00:00:00.000Z",
};

function understood(text: string): Filter {
  const { filter, faults } = fromSearch(text);
  assert.deepEqual(faults, [], text);
  return filter;
}

test("a filter survives the address and the box, hostile characters included", () => {
  const again = fromQuery(new URLSearchParams(toQuery(FULL).toString()));
  assert.deepEqual(again, { filter: FULL, faults: [] });
  assert.deepEqual(understood(toSearch(FULL)), FULL);
  assert.equal(toQuery(filterOf({})).toString(), "");
});

test("what is not understood is a fault, and never left out", () => {
  const faults: [string, RegExp][] = [
    ["state:deaad", /deaad is not a state\. Did you mean dead\?/],
    ["state:asleep", /There are waiting, scheduled, ready/],
    ["since:yesterday", /yesterday is not a time: write 15m/],
    ["since:1", /1 is not a time/],
    ["tag:vip tag:eu", /tag is given twice: write tag:a,b/],
    ["worker:w1", /worker is not a filter\..* put it in quotes/],
    ["kid:x", /Did you mean kind\?/],
    ["-error:x", /error can't be ruled out/],
    ["kind:", /kind: has no value/],
    ["fingerprint:abc", /add state:dead/],
    ["kind:a,b,c queue:a,b,c", /9 searches at once, and 8 are possible/],
    ["error:x refused", /error is given twice/],
  ];
  for (const [text, expected] of faults) {
    assert.match(fromSearch(text).faults.join(" "), expected, text);
  }
  const address = new URLSearchParams("state=sleeping&since=yesterdayish&x=y");
  assert.equal(fromQuery(address).faults.length, 3);
  assert.match(fromQuery(new URLSearchParams({ search: "state:deaad" })).faults[0]!, /deaad/);
});

test("a typed search is a filter", () => {
  assert.deepEqual(understood('state:dead kind:"send email" timed out'), {
    ...filterOf({ state: "dead", kind: "send email", error: "timed out" }),
  });
  assert.deepEqual(understood("http://example.com"), filterOf({ error: "http://example.com" }));
  assert.deepEqual(understood('"worker:w1"'), filterOf({ error: "worker:w1" }));
  assert.deepEqual(understood("state:scheduled,retrying -kind:tick,tock").not, {
    kind: ["tick", "tock"],
  });
});

test("lists of values are one query each, and states that are ruled out are the others", () => {
  assert.deepEqual(variants(understood("state:scheduled,retrying kind:a,b since:1h")), [
    { state: "scheduled", kind: "a", since: "1h" },
    { state: "scheduled", kind: "b", since: "1h" },
    { state: "retrying", kind: "a", since: "1h" },
    { state: "retrying", kind: "b", since: "1h" },
  ]);
  assert.deepEqual(
    variants(understood("-state:succeeded,cancelled")).map((each) => each.state),
    ["waiting", "scheduled", "ready", "running", "retrying", "dead"],
  );
});

test("values that are ruled out are dropped, and then no work on all that match is offered", () => {
  const filter = understood("queue:mail -kind:tick -tag:bulk");
  const job = { kind: "send", queue: "mail", tenant: null, key: null, tags: [] as string[] };
  assert.equal(admits(filter, job), true);
  assert.equal(admits(filter, { ...job, kind: "tick" }), false);
  assert.equal(admits(filter, { ...job, tags: ["vip", "bulk"] }), false);
  assert.equal(asOne(filter), undefined);
  assert.equal(asOne(understood("state:dead,ready")), undefined);
  assert.deepEqual(asOne(understood("state:dead queue:mail")), { state: "dead", queue: "mail" });
});

test("times may be relative, so that a shared link stays meaningful", () => {
  const now = Date.UTC(2030, 0, 1, 12);
  assert.equal(moment("90m", now), "2030-01-01T10:30:00.000Z");
  assert.equal(moment("2030-01-01T01:00:00+01:00", now), "2030-01-01T00:00:00.000Z");
});

test("a filter in words", () => {
  assert.equal(
    inWords(understood("state:dead kind:send_email queue:mail,bulk since:1h -tag:vip")),
    "dead jobs of kind send_email in queue mail or bulk created in the last hour but not tag vip",
  );
  assert.equal(inWords(understood("until:1h")), "jobs created more than 1 hour ago");
  assert.equal(inWords(filterOf({})), "jobs");
});
