import assert from "node:assert/strict";
import { test } from "node:test";

import type { Query } from "../src/api.ts";
import { fromSearch } from "../src/filters.ts";
import { advance, isOver, strandsOf, type Summary } from "../src/joblist.ts";

/** Jobs by their second, of a state; a page ends after two rows. */
function job(second: number, state: string, kind = "k"): Summary {
  const at = new Date(Date.UTC(2030, 0, 1, 0, 0, second)).toISOString();
  return {
    id: `${second}`,
    state,
    kind,
    created_at: at,
    finished_at: null,
    tags: [],
  } as unknown as Summary;
}

function server(jobs: Summary[], asked: Query[] = []) {
  return async (query: Query) => {
    asked.push(query);
    const fit = jobs.filter((each) => !query["state"] || each.state === query["state"]);
    const from = Number(query["cursor"] ?? 0);
    const rows = fit.slice(from, from + 2);
    return { jobs: rows, next: from + 2 < fit.length ? String(from + 2) : null };
  };
}

test("a list of states is merged by time, page by page, without loss", async () => {
  const jobs = [9, 8, 7, 6, 5, 4, 3, 2, 1].map((each) =>
    job(each, each % 3 ? "ready" : "retrying"),
  );
  const { filter } = fromSearch("state:ready,retrying");
  let strands = strandsOf(filter);
  const ids: string[] = [];
  while (!isOver(strands)) {
    const next = await advance(filter, strands, 4, server(jobs));
    ids.push(...next.jobs.map((each) => each.id));
    strands = next.strands;
  }
  assert.deepEqual(ids, ["9", "8", "7", "6", "5", "4", "3", "2", "1"]);
});

test("a search that finds little in much stops, and says so", async () => {
  const jobs = Array.from({ length: 40 }, (_, place) => job(50 - place, "ready", "tick"));
  const asked: Query[] = [];
  const { filter } = fromSearch("-kind:tick");
  const found = await advance(filter, strandsOf(filter), 50, server(jobs, asked));
  assert.deepEqual([found.jobs.length, found.isCut, found.read], [0, true, 10]);
  assert.equal(asked.length, 5);
  assert.equal(isOver(found.strands), false);
});
