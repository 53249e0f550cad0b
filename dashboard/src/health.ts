// Whether the queue is well, and if not, why: from numbers that are at hand. Pure.

import { count, duration, type Counted, plural, share } from "./format.ts";

export interface QueueFacts {
  queue: string;
  is_paused: boolean;
  oldest_ready_seconds: number | null;
  counts: { ready: Counted; retrying: Counted };
}

export interface Facts {
  queues: QueueFacts[];
  /** Live workers; undefined where they can't be seen. */
  workers: number | undefined;
  /** Runs of the stretch that is looked at; undefined where it can't be seen. */
  runs: { succeeded: number; retrying: number; dead: number } | undefined;
  /** "1 h" */
  span?: string;
}

export interface Finding {
  level: "bad" | "warn";
  /** How bad it is among those of its level: how many times beyond what is usual. */
  weight: number;
  text: string;
  /** Where to look: a path and a query. */
  path: string[];
  query?: Record<string, string>;
}

const OLD_SECONDS = 60;
const TOO_OLD_SECONDS = 600;
const FAILING = 0.1;
const FAILING_BADLY = 0.5;
const RUNS_MIN = 10;

/** What is wrong, worst first. Nothing: all is well. */
export function findings(facts: Facts): Finding[] {
  const found: Finding[] = [];
  const ready = facts.queues.reduce((sum, each) => sum + each.counts.ready.value, 0);
  if (facts.workers === 0) {
    const text = ready
      ? `No worker is running, and ${plural(ready, "job")} ${ready === 1 ? "waits" : "wait"}`
      : "No worker is running";
    // Nothing else gets better before this does.
    found.push({ level: ready ? "bad" : "warn", weight: Infinity, text, path: ["workers"] });
  }
  for (const queue of facts.queues) found.push(...ofQueue(queue));
  if (facts.runs) found.push(...ofRuns(facts.runs, facts.span));
  return found.sort((a, b) => rank(a) - rank(b) || b.weight - a.weight);
}

function rank(finding: Finding): number {
  return finding.level === "bad" ? 0 : 1;
}

function ofQueue(queue: QueueFacts): Finding[] {
  const { ready } = queue.counts;
  const query = { queue: queue.queue, state: "ready" };
  if (queue.is_paused) {
    const waiting = ready.value ? `, and ${count(ready.value)} of its jobs are ready` : "";
    return [
      {
        level: "warn",
        weight: ready.value ? 1 : 0,
        text: `The queue ${queue.queue} is paused${waiting}`,
        path: ["queues", queue.queue],
      },
    ];
  }
  const age = queue.oldest_ready_seconds ?? 0;
  if (age < OLD_SECONDS) return [];
  const level = age >= TOO_OLD_SECONDS ? "bad" : "warn";
  const text = `The oldest ready job of ${queue.queue} has waited ${duration(Math.round(age))}`;
  return [{ level, weight: age / TOO_OLD_SECONDS, text, path: ["jobs"], query }];
}

function ofRuns(runs: NonNullable<Facts["runs"]>, span: string | undefined): Finding[] {
  const lately = span ? ` in the last ${span}` : "";
  const found: Finding[] = [];
  const total = runs.succeeded + runs.retrying + runs.dead;
  const failed = runs.retrying + runs.dead;
  if (runs.dead) {
    const text = `${plural(runs.dead, "job was", "jobs were")} given up${lately}`;
    found.push({ level: "warn", weight: 0.5, text, path: ["dead"] });
  }
  if (total >= RUNS_MIN && failed / total >= FAILING) {
    const level = failed / total >= FAILING_BADLY ? "bad" : "warn";
    found.push({
      level,
      weight: failed / total / FAILING_BADLY,
      text: `${share(failed, total)} of all runs failed${lately}`,
      path: ["kinds"],
    });
  }
  return found;
}

/**
 * Of the jobs that workers hold, how many are in a slot, and how many wait for one there. Workers
 * report the latter with their heartbeat; one that does not is taken to run all that it holds.
 */
export function inSlots(
  held: number,
  workers: { slots: number | null; ahead: number | null }[],
): { running: number; ahead: number; slots: number } {
  const reported = workers.reduce((sum, each) => sum + (each.ahead ?? 0), 0);
  const isKnown = workers.length > 0 && workers.every((each) => each.slots != null);
  const slots = isKnown ? workers.reduce((sum, each) => sum + (each.slots ?? 0), 0) : 0;
  // A report is some seconds old: no more can run than there are slots.
  const running = Math.min(Math.max(0, held - reported), isKnown ? slots : held);
  return { running, ahead: held - running, slots };
}
