import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { answers, asked, until } from "./dom.ts";

import { type ComponentChildren, render } from "preact";
import { useState } from "preact/hooks";

import { type History, isYoung } from "../src/history.ts";
import type { Summary } from "../src/joblist.ts";
import { replace } from "../src/router.ts";
import { Jobs } from "../src/screens/jobs.tsx";
import { enter, type Me } from "../src/session.ts";
import { Boundary } from "../src/ui/boundary.tsx";
import { Dialogs } from "../src/ui/dialog.tsx";
import { JobRows } from "../src/ui/jobrows.tsx";

const place = document.createElement("div");
document.body.append(place);

function show(content: ComponentChildren): void {
  render(content, place);
}

afterEach(() => show(null));

function all(selector: string): HTMLElement[] {
  return [...place.querySelectorAll<HTMLElement>(selector)];
}

function job(number: number, changes: Partial<Summary> = {}): Summary {
  const at = new Date(Date.UTC(2030, 0, 1, 0, 0, 60 - (number % 60))).toISOString();
  return {
    id: `00000000-0000-7000-8000-${String(number).padStart(12, "0")}`,
    kind: "send_email",
    queue: "mail",
    state: "ready",
    priority: 0,
    tenant: null,
    key: null,
    attempt: 0,
    max_attempts: 3,
    run_at: at,
    created_at: at,
    started_at: null,
    finished_at: null,
    lease_expires_at: null,
    worker: null,
    token: 0,
    crashes: 0,
    cancel_requested: false,
    last_error: null,
    payload_preview: `{"to":"customer-${number}"}`,
    progress: null,
    tags: [],
    limit: null,
    limit_key: null,
    workflow: null,
    waits_for: 0,
    stack: null,
    ...changes,
  };
}

const JOBS = Array.from({ length: 10 }, (_, number) => job(number));

function Selecting({ jobs }: { jobs: Summary[] }) {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  return <JobRows jobs={jobs} chosen={chosen} choose={setChosen} />;
}

function boxes(): HTMLInputElement[] {
  return all("tr[data-id] input") as HTMLInputElement[];
}

function ticked(): number[] {
  return boxes().flatMap((box, number) => (box.checked ? [number] : []));
}

function click(element: HTMLElement, options: MouseEventInit = {}): void {
  element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ...options }));
}

test("the box that was ticked is ticked, and its row chosen; Shift ticks a range", async () => {
  show(<Selecting jobs={JOBS} />);
  click(boxes()[1]!);
  await until(() => all("tr.chosen").length === 1);
  assert.deepEqual(ticked(), [1]);
  click(boxes()[4]!, { shiftKey: true });
  await until(() => all("tr.chosen").length === 4);
  assert.deepEqual(ticked(), [1, 2, 3, 4]);
  click(boxes()[3]!);
  await until(() => all("tr.chosen").length === 3);
  assert.deepEqual(ticked(), [1, 2, 4]);
});

test("all that are loaded are ticked by one box, and unticked by it", async () => {
  show(<Selecting jobs={JOBS} />);
  const every = all("thead input")[0] as HTMLInputElement;
  click(every);
  await until(() => ticked().length === JOBS.length);
  assert.equal(every.checked, true);
  click(every);
  await until(() => ticked().length === 0);
});

test("of many rows only those near the window exist, and readers know their places", () => {
  show(<Selecting jobs={Array.from({ length: 2000 }, (_, number) => job(number))} />);
  const rows = all("tr[data-id]");
  assert.ok(rows.length < 100, `${rows.length} rows`);
  assert.equal(all("table")[0]!.getAttribute("aria-rowcount"), "2001");
  assert.equal(rows[5]!.getAttribute("aria-rowindex"), "7");
});

test("a row shows the payload, and opens only by a plain click beside its controls", () => {
  replace("#/jobs");
  show(<Selecting jobs={JOBS} />);
  const row = all("tr[data-id]")[2]!;
  assert.match(row.textContent ?? "", /to="customer-2"/);
  click(row.querySelector<HTMLElement>(".c-queue")!, { ctrlKey: true });
  click(row.querySelector<HTMLElement>("input")!);
  assert.equal(location.hash, "#/jobs");
  click(row.querySelector<HTMLElement>(".c-queue")!);
  assert.equal(location.hash, `#/jobs/${JOBS[2]!.id}`);
});

