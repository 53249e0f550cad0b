import { useState } from "preact/hooks";

import { get, getWhole, part, post, type Problem, type Schemas } from "../api.ts";
import { count, counted, duration, seconds as secondsOf } from "../format.ts";
import { asProblem, now, useLive } from "../live.ts";
import { to } from "../router.ts";
import { may, seesAll } from "../session.ts";
import {
  Button,
  Command,
  Count,
  Empty,
  Facts,
  Head,
  Meter,
  Panel,
  Skeleton,
  Time,
  Trouble,
} from "../ui/basics.tsx";
import { close, Dialog, open } from "../ui/dialog.tsx";
import { Icon } from "../ui/icons.tsx";
import { attempt, tell } from "../ui/toasts.tsx";

type Limit = Schemas["Limit"];
type Key = Schemas["LimitKey"];

const EVERY_MS = 4000;

export function Limits() {
  const live = useLive(
    (signal) => getWhole<Schemas["Limits"]>("v1/limits", "limits", signal),
    EVERY_MS,
    [],
  );
  const limits = live.data?.limits;
  return (
    <>
      <Head title="Limits" sub="How many jobs may run or start together, in total and per key." />
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {limits === undefined && !live.problem ? <Skeleton /> : null}
      {limits?.length === 0 ? (
        <Empty icon="limits" title="There are no limits">
          <p>Declare one in your program, and name it in the tasks that share it:</p>
          <Command>{`stripe = app.limit("stripe", concurrency=50, rate="100/s")`}</Command>
        </Empty>
      ) : null}
      {limits?.length ? (
        <div class="table-wrap">
          <table class="table limits">
            <thead>
              <tr>
                <th>Limit</th>
                <th>Running</th>
                <th>Rate</th>
                <th class="number">Waiting</th>
                <th class="number">Oldest</th>
                <th>Per key</th>
                <th>
                  <span class="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {limits.map((each) => (
                <Row key={each.name} limit={each} refresh={live.refresh} />
              ))}
            </tbody>
          </table>
        </div>
      ) : null}
    </>
  );
}

function Row({ limit, refresh }: { limit: Limit; refresh: () => void }) {
  const { rules } = limit;
  const perKey = [
    rules.concurrency_per_key === null ? "" : `${count(rules.concurrency_per_key)} running`,
    rules.rate_per_key ?? "",
  ].filter(Boolean);
  return (
    <tr>
      <th scope="row">
        <a class="name" href={to(["limits", limit.name])}>
          {limit.name}
        </a>{" "}
        <Marks limit={limit} />
      </th>
      <td data-label="running">
        <Used running={limit.running} allowed={rules.concurrency} name={limit.name} />
      </td>
      <td data-label="rate">
        <Rate rate={rules.rate} opensAt={limit.opens_at} />
      </td>
      <td class="number" data-label="waiting">
        <Count value={limit.waiting} />
      </td>
      <td class="number" data-label="oldest">
        {limit.oldest_waiting_seconds === null ? (
          <span class="zero">–</span>
        ) : (
          duration(limit.oldest_waiting_seconds)
        )}
      </td>
      <td data-label="per key">
        {perKey.length ? perKey.join(", ") : <span class="zero">–</span>}
        {limit.per ? <span class="soft"> by {limit.per}</span> : null}
      </td>
      <td class="row-actions">
        <Actions limit={limit} refresh={refresh} />
      </td>
    </tr>
  );
}

function Marks({ limit }: { limit: Limit }) {
  return (
    <>
      {limit.is_paused ? <span class="tag tag-warn">paused</span> : null}
      {limit.paused_keys.value ? (
        <span class="tag tag-warn">{counted(limit.paused_keys)} keys paused</span>
      ) : null}
      {limit.declared === null ? (
        <span class="tag tag-bad" title="No worker has declared it, so its jobs can't start">
          not declared
        </span>
      ) : null}
      {limit.chosen ? (
        <span class="tag" title="Its numbers were set here, not in code">
          set by hand
        </span>
      ) : null}
    </>
  );
}

