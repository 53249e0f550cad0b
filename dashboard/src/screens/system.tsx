import { signal } from "@preact/signals";
import { useState } from "preact/hooks";

import { get, getWhole, part, post, type Problem, remove, type Schemas } from "../api.ts";
import { bytes, count, duration } from "../format.ts";
import { type JsonObject, stringify } from "../json.ts";
import { asProblem, useLive } from "../live.ts";
import { may, me } from "../session.ts";
import { Button, CopyButton, Facts, Head, Panel, Skeleton, Time, Trouble } from "../ui/basics.tsx";
import { close, Confirm, Dialog, open } from "../ui/dialog.tsx";
import { tell } from "../ui/toasts.tsx";

type Info = Schemas["System"];
type Token = Schemas["Token"];

const EVERY_MS = 15_000;
const OLD_TRANSACTION_SECONDS = 60;
const DEAD_TUPLES_MANY = 100_000;
const WAL_BYTES_MANY = 256 * 1024 * 1024;

/** Grows with every deed of this screen, so that the list of deeds has it at once. */
const deeds = signal(0);

export function System() {
  const live = useLive((signal) => get<Info>("v1/system", {}, signal), EVERY_MS, []);
  const info = live.data;
  return (
    <>
      <Head
        title="System"
        sub={
          info
            ? `rowlock ${info.version} on ${STORES[info.store] ?? info.store} ${info.store_version}`
            : undefined
        }
      >
        <a class="button" href="docs">
          API reference
        </a>
      </Head>
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {!info && !live.problem ? <Skeleton /> : null}
      {info ? (
        <div class="panels">
          <Panel title="Store">
            <Store info={info} />
          </Panel>
          <Panel title="Health">
            <Health info={info} />
          </Panel>
          <Panel title="Migrations">
            <Migrations info={info} />
          </Panel>
        </div>
      ) : null}
      {may("admin") ? <Tokens /> : null}
      {may("admin") ? <Audit /> : null}
    </>
  );
}

const STORES: Record<string, string> = { sqlite: "SQLite", postgres: "PostgreSQL" };

function Store({ info }: { info: Info }) {
  return (
    <Facts
      facts={[
        ["Store", `${STORES[info.store] ?? info.store} ${info.store_version}`],
        ["Size", bytes(info.size_bytes)],
        ...(info.wal_bytes == null
          ? []
          : [["Write-ahead log", bytes(info.wal_bytes)] as [string, string]]),
        ["Schema", info.schema],
        ["Its clock", <Time at={info.now} />],
        ["Python", info.python],
        ["Access", info.is_open ? "open: no token is needed" : "by token"],
      ]}
    />
  );
}

function Verdict({ isGood, text }: { isGood: boolean; text: string }) {
  return (
    <>
      <span class={`tag ${isGood ? "tag-good" : "tag-bad"}`}>{isGood ? "well" : "look"}</span>{" "}
      {text}
    </>
  );
}

function Health({ info }: { info: Info }) {
  const {
    connections,
    dead_tuples: tuples,
    oldest_transaction: oldest,
    expired_leases: leases,
  } = info;
  const facts: [string, preact.ComponentChildren][] = [
    [
      "Leases",
      <Verdict
        isGood={!leases.count}
        text={
          leases.count
            ? `${count(leases.count)} expired, the oldest ${duration(leases.oldest_seconds)} ago`
            : "none has expired"
        }
      />,
    ],
  ];
  if (info.wal_bytes != null) {
    facts.push([
      "Log",
      <Verdict
        isGood={info.wal_bytes < WAL_BYTES_MANY}
        text={`${bytes(info.wal_bytes)} wait to be folded into the file`}
      />,
    ]);
  }
  if (connections) {
    facts.push([
      "Connections",
      <Verdict
        isGood={connections.used < connections.limit * 0.8}
        text={`${connections.used} of ${connections.limit}`}
      />,
    ]);
  }
  if (tuples) {
    const vacuum =
      tuples.vacuum_seconds == null
        ? "vacuum has not come yet"
        : `vacuum came ${duration(tuples.vacuum_seconds)} ago`;
    facts.push([
      "Dead tuples",
      <Verdict
        isGood={tuples.dead < DEAD_TUPLES_MANY}
        text={`${count(tuples.dead)} beside ${count(tuples.live)} live, ${vacuum}`}
      />,
    ]);
  }
  if (info.store === "postgres") {
    facts.push([
      "Oldest transaction",
      <Verdict
        isGood={!oldest || oldest.seconds < OLD_TRANSACTION_SECONDS}
        text={
          oldest
            ? `${duration(oldest.seconds)}, ${oldest.state}, held by ${holder(oldest)}`
            : "none open"
        }
      />,
    ]);
  }
  return <Facts facts={facts} />;
}