const COUNTS = Object.fromEntries(
  ["scheduled", "ready", "running", "retrying", "succeeded", "dead", "cancelled"].map((state) => [
    state,
    { value: 0, exact: true },
  ]),
);

function serve(jobs: Summary[]): void {
  enter({ name: "x", tenant: null, scopes: ["read", "admin"], token_id: null } as unknown as Me);
  answers.set("v1/jobs", { jobs, next: null });
  answers.set("v1/jobs/count", { value: jobs.length, exact: true });
  answers.set("v1/stats", { queues: 1, counts: COUNTS });
  answers.set("v1/workers", { workers: [], next: null });
  answers.set("v1/kinds", { kinds: [{ kind: "send_email" }], next: null });
  answers.set("v1/queues", { queues: [{ queue: "mail" }], next: null });
  asked.length = 0;
}

test("a filter that is not understood shows why, and no list", async () => {
  serve(JOBS);
  replace("#/jobs?state=deaad");
  show(<Jobs />);
  await until(() => all("[role=alert]").length);
  assert.match(all("[role=alert]")[0]!.textContent ?? "", /deaad is not a state/);
  assert.equal(all("[type=search]")[0]!.getAttribute("aria-invalid"), "true");
  await until(() => asked.some((each) => each.startsWith("v1/stats")));
  assert.deepEqual(all("tr[data-id]"), []);
  assert.deepEqual(
    asked.filter((each) => each.startsWith("v1/jobs")),
    [],
  );
});

test("values that are ruled out are not shown, and a list of states asks for each", async () => {
  serve([job(1), job(2, { kind: "tick" }), job(3)]);
  replace("#/jobs?state=ready&state=dead&-kind=tick");
  show(<Jobs />);
  await until(() => all("tr[data-id]").length === 2);
  const states = asked
    .filter((each) => each.startsWith("v1/jobs?"))
    .map((each) => new URLSearchParams(each.split("?")[1]).get("state"));
  assert.deepEqual(new Set(states), new Set(["ready", "dead"]));
});

test("work on all jobs says ALL, and from a thousand on asks for their number", async () => {
  serve(JOBS);
  answers.set("v1/jobs", { jobs: JOBS, next: "more" });
  answers.set("v1/bulk", { action: "cancel", filter: {}, count: { value: 2504, exact: true } });
  replace("#/jobs");
  // The next pages would never end.
  show(
    <>
      <Jobs />
      <Dialogs />
    </>,
  );
  await until(() => all("tr[data-id]").length);
  const button = (name: string) => all("button").find((each) => each.textContent?.trim() === name);
  click(all("thead input")[0]!);
  await until(() => button("Select all that match"));
  click(button("Select all that match")!);
  await until(() => /ALL jobs selected/.test(place.textContent ?? ""));
  click(button("Cancel")!);
  await until(() => button("Cancel 2,504"));
  const go = button("Cancel 2,504") as HTMLButtonElement;
  assert.match(all("dialog")[0]!.textContent ?? "", /No filter is set: this is about ALL jobs/);
  assert.equal(go.disabled, true);
  const box = all("dialog input")[0] as HTMLInputElement;
  box.value = "2504";
  box.dispatchEvent(new Event("input", { bubbles: true }));
  await until(() => !(button("Cancel 2,504") as HTMLButtonElement).disabled);
});

test("a mistake in a screen is told in the frame, and can be tried again", async () => {
  const log = console.error;
  console.error = () => undefined;
  let isBroken = true;
  function Fragile() {
    if (isBroken) throw new Error("no such thing");
    return <p>whole</p>;
  }
  show(
    <Boundary>
      <Fragile />
    </Boundary>,
  );
  await until(() => /could not be drawn/.test(place.textContent ?? ""));
  assert.match(place.textContent ?? "", /no such thing/);
  isBroken = false;
  click(all("button")[0]!);
  await until(() => place.textContent === "whole");
  console.error = log;
});

test("an hour is shown by the minute until jobs have run for some of it", () => {
  const history = (succeeded: number[]) =>
    ({
      step: 60,
      series: [{ succeeded, retrying: succeeded.map(() => 0) }],
    }) as unknown as History;
  const none = Array.from({ length: 50 }, () => 0);
  assert.equal(isYoung(history([...none, 0, 0, 0, 5, 9, 2])), true);
  assert.equal(isYoung(history([...none, 1, 0, 0, 0, 0, 0, 0, 5])), false);
  assert.equal(isYoung(history(none)), false);
});