function Used({
  running,
  allowed,
  name,
}: {
  running: Schemas["Count"];
  allowed: number | null;
  name: string;
}) {
  if (allowed === null) return <Count value={running} />;
  return (
    <span class="used">
      <span>
        {counted(running)} <span class="soft">of {count(allowed)}</span>
      </span>
      <Meter value={running.value / allowed} label={`Running in ${name}`} />
    </span>
  );
}

/** A rate that is used up says when it opens again. */
function Rate({ rate, opensAt }: { rate: string | null; opensAt: string | null }) {
  if (rate === null) return <span class="zero">–</span>;
  const left = opensAt === null ? 0 : (Date.parse(opensAt) - now.value) / 1000;
  return (
    <>
      {rate}{" "}
      {left > 0 ? (
        <span class="tag tag-warn">used up, opens in {duration(Math.max(0.1, left))}</span>
      ) : (
        <span class="soft">open</span>
      )}
    </>
  );
}

function mayChange(): boolean {
  return may("admin") && seesAll();
}

/** Pause or resume it, or one key of it; or set its numbers. */
function Actions({
  limit,
  of,
  refresh,
  isWide = false,
}: {
  limit: Limit;
  of?: Key | undefined;
  refresh: () => void;
  /** There is room for words. */
  isWide?: boolean;
}) {
  if (!mayChange()) return null;
  const kind = isWide ? "plain" : "ghost";
  const name = of ? `${limit.name} for ${of.key}` : limit.name;
  const key = of ? { key: of.key } : {};
  const place = `v1/limits/${part(limit.name)}`;
  function resume(): void {
    void attempt(async () => {
      await post(`${place}/resume`, key);
      tell(`${name} is resumed`);
      refresh();
    });
  }
  return (
    <>
      <Button
        kind={kind}
        icon="edit"
        label={`Set ${name}`}
        title="Set its numbers"
        onClick={() => open(<SetNumbers limit={limit} of={of} refresh={refresh} />)}
      >
        {isWide ? "Set numbers" : null}
      </Button>
      {(of ?? limit).is_paused ? (
        <Button kind={kind} icon="play" label={`Resume ${name}`} title="Resume" onClick={resume}>
          {isWide ? "Resume" : null}
        </Button>
      ) : (
        <Button
          kind={kind}
          icon="pause"
          label={`Pause ${name}`}
          title="Pause"
          onClick={() => open(<PauseDialog name={name} place={place} of={of} refresh={refresh} />)}
        >
          {isWide ? "Pause" : null}
        </Button>
      )}
    </>
  );
}