function holder(oldest: Schemas["OldestTransaction"]): string {
  const program = oldest.application ? ` (${oldest.application})` : "";
  return `${oldest.user}${program}, ${oldest.pid ? `process ${oldest.pid}` : "prepared"}`;
}

function Migrations({ info }: { info: Info }) {
  return (
    <ol class="lines">
      {info.migrations.map((each) => (
        <li key={each.number}>
          <span class="soft">{String(each.number).padStart(4, "0")}</span>
          <span class="grow">{each.name.replaceAll("_", " ")}</span>
          <span class={`tag ${each.is_applied ? "tag-good" : "tag-bad"}`}>
            {each.is_applied ? "applied" : "missing"}
          </span>
        </li>
      ))}
    </ol>
  );
}

function Tokens() {
  const live = useLive(
    (signal) => getWhole<Schemas["Tokens"]>("v1/tokens", "tokens", signal),
    EVERY_MS * 4,
    [],
  );
  return (
    <Panel
      title="Tokens"
      class="below"
      aside={
        me.value?.can_create_tokens ? (
          <Button icon="plus" onClick={() => open(<NewToken refresh={live.refresh} />)}>
            New token
          </Button>
        ) : null
      }
    >
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {live.data?.tokens.length === 0 ? <p class="soft">There are no tokens yet.</p> : null}
      {live.data?.tokens.length ? (
        <ul class="lines">
          {live.data.tokens.map((each) => (
            <TokenLine key={each.id} token={each} refresh={live.refresh} />
          ))}
        </ul>
      ) : null}
      {!live.data && !live.problem ? <Skeleton rows={3} /> : null}
    </Panel>
  );
}

function TokenLine({ token, refresh }: { token: Token; refresh: () => void }) {
  const isOver =
    token.revoked_at !== null ||
    (token.expires_at !== null && Date.parse(token.expires_at) < Date.now());
  return (
    <li class="wrap">
      <span class="grow name">
        <b>{token.name}</b> <code>{token.id}</code>
      </span>
      {token.scopes.map((each) => (
        <span class="tag" key={each}>
          {each}
        </span>
      ))}
      {token.tenant ? <span class="soft">of {token.tenant}</span> : null}
      <span class="soft">
        {token.revoked_at ? (
          <>
            revoked <Time at={token.revoked_at} />
          </>
        ) : token.expires_at ? (
          <>
            {isOver ? "expired" : "expires"} <Time at={token.expires_at} />
          </>
        ) : (
          "does not expire"
        )}
      </span>
      <span class="soft">
        {token.last_used_at ? (
          <>
            used <Time at={token.last_used_at} />
          </>
        ) : (
          "never used"
        )}
      </span>
      {isOver ? null : (
        <Button
          kind="danger"
          label={`Revoke ${token.name}`}
          onClick={() =>
            open(
              <Confirm
                title={`Revoke ${token.name}?`}
                verb="Revoke"
                isDanger
                act={async () => {
                  await remove(`v1/tokens/${part(token.id)}`);
                  tell(`${token.name} is revoked`);
                  deeds.value += 1;
                  refresh();
                }}
              >
                <p>Requests with it are refused at once. This can't be undone.</p>
              </Confirm>,
            )
          }
        >
          Revoke
        </Button>
      )}
    </li>
  );
}

