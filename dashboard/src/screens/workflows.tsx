import { useState } from "preact/hooks";

import { get, type Schemas } from "../api.ts";
import { duration, plural } from "../format.ts";
import { now, useLive } from "../live.ts";
import { replace, route, to } from "../router.ts";
import {
  Button,
  Command,
  Count,
  Empty,
  Head,
  Skeleton,
  StateBadge,
  Time,
  Trouble,
} from "../ui/basics.tsx";
import { CountBar, Done } from "../ui/countbar.tsx";
import { inWords, type Workflow } from "../workflows.ts";

const EVERY_MS = 5000;
const PAGE = 50;
/** Beyond it one narrows the list: all of it is asked for again every few seconds. */
const PAGES_MAX = 10;

const STATES: Schemas["WorkflowState"][] = ["running", "waiting", "dead", "succeeded", "cancelled"];

interface Asked {
  state?: string;
  name?: string;
  tenant?: string;
}

async function load(
  asked: Asked,
  pages: number,
  signal: AbortSignal,
): Promise<Schemas["Workflows"]> {
  const found: Schemas["Workflows"] = { workflows: [], next: null };
  for (let page = 0; page < pages; page += 1) {
    const cursor = found.next ?? undefined;
    const next = await get<Schemas["Workflows"]>(
      "v1/workflows",
      { ...asked, limit: PAGE, cursor },
      signal,
    );
    found.workflows.push(...next.workflows);
    found.next = next.next;
    if (!found.next) break;
  }
  return found;
}

function askedOf(query: URLSearchParams): Asked {
  const asked: Asked = {};
  for (const name of ["state", "name", "tenant"] as const) {
    const value = query.get(name);
    if (value) asked[name] = value;
  }
  return asked;
}

export function Workflows() {
  const asked = askedOf(route.value.query);
  const [pages, setPages] = useState(1);
  const key = JSON.stringify(asked);
  const live = useLive((signal) => load(asked, pages, signal), EVERY_MS, [key, pages]);
  const found = live.data?.workflows;
  const show = (next: Asked) => replace(to(["workflows"], { ...next }));
  return (
    <>
      <Head title="Workflows" sub="Jobs that wait for each other, enqueued together." />
      <div class="filters flow-filters">
        <nav class="tabs" aria-label="States">
          {[undefined, ...STATES].map((state) => {
            const { state: _, ...rest } = asked;
            return (
              <a
                key={state ?? "all"}
                class="tab"
                href={to(["workflows"], { ...rest, ...(state ? { state } : {}) })}
                aria-current={asked.state === state ? "true" : undefined}
              >
                {state ?? "all"}
              </a>
            );
          })}
        </nav>
        <NameBox
          name={asked.name ?? ""}
          show={(name) => {
            const { name: _, ...rest } = asked;
            show(name ? { ...rest, name } : rest);
          }}
        />
      </div>
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {found === undefined && !live.problem ? <Skeleton /> : null}
      {found?.length === 0 ? <Nothing asked={asked} /> : null}
      {found?.length ? <Table workflows={found} /> : null}
      {live.data?.next ? (
        <div class="list-end">
          {pages < PAGES_MAX ? (
            <Button onClick={() => setPages(pages + 1)}>Show older ones</Button>
          ) : (
            <p class="soft">
              These are the newest {plural(found?.length ?? 0, "workflow")}: narrow the list by name
              or state to see older ones.
            </p>
          )}
        </div>
      ) : null}
    </>
  );
}

function NameBox({ name, show }: { name: string; show: (name: string) => void }) {
  return (
    <form
      class="filter-bar"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        show(new FormData(event.currentTarget).get("name")?.toString().trim() ?? "");
      }}
    >
      <input
        type="search"
        name="name"
        class="name-box"
        data-search
        aria-label="Name of the workflows"
        placeholder="Name, then Enter"
        defaultValue={name}
        onChange={(event) => show(event.currentTarget.value.trim())}
      />
    </form>
  );
}

function Nothing({ asked }: { asked: Asked }) {
  if (Object.keys(asked).length) {
    return (
      <Empty icon="search" title="No workflows match">
        <p>
          <a class="button" href="#/workflows">
            Show all workflows
          </a>
        </p>
      </Empty>
    );
  }
  return (
    <Empty icon="workflows" title="There are no workflows">
      <p>Enqueue jobs that wait for each other from your program:</p>
      <Command>{`with app.workflow("crawl") as flow:
    pages = flow.map(fetch.job(url=url) for url in urls)
    flow.add(report.job(pages=pages.results), after=pages)`}</Command>
    </Empty>
  );
}

function Table({ workflows }: { workflows: Workflow[] }) {
  return (
    <div class="table-wrap">
      <table class="table flows">
        <thead>
          <tr>
            <th>Workflow</th>
            <th>State</th>
            <th>Jobs</th>
            <th class="number">Ended</th>
            <th class="number">Dead</th>
            <th class="number wide-only">Took</th>
            <th class="number">Enqueued</th>
          </tr>
        </thead>
        <tbody>
          {workflows.map((each) => (
            <Row key={each.id} workflow={each} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ workflow }: { workflow: Workflow }) {
  const { counts } = workflow;
  return (
    <tr>
      <th scope="row">
        <a class="name" href={to(["workflows", workflow.id])} title={workflow.id}>
          {workflow.name}
        </a>{" "}
        {workflow.key ? (
          <span class="mark" title="key">
            {workflow.key}
          </span>
        ) : null}{" "}
        {workflow.tenant ? (
          <span class="mark" title="tenant">
            {workflow.tenant}
          </span>
        ) : null}
      </th>
      <td data-label="state">
        <StateBadge state={workflow.state} />
      </td>
      <td class="flow-bar" data-label="jobs">
        <CountBar counts={counts} />
        <span class="hidden">{inWords(counts)}</span>
      </td>
      <td class="number" data-label="ended">
        <Done counts={counts} />
      </td>
      <td class="number" data-label="dead">
        <span class={counts.dead.value ? "count-dead" : ""}>
          <Count value={counts.dead} />
        </span>
      </td>
      <td class="number wide-only" data-label="took">
        <Took workflow={workflow} />
      </td>
      <td class="number" data-label="enqueued">
        <Time at={workflow.created_at} />
      </td>
    </tr>
  );
}

/** From its beginning to its end, or until now. */
export function Took({ workflow }: { workflow: Workflow }) {
  const end = workflow.ended_at ? Date.parse(workflow.ended_at) : now.value;
  const seconds = (end - Date.parse(workflow.created_at)) / 1000;
  if (!workflow.ended_at && workflow.state !== "running") return <span class="zero">–</span>;
  return <span>{duration(Math.max(0, workflow.ended_at ? seconds : Math.round(seconds)))}</span>;
}
