// A list of jobs from several queries, page by page: each query is a strand, and strands are merged
// by the time that orders them. Nothing below an unread page of a strand is shown yet.

import type { Query, Schemas } from "./api.ts";
import { admits, type ApiFilter, type Filter, variants } from "./filters.ts";

export type Summary = Schemas["JobSummary"];

export interface Strand {
  query: ApiFilter;
  /** Read, but not yet given out. */
  rows: Summary[];
  /** Undefined: not asked yet; null: nothing follows. */
  next: string | null | undefined;
}

export interface Stretch {
  jobs: Summary[];
  strands: Strand[];
  /** How many rows were read for it. */
  read: number;
  /** Whether it ended because enough was asked for, not because there is no more. */
  isCut: boolean;
}

export type LoadPage = (query: Query) => Promise<{ jobs: Summary[]; next: string | null }>;

/** Requests of one strand for one stretch: pages may be empty, or all of it be ruled out. */
const ASKED_MAX = 5;

export function strandsOf(filter: Filter): Strand[] {
  return variants(filter).map((query) => ({ query, rows: [], next: undefined }));
}

export function isOver(strands: Strand[]): boolean {
  return strands.every((each) => each.next === null && !each.rows.length);
}

/** The next jobs, `wanted` of them if there are so many within a bounded number of requests. */
export async function advance(
  filter: Filter,
  strands: Strand[],
  wanted: number,
  load: LoadPage,
): Promise<Stretch> {
  const now = strands.map((each) => ({ ...each, rows: [...each.rows] }));
  const jobs: Summary[] = [];
  let read = 0;
  for (let asked = 0; jobs.length < wanted; ) {
    const hungry = now.filter((each) => !each.rows.length && each.next !== null);
    if (hungry.length) {
      if (asked === ASKED_MAX) return { jobs, strands: now, read, isCut: true };
      asked += 1;
      const pages = await Promise.all(
        hungry.map((each) =>
          load({ ...each.query, limit: wanted, cursor: each.next ?? undefined } as Query),
        ),
      );
      hungry.forEach((each, place) => {
        each.rows = pages[place]!.jobs;
        each.next = pages[place]!.next;
        read += each.rows.length;
      });
      continue;
    }
    const first = newest(now);
    if (!first) break;
    const job = first.rows.shift()!;
    if (admits(filter, job)) jobs.push(job);
  }
  return { jobs, strands: now, read, isCut: false };
}

/** The strand whose next job comes first: dead ones are in the order of failure, as the API's. */
function newest(strands: Strand[]): Strand | undefined {
  let found: Strand | undefined;
  for (const each of strands) {
    if (each.rows.length && (!found || orderOf(each) > orderOf(found))) found = each;
  }
  return found;
}

function orderOf(strand: Strand): number {
  const job = strand.rows[0]!;
  return Date.parse((strand.query.state === "dead" && job.finished_at) || job.created_at);
}