function NewToken({ refresh }: { refresh: () => void }) {
  const [made, setMade] = useState<Schemas["MadeToken"]>();
  const [problem, setProblem] = useState<Problem>();
  const [name, setName] = useState("");
  const [scope, setScope] = useState("read");
  const [tenant, setTenant] = useState("");
  const [days, setDays] = useState("30");
  async function make(event: Event): Promise<void> {
    event.preventDefault();
    setProblem(undefined);
    try {
      const expires = days ? Number(days) * 86_400 : null;
      const body = { name, scopes: [scope], tenant: tenant || null, expires };
      const answer = await post<Schemas["MadeToken"]>("v1/tokens", body);
      setMade(answer);
      deeds.value += 1;
      refresh();
    } catch (error) {
      setProblem(asProblem(error));
    }
  }
  if (made) {
    return (
      <Dialog
        title="The token is made"
        footer={
          <Button kind="primary" onClick={close}>
            Done
          </Button>
        }
      >
        <p>Copy it now: it isn't shown again.</p>
        <span class="command">
          <code>{made.token}</code>
          <CopyButton text={made.token} label="Copy the token" />
        </span>
      </Dialog>
    );
  }
  return (
    <Dialog title="New token">
      <form class="form" onSubmit={make}>
        <div class="field">
          <label for="token-name">Name</label>
          <input
            id="token-name"
            required
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </div>
        <div class="field">
          <label for="token-scope">Scope</label>
          <select
            id="token-scope"
            value={scope}
            onChange={(event) => setScope(event.currentTarget.value)}
          >
            {["read", "enqueue", "work", "admin"].map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </div>
        <div class="field">
          <label for="token-tenant">
            Tenant<small>all, if empty</small>
          </label>
          <input
            id="token-tenant"
            value={tenant}
            onInput={(event) => setTenant(event.currentTarget.value)}
          />
        </div>
        <div class="field">
          <label for="token-days">
            Valid for days<small>forever, if empty</small>
          </label>
          <input
            id="token-days"
            inputMode="numeric"
            pattern="[0-9]*"
            value={days}
            onInput={(event) => setDays(event.currentTarget.value)}
          />
        </div>
        {problem ? <Trouble problem={problem} /> : null}
        <Button type="submit" kind="primary">
          Make it
        </Button>
      </form>
    </Dialog>
  );
}

function Audit() {
  const [pages, setPages] = useState<Schemas["AuditEntry"][]>([]);
  const [next, setNext] = useState<string | null | undefined>(undefined);
  const live = useLive(
    (signal) => get<Schemas["AuditPage"]>("v1/audit", { limit: 25 }, signal),
    EVERY_MS,
    [deeds.value],
  );
  const following = next === undefined ? live.data?.next : next;
  const entries = [...(live.data?.entries ?? []), ...pages];
  async function more(): Promise<void> {
    const page = await get<Schemas["AuditPage"]>("v1/audit", {
      limit: 50,
      cursor: following ?? undefined,
    });
    setPages([...pages, ...page.entries]);
    setNext(page.next);
  }
  return (
    <Panel title="Who did what" class="below">
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {!live.data && !live.problem ? <Skeleton rows={4} /> : null}
      {live.data && !entries.length ? (
        <p class="soft">Nothing has been changed over HTTP in the last 90 days.</p>
      ) : null}
      <ul class="lines audit">
        {entries.map((each) => (
          <li key={each.id} class="wrap">
            <span class="soft audit-when">
              <Time at={each.at} />
            </span>
            <b>{each.actor}</b>
            <span class="tag">{each.action}</span>
            <code class="grow" title={each.target}>
              {each.target}
            </code>
            <code class="soft audit-detail" title={stringify(each.detail as JsonObject, 0)}>
              {stringify(each.detail as JsonObject, 0)}
            </code>
          </li>
        ))}
      </ul>
      {following ? <Button onClick={() => void more()}>Older</Button> : null}
    </Panel>
  );
}
