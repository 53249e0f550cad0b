// What the counts of a workflow, or of a stack of it, say. Pure.

import type { Schemas } from "./api.ts";
import { type Counted, counted } from "./format.ts";

export type Workflow = Schemas["Workflow"];
export type Counts = Schemas["WorkflowCounts"];
export type NodeState = keyof Counts;

/** In the order of a bar: what is done, what went wrong, what goes on, what is to come. */
export const NODE_STATES: NodeState[] = [
  "succeeded",
  "dead",
  "cancelled",
  "running",
  "ready",
  "waiting",
];

export function total(counts: Counts): Counted {
  return summed(counts, NODE_STATES);
}

/** Jobs that will not run any more without help. */
export function ended(counts: Counts): Counted {
  return summed(counts, ["succeeded", "dead", "cancelled"]);
}

function summed(counts: Counts, states: NodeState[]): Counted {
  return {
    value: states.reduce((sum, each) => sum + counts[each].value, 0),
    exact: states.every((each) => counts[each].exact),
  };
}

/** How far it is: 0 to 1. */
export function progress(counts: Counts): number {
  const all = total(counts).value;
  return all ? ended(counts).value / all : 0;
}

/** The parts of a bar, in percent. A state that has a job is never too thin to be seen. */
export function parts(counts: Counts): { state: NodeState; percent: number }[] {
  const found = NODE_STATES.filter((each) => counts[each].value);
  const all = total(counts).value;
  const shares = found.map((each) => Math.max(PERCENT_MIN, (counts[each].value / all) * 100));
  const sum = shares.reduce((before, each) => before + each, 0);
  return found.map((state, place) => ({ state, percent: (shares[place]! / sum) * 100 }));
}

const PERCENT_MIN = 3;

/** "3 dead, 1 running": every state that has a job, those first that matter most. */
export function inWords(counts: Counts): string {
  const order: NodeState[] = ["dead", "running", "ready", "waiting", "cancelled", "succeeded"];
  const found = order.filter((each) => counts[each].value);
  return found.map((each) => `${counted(counts[each])} ${each}`).join(", ") || "no jobs";
}

/** The state that a stack is shown in: the one that somebody should look at first. */
export function mainState(counts: Counts): NodeState {
  const order: NodeState[] = ["dead", "running", "ready", "waiting", "cancelled"];
  return order.find((each) => counts[each].value) ?? "succeeded";
}
