import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { answers, asked, until } from "./dom.ts";

import { type ComponentChildren, render } from "preact";

import { replace } from "../src/router.ts";
import { WorkflowScreen } from "../src/screens/workflow.tsx";
import { Workflows } from "../src/screens/workflows.tsx";
import { enter, type Me } from "../src/session.ts";
import { Dialogs } from "../src/ui/dialog.tsx";
import {
  type Counts,
  inWords,
  mainState,
  parts,
  progress,
  type Workflow,
} from "../src/workflows.ts";

const place = document.createElement("div");
document.body.append(place);

function show(content: ComponentChildren): void {
  render(content, place);
}

afterEach(() => show(null));

function all(selector: string): HTMLElement[] {
  return [...place.querySelectorAll<HTMLElement>(selector)];
}

function counts(found: Partial<Record<keyof Counts, number>>): Counts {
  const count = (state: keyof Counts) => ({ value: found[state] ?? 0, exact: true });
  return {
    waiting: count("waiting"),
    ready: count("ready"),
    running: count("running"),
    succeeded: count("succeeded"),
    dead: count("dead"),
    cancelled: count("cancelled"),
  };
}

const ID = "00000000-0000-7000-8000-000000000001";

function workflow(changes: Partial<Workflow> = {}): Workflow {
  return {
    id: ID,
    name: "crawl",
    state: "running",
    created_at: "2030-01-01T00:00:00Z",
    ended_at: null,
    deadline: null,
    key: null,
    tenant: null,
    parent: null,
    meta: {},
    counts: counts({ succeeded: 39, dead: 1, waiting: 2 }),
    not_needed: { value: 0, exact: true },
    ...changes,
  };
}

const STACKS = [
  {
    id: "1",
    kind: "fetch",
    after: [],
    when: "succeeded",
    counts: counts({ succeeded: 39, dead: 1 }),
  },
  { id: "2", kind: "index", after: ["1"], when: "succeeded", counts: counts({ waiting: 1 }) },
  { id: "3", kind: "alarm", after: ["2"], when: "dead", counts: counts({ waiting: 1 }) },
];

function serve(scopes = ["read", "admin"]): void {
  enter({ name: "x", tenant: null, scopes, token_id: null } as unknown as Me);
  answers.set(`v1/workflows/${ID}/graph`, { workflow: workflow(), stacks: STACKS });
  answers.set(`v1/workflows/${ID}/jobs`, { jobs: [], next: null });
  answers.set(`v1/workflows/${ID}/retry`, { jobs: 1, workflow: workflow() });
  replace(`#/workflows/${ID}`);
  asked.length = 0;
}

test("a bar shows every state that has a job, and words name the worst first", () => {
  const found = counts({ succeeded: 9999, dead: 1 });
  assert.deepEqual(
    parts(found).map((each) => each.state),
    ["succeeded", "dead"],
  );
  assert.ok(parts(found)[1]!.percent > 1);
  assert.equal(inWords(found), "1 dead, 9,999 succeeded");
  assert.deepEqual([mainState(found), mainState(counts({}))], ["dead", "succeeded"]);
  assert.deepEqual([progress(found), progress(counts({ waiting: 3 }))], [1, 0]);
});

test("a list of workflows asks for what the address says", async () => {
  serve();
  answers.set("v1/workflows", { workflows: [workflow()], next: null });
  replace("#/workflows?state=dead&name=crawl");
  show(<Workflows />);
  await until(() => all("tbody tr").length === 1);
  assert.match(all("tbody tr")[0]!.textContent ?? "", /crawl.*40 of 42/);
  const query = new URLSearchParams(asked[0]!.split("?")[1]);
  assert.deepEqual([query.get("state"), query.get("name")], ["dead", "crawl"]);
});

test("a graph has a link for each stack, one of which Tab reaches, and a table", async () => {
  serve();
  show(<WorkflowScreen id={ID} />);
  await until(() => all(".node").length === 3);
  assert.deepEqual(
    all(".node").map((each) => each.tabIndex),
    [0, -1, -1],
  );
  assert.equal(all(".node")[0]!.textContent, "fetch401 dead, 39 succeeded");
  assert.deepEqual(
    all(".stacks tbody tr").map((each) => each.children[1]!.textContent),
    ["–", "fetch", "a death of index"],
  );
  // Two edges of the longest path, of two looks.
  assert.equal(all("path.edge-heavy").length, 2);
});

test("arrow keys move along the graph, and the address says whose jobs are shown", async () => {
  serve();
  show(<WorkflowScreen id={ID} />);
  await until(() => all(".node").length === 3);
  const press = (key: string) =>
    document.activeElement!.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  all(".node")[0]!.focus();
  press("ArrowRight");
  assert.equal(document.activeElement!.getAttribute("data-stack"), "2");
  await until(() => all(".node")[1]!.tabIndex === 0);
  press("ArrowLeft");
  assert.equal(document.activeElement!.getAttribute("data-stack"), "1");
  assert.equal(all(".node")[0]!.getAttribute("href"), `#/workflows/${ID}?stack=1`);
  replace(`#/workflows/${ID}?stack=1`);
  await until(() => asked.some((each) => each.startsWith(`v1/workflows/${ID}/jobs?stack=1`)));
  await until(() => all(".stack-jobs").length === 1);
});

test("a retry asks first; who may only read is not offered it", async () => {
  serve();
  show(
    <>
      <WorkflowScreen id={ID} />
      <Dialogs />
    </>,
  );
  const button = (name: string) => all("button").find((each) => each.textContent?.trim() === name);
  await until(() => button("Retry"));
  button("Retry")!.click();
  await until(() => all("dialog").length === 1);
  assert.match(all("dialog")[0]!.textContent ?? "", /Its dead job runs again/);
  all("dialog .primary")[0]!.click();
  await until(() => asked.includes(`v1/workflows/${ID}/retry`));
  await until(() => all("dialog").length === 0);
  show(null);
  serve(["read"]);
  show(<WorkflowScreen id={ID} />);
  await until(() => all(".node").length === 3);
  assert.equal(button("Retry") ?? button("Cancel"), undefined);
});