/** A form in a dialog that stays open, with the reason, if the API refuses what is sent. */
function useSend(place: string, done: string, refresh: () => void) {
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  async function send(body: object): Promise<void> {
    setBusy(true);
    setProblem(undefined);
    try {
      await post(place, body);
      close();
      tell(done);
      refresh();
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  }
  return { problem, isBusy, send };
}

function PauseDialog({
  name,
  place,
  of,
  refresh,
}: {
  name: string;
  place: string;
  of: Key | undefined;
  refresh: () => void;
}) {
  const [span, setSpan] = useState("");
  const [reason, setReason] = useState("");
  const { problem, isBusy, send } = useSend(`${place}/pause`, `${name} is paused`, refresh);
  const seconds = span ? secondsOf(span) : undefined;
  const isWrong = span !== "" && seconds === undefined;
  return (
    <Dialog title={`Pause ${name}`}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          if (isWrong) return;
          void send({
            ...(of ? { key: of.key } : {}),
            ...(seconds === undefined ? {} : { seconds }),
            ...(reason ? { reason } : {}),
          });
        }}
      >
        <p>No job starts there. Those that run go on.</p>
        <Field label="For how long" hint="90, 5 min, 2h; until it is resumed, if empty">
          <input value={span} onInput={(event) => setSpan(event.currentTarget.value)} />
        </Field>
        {isWrong ? <p class="fault">Such as 90, 5 min or 2h.</p> : null}
        <Field label="Why" hint="shown to whoever asks why a job waits">
          <input value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
        </Field>
        {problem ? <Trouble problem={problem} /> : null}
        <div class="dialog-foot">
          <Button onClick={close}>Not now</Button>
          <Button type="submit" kind="primary" isDisabled={isBusy || isWrong}>
            Pause
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Field({
  label,
  hint,
  children,
}: {
  label: string;
  hint?: string;
  children: preact.ComponentChildren;
}) {
  return (
    <label class="field">
      <span>
        {label}
        {hint ? <small>{hint}</small> : null}
      </span>
      {children}
    </label>
  );
}

interface Numbers {
  concurrency: string;
  rate: string;
  concurrency_per_key: string;
  rate_per_key: string;
  weight: string;
}

const LABELS: Record<keyof Numbers, [string, string]> = {
  concurrency: ["Running at once", "a whole number"],
  rate: ["Starts", "100/s, 10/m, 500/h, 1000/d"],
  concurrency_per_key: ["Running at once, per key", "a whole number"],
  rate_per_key: ["Starts, per key", "100/s, 10/m, 500/h, 1000/d"],
  weight: ["Weight", "how many turns it has beside other keys"],
};

function SetNumbers({
  limit,
  of,
  refresh,
}: {
  limit: Limit;
  of: Key | undefined;
  refresh: () => void;
}) {
  const name = of ? `${limit.name} for ${of.key}` : limit.name;
  const place = `v1/limits/${part(limit.name)}`;
  const fields: (keyof Numbers)[] = of
    ? ["concurrency", "rate", "weight"]
    : limit.per
      ? ["concurrency", "rate", "concurrency_per_key", "rate_per_key"]
      : ["concurrency", "rate"];
  const before: Numbers = {
    concurrency: String((of ?? limit.rules).concurrency ?? ""),
    rate: (of ?? limit.rules).rate ?? "",
    concurrency_per_key: String(limit.rules.concurrency_per_key ?? ""),
    rate_per_key: limit.rules.rate_per_key ?? "",
    weight: String(of?.weight ?? ""),
  };
  const [typed, setTyped] = useState(before);
  const { problem, isBusy, send } = useSend(`${place}/set`, `${name} has other numbers`, refresh);
  const changed = fields.filter((each) => typed[each] !== before[each] && typed[each] !== "");
  const isOwn = of ? of.is_own : limit.chosen !== null;
  function unset(): void {
    void attempt(async () => {
      await post(`${place}/unset`, of ? { key: of.key } : {});
      close();
      tell(`${name} has the numbers of the code again`);
      refresh();
    });
  }
  return (
    <Dialog title={`Set ${name}`}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault();
          const isNumber = (each: keyof Numbers) => !each.startsWith("rate");
          const numbers = changed.map((each) => [
            each,
            isNumber(each) ? Number(typed[each]) : typed[each],
          ]);
          void send({ ...(of ? { key: of.key } : {}), ...Object.fromEntries(numbers) });
        }}
      >
        <p>They count at once, for all workers, until they are unset.</p>
        {fields.map((each) => (
          <Field key={each} label={LABELS[each][0]} hint={LABELS[each][1]}>
            <input
              value={typed[each]}
              autocomplete="off"
              onInput={(event) => setTyped({ ...typed, [each]: event.currentTarget.value })}
            />
          </Field>
        ))}
        {problem ? <Trouble problem={problem} /> : null}
        <div class="dialog-foot">
          {isOwn ? <Button onClick={unset}>Back to the code's</Button> : null}
          <Button onClick={close}>Not now</Button>
          <Button type="submit" kind="primary" isDisabled={isBusy || !changed.length}>
            Set
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

export function LimitScreen({ name }: { name: string }) {
  const live = useLive(
    (signal) => get<Schemas["LimitWithKeys"]>(`v1/limits/${part(name)}`, { limit: 200 }, signal),
    EVERY_MS,
    [],
  );
  const found = live.data;
  if (live.problem?.status === 404) {
    return (
      <Empty icon="search" title="There is no such limit">
        <p>
          <a class="button" href="#/limits">
            Show all limits
          </a>
        </p>
      </Empty>
    );
  }
  return (
    <>
      <nav class="crumbs" aria-label="Where this is">
        <a href="#/limits">Limits</a> <Icon name="right" size={12} />
      </nav>
      <Head
        title={
          <>
            {name} {found ? <Marks limit={found.limit} /> : null}
          </>
        }
      >
        {found ? <Actions limit={found.limit} refresh={live.refresh} isWide /> : null}
      </Head>
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {!found && !live.problem ? <Skeleton /> : null}
      {found ? (
        <div class="columns">
          <div class="main-column">
            <Keys found={found} refresh={live.refresh} />
          </div>
          <div class="side-column">
            <Panel title="Now">
              <Summary limit={found.limit} />
            </Panel>
          </div>
        </div>
      ) : null}
    </>
  );
}

function Summary({ limit }: { limit: Limit }) {
  const paused = limit.is_paused
    ? [
        [
          "Paused",
          <>
            {limit.paused_until ? (
              <>
                until <Time at={limit.paused_until} />
              </>
            ) : (
              "until it is resumed"
            )}
            {limit.paused_reason ? `: ${limit.paused_reason}` : ""}
          </>,
        ] as [string, preact.JSX.Element],
      ]
    : [];
  return (
    <Facts
      facts={[
        ...paused,
        [
          "Running",
          <Used running={limit.running} allowed={limit.rules.concurrency} name={limit.name} />,
        ],
        ["Rate", <Rate rate={limit.rules.rate} opensAt={limit.opens_at} />],
        ["Waiting", <Count value={limit.waiting} />],
        ["Per key", limit.per ?? "no keys"],
        ["Order", limit.is_ordered ? "one after the other, per key" : "as they are due"],
        ["Declared", <Time at={limit.declared_at} empty="by no worker yet" />],
      ]}
    />
  );
}

function Keys({ found, refresh }: { found: Schemas["LimitWithKeys"]; refresh: () => void }) {
  const { limit, keys } = found;
  if (!limit.per) return <Panel title="Keys">This limit has no keys.</Panel>;
  if (!keys.length) return <Panel title="Keys">No key has jobs now.</Panel>;
  return (
    <div class="table-wrap">
      <table class="table limits">
        <thead>
          <tr>
            <th>Key</th>
            <th>Running</th>
            <th>Rate</th>
            <th class="number">Waiting</th>
            <th class="number">Weight</th>
            <th>
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {keys.map((each) => (
            <tr key={each.key}>
              <th scope="row">
                <span class="name">{each.key}</span>{" "}
                {each.is_paused ? (
                  <span class="tag tag-warn" title={each.paused_reason ?? ""}>
                    paused
                  </span>
                ) : null}
                {each.is_own ? (
                  <span class="tag" title="It has numbers of its own">
                    own
                  </span>
                ) : null}
              </th>
              <td data-label="running">
                <Used running={each.running} allowed={each.concurrency} name={each.key} />
              </td>
              <td data-label="rate">
                <Rate rate={each.rate} opensAt={each.opens_at} />
              </td>
              <td class="number" data-label="waiting">
                <Count value={each.waiting} />
              </td>
              <td class="number" data-label="weight">
                {each.weight}
              </td>
              <td class="row-actions">
                <Actions limit={limit} of={each} refresh={refresh} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {found.is_cut ? (
        <p class="soft table-foot">There are more keys; the busiest are shown.</p>
      ) : null}
    </div>
  );
}
