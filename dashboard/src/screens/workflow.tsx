// One workflow: how far it is, its shape, and the jobs of a stack of it.

import { useState } from "preact/hooks";

import { get, getExact, part, post, type Schemas } from "../api.ts";
import { count, counted, plural, shortId } from "../format.ts";
import { isObject, type JsonObject } from "../json.ts";
import { useLive } from "../live.ts";
import { route, to } from "../router.ts";
import { may } from "../session.ts";
import {
  Button,
  CopyButton,
  Count,
  Empty,
  Facts,
  Head,
  KindLink,
  Panel,
  Skeleton,
  StateBadge,
  Time,
  Trouble,
} from "../ui/basics.tsx";
import { CountBar, CountLegend, Done } from "../ui/countbar.tsx";
import { Confirm, open } from "../ui/dialog.tsx";
import { GraphView, type Stack } from "../ui/graphview.tsx";
import { Icon } from "../ui/icons.tsx";
import { JobRows } from "../ui/jobrows.tsx";
import { tell } from "../ui/toasts.tsx";
import { Tree } from "../ui/tree.tsx";
import { mainState, NODE_STATES, total, type Workflow } from "../workflows.ts";
import { Took } from "./workflows.tsx";

type Graph = Omit<Schemas["WorkflowGraph"], "workflow"> & {
  workflow: Omit<Workflow, "meta"> & { meta: JsonObject };
};

const OPEN_MS = 3000;
const ENDED_MS = 20_000;
const PAGE = 50;

export function WorkflowScreen({ id }: { id: string }) {
  const [hasStopped, setStopped] = useState(false);
  const place = `v1/workflows/${part(id)}`;
  const live = useLive(
    async (signal) => {
      const found = await getExact<Graph>(`${place}/graph`, {}, signal);
      setStopped(!["running", "waiting"].includes(found.workflow.state));
      return found;
    },
    hasStopped ? ENDED_MS : OPEN_MS,
    [id, hasStopped],
  );
  const [last, setLast] = useState<Graph>();
  if (live.data && live.data !== last) setLast(live.data);
  const found = live.data ?? last;
  if (live.problem?.status === 404) {
    return (
      <Empty icon="search" title="There is no such workflow">
        <p>It was removed with the last of its jobs, or the address is wrong.</p>
        <p>
          <a class="button" href="#/workflows">
            Show all workflows
          </a>
        </p>
      </Empty>
    );
  }
  return (
    <>
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {found ? (
        <Whole found={found} refresh={live.refresh} />
      ) : live.problem ? null : (
        <Skeleton rows={8} kind="page" />
      )}
    </>
  );
}

function Whole({ found, refresh }: { found: Graph; refresh: () => void }) {
  const { workflow, stacks } = found;
  const asked = route.value.query.get("stack") ?? undefined;
  const chosen = stacks.find((each) => each.id === asked);
  const addressOf = (stack: string) => to(["workflows", workflow.id], { stack });
  return (
    <>
      <nav class="crumbs" aria-label="Where this is">
        <a href="#/workflows">Workflows</a> <Icon name="right" size={12} />
      </nav>
      <Head
        title={
          <>
            {workflow.name} <StateBadge state={workflow.state} />
          </>
        }
        sub={
          <span class="id-line">
            <code>{workflow.id}</code>
            <CopyButton text={workflow.id} label="Copy the id" />
          </span>
        }
      >
        <Actions workflow={workflow as Workflow} refresh={refresh} />
      </Head>
      <section class="panel flow-progress" aria-label="Progress">
        <Done counts={workflow.counts} />
        <CountBar counts={workflow.counts} />
        <CountLegend counts={workflow.counts} />
      </section>
      {stacks.length ? (
        <GraphView stacks={stacks} chosen={chosen?.id} addressOf={addressOf} />
      ) : null}
      {chosen ? (
        <StackJobs
          key={chosen.id}
          workflow={workflow.id}
          stack={chosen}
          isLive={chosen.counts.running.value + chosen.counts.ready.value > 0}
        />
      ) : null}
      <div class="columns">
        <div class="main-column">
          <StackTable stacks={stacks} chosen={chosen?.id} addressOf={addressOf} />
        </div>
        <div class="side-column">
          <Panel title="Details">
            <Details workflow={workflow as Workflow} />
          </Panel>
          {isObject(workflow.meta) && Object.keys(workflow.meta).length ? (
            <Panel title="Meta">
              <Tree value={workflow.meta} label="Meta" />
            </Panel>
          ) : null}
        </div>
      </div>
    </>
  );
}

function Actions({ workflow, refresh }: { workflow: Workflow; refresh: () => void }) {
  if (!may("admin")) return null;
  const { counts } = workflow;
  const left = counts.waiting.value + counts.ready.value + counts.running.value;
  const isExact = counts.waiting.exact && counts.ready.exact && counts.running.exact;
  async function act(verb: "cancel" | "retry", past: string): Promise<void> {
    const place = `v1/workflows/${part(workflow.id)}/${verb}`;
    const answer = await post<Schemas["WorkflowChanged"]>(place);
    tell(`${plural(answer.jobs, "job")} of ${workflow.name} ${past}`);
    refresh();
  }
  return (
    <>
      {counts.dead.value ? (
        <Button
          kind="primary"
          icon="retry"
          onClick={() =>
            open(
              <Confirm
                title={`Retry ${workflow.name}?`}
                verb="Retry"
                act={() => act("retry", "retried")}
              >
                <p>
                  {deadWords(counts.dead)} again, and jobs that were cancelled because of them wait
                  for them again.
                </p>
              </Confirm>,
            )
          }
        >
          Retry
        </Button>
      ) : null}
      {left ? (
        <Button
          kind="danger"
          icon="cancel"
          onClick={() =>
            open(
              <Confirm
                title={`Cancel ${workflow.name}?`}
                verb="Cancel the workflow"
                isDanger
                act={() => act("cancel", "cancelled")}
              >
                <p>
                  {isExact ? plural(left, "job has", "jobs have") : `${count(left)}+ jobs have`} not
                  ended. They are cancelled, and those that run are asked to stop. That can't be
                  undone, and nothing can be added to it any more.
                </p>
              </Confirm>,
            )
          }
        >
          Cancel
        </Button>
      ) : null}
    </>
  );
}

