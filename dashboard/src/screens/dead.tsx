import { useState } from "preact/hooks";

import { get, type Schemas } from "../api.ts";
import { counted, plural } from "../format.ts";
import { type Action, type BulkFilter, VERBS } from "../jobs.ts";
import { useLive } from "../live.ts";
import { to } from "../router.ts";
import { may } from "../session.ts";
import {
  Button,
  Command,
  Count,
  Empty,
  Head,
  KindLink,
  Skeleton,
  Time,
  Trouble,
} from "../ui/basics.tsx";
import { BulkDialog, BulkProgress } from "../ui/bulk.tsx";
import { open } from "../ui/dialog.tsx";

type Group = Schemas["DeadGroup"];

const EVERY_MS = 10_000;

export function Dead() {
  const live = useLive(
    (signal) => get<Schemas["DeadGroups"]>("v1/dead/groups", {}, signal),
    EVERY_MS,
    [],
  );
  const groups = live.data?.groups;
  return (
    <>
      <Head
        title="Dead letters"
        sub="Jobs that were given up, by what they died of; the newest failure first."
      >
        {groups?.length ? (
          <a class="button" href={to(["jobs"], { state: "dead" })}>
            One by one
          </a>
        ) : null}
      </Head>
      <BulkProgress />
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {!groups && !live.problem ? <Skeleton /> : null}
      {groups?.length === 0 ? (
        <Empty icon="check" title="Nothing is dead">
          <p>
            A job comes here when its attempts are used up, or when its handler gives up on purpose:
          </p>
          <Command>raise rowlock.Fail("that is no e-mail address")</Command>
        </Empty>
      ) : null}
      {groups?.length ? (
        <ul class="cards">
          {groups.map((each) => (
            <Card key={each.fingerprint} group={each} refresh={live.refresh} />
          ))}
        </ul>
      ) : null}
      {live.data?.is_cut ? (
        <p class="soft">There are more groups, or older failures: filter the jobs to see them.</p>
      ) : null}
    </>
  );
}

function Card({ group, refresh }: { group: Group; refresh: () => void }) {
  const address = to(["jobs"], { state: "dead", fingerprint: group.fingerprint });
  return (
    <li class="card group">
      <a class="group-count" href={address} aria-label={`${counted(group.count)} jobs`}>
        <Count value={group.count} />
      </a>
      <div class="card-main">
        <h2>
          <span class="error-line">{group.error}</span> in <KindLink kind={group.kind} />
        </h2>
        <p class="group-message">{group.message}</p>
        <p class="soft">
          {group.place ? (
            <>
              <code>{group.place}</code> ·{" "}
            </>
          ) : null}
          last <Time at={group.last_at} />, first <Time at={group.first_at} /> ·{" "}
          <a href={to(["jobs", group.sample_id])}>a sample</a>
        </p>
      </div>
      {may("admin") ? (
        <div class="card-actions">
          <Button
            icon="retry"
            label={`Retry ${group.error} in ${group.kind}`}
            onClick={() => open(<GroupDialog action="retry" group={group} refresh={refresh} />)}
          >
            Retry
          </Button>
          <Button
            kind="danger"
            icon="trash"
            label={`Delete ${group.error} in ${group.kind}`}
            onClick={() => open(<GroupDialog action="delete" group={group} refresh={refresh} />)}
          >
            Delete
          </Button>
        </div>
      ) : null}
    </li>
  );
}

const RATES: [number, string][] = [
  [0, "as fast as it goes"],
  [1, "1 a second"],
  [10, "10 a second"],
  [100, "100 a second"],
  [1000, "1,000 a second"],
];

function GroupDialog({
  action,
  group,
  refresh,
}: {
  action: Action;
  group: Group;
  refresh: () => void;
}) {
  const [rate, setRate] = useState(0);
  const filter: BulkFilter = { state: "dead", fingerprint: group.fingerprint };
  return (
    <BulkDialog
      action={action}
      filter={filter}
      changed={refresh}
      title={`${VERBS[action].name} this group`}
      words={`dead jobs of kind ${group.kind} with ${group.error}`}
      extra={rate ? { per_second: rate } : {}}
    >
      <label class="choice">
        <span>How fast</span>
        <select
          value={String(rate)}
          onChange={(event) => setRate(Number(event.currentTarget.value))}
        >
          {RATES.map(([each, text]) => (
            <option key={each} value={String(each)}>
              {text}
            </option>
          ))}
        </select>
      </label>
      {rate ? (
        <p class="soft">
          {plural(group.count.value, "job")} take about {Math.ceil(group.count.value / rate)} s at
          that rate.
        </p>
      ) : null}
    </BulkDialog>
  );
}