function deadWords(dead: Schemas["Count"]): string {
  return dead.value === 1 ? "Its dead job runs" : `Its ${counted(dead)} dead jobs run`;
}

function Details({ workflow }: { workflow: Workflow }) {
  const optional: [string, string | null, (value: string) => preact.ComponentChildren][] = [
    ["Ended", workflow.ended_at, (at) => <Time at={at} />],
    ["Deadline", workflow.deadline, (at) => <Time at={at} />],
    ["Key", workflow.key, (key) => key],
    ["Tenant", workflow.tenant, (tenant) => <a href={to(["tenants", tenant])}>{tenant}</a>],
    [
      "Begun by",
      workflow.parent,
      (id) => (
        <a href={to(["jobs", id])}>
          job <span class="id">{shortId(id)}</span>
        </a>
      ),
    ],
  ];
  return (
    <Facts
      facts={[
        ["Name", <a href={to(["workflows"], { name: workflow.name })}>{workflow.name}</a>],
        ["Enqueued", <Time at={workflow.created_at} />],
        ["Took", <Took workflow={workflow} />],
        ...optional.flatMap(([name, value, shown]): [string, preact.ComponentChildren][] =>
          value === null ? [] : [[name, shown(value)]],
        ),
        ...(workflow.not_needed.value
          ? [["Not needed", counted(workflow.not_needed)] as [string, string]]
          : []),
      ]}
    />
  );
}

/** The graph in words, for everybody: one row per stack. */
function StackTable({
  stacks,
  chosen,
  addressOf,
}: {
  stacks: Stack[];
  chosen: string | undefined;
  addressOf: (stack: string) => string;
}) {
  const kinds = new Map(stacks.map((each) => [each.id, each.kind]));
  const shown = NODE_STATES.filter((state) => stacks.some((each) => each.counts[state].value));
  return (
    <div class="table-wrap">
      <table class="table stacks">
        <caption class="hidden">Jobs that are alike, and what they wait for</caption>
        <thead>
          <tr>
            <th>Jobs</th>
            <th>After</th>
            {shown.map((state) => (
              <th key={state} class="number">
                {state}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {stacks.map((each) => (
            <tr key={each.id} aria-current={each.id === chosen ? "true" : undefined}>
              <th scope="row">
                <a class="name" href={addressOf(each.id)}>
                  {each.kind}
                </a>{" "}
                <span class="soft">{counted(total(each.counts))}</span>
              </th>
              <td data-label="after" class="stack-after">
                {afterWords(each, kinds)}
              </td>
              {shown.map((state) => (
                <td key={state} class="number" data-label={state}>
                  <span class={state === "dead" && each.counts.dead.value ? "count-dead" : ""}>
                    <Count value={each.counts[state]} />
                  </span>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const AFTER_SHOWN = 4;

function afterWords(stack: Stack, kinds: ReadonlyMap<string, string>): string {
  if (!stack.after.length) return "–";
  const names = stack.after.map((each) => kinds.get(each) ?? "a job that is gone");
  const rest = names.length - AFTER_SHOWN;
  const list =
    names.slice(0, AFTER_SHOWN).join(", ") + (rest > 0 ? ` and ${count(rest)} more` : "");
  if (stack.when === "dead") return `a death of ${list}`;
  return stack.when === "ended" ? `any end of ${list}` : list;
}

/** Dead jobs first, then live ones, then the others. */
function StackJobs({
  workflow,
  stack,
  isLive,
}: {
  workflow: string;
  stack: Stack;
  isLive: boolean;
}) {
  const [limit, setLimit] = useState(PAGE);
  const live = useLive(
    (signal) =>
      get<Schemas["JobPage"]>(
        `v1/workflows/${part(workflow)}/jobs`,
        { stack: stack.id, limit },
        signal,
      ),
    isLive ? OPEN_MS : ENDED_MS,
    [limit, isLive],
  );
  const [last, setLast] = useState<Schemas["JobPage"]>();
  if (live.data && live.data !== last) setLast(live.data);
  const page = live.data ?? last;
  return (
    <section class="stack-jobs" aria-label={`Jobs of ${stack.kind}`}>
      <div class="stack-head">
        <h2>
          <KindLink kind={stack.kind} /> <StateBadge state={mainState(stack.counts)} />
        </h2>
        <CountLegend counts={stack.counts} />
        <span class="gap" />
        <a class="button ghost" href={to(["workflows", workflow])} aria-label="Close">
          <Icon name="close" />
        </a>
      </div>
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {page ? <JobRows jobs={page.jobs} /> : live.problem ? null : <Skeleton rows={4} />}
      {page?.next && limit < LIMIT_MAX ? (
        <div class="list-end">
          <Button onClick={() => setLimit(Math.min(LIMIT_MAX, limit * 2))}>Show more</Button>
        </div>
      ) : null}
    </section>
  );
}

const LIMIT_MAX = 200;
