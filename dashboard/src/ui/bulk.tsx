// Work on many jobs: asked for with a count, and watched.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import type { Problem, Schemas } from "../api.ts";
import { counted, plural } from "../format.ts";
import {
  type Action,
  bulks,
  type BulkFilter,
  dropBulk,
  preview,
  startBulk,
  VERBS,
} from "../jobs.ts";
import { asProblem } from "../live.ts";
import { Button, Meter, Skeleton, Trouble } from "./basics.tsx";
import { close, Dialog } from "./dialog.tsx";

/** From so many on, work without a filter has to be asked for by their number. */
const TYPED_FROM = 1000;

/** Says how many fit before anything is done; `changed` is called once it has ended. */
export function BulkDialog({
  action,
  filter,
  words,
  changed,
  isAll = false,
  extra = {},
  title,
  children,
}: {
  action: Action;
  filter: BulkFilter;
  /** "dead jobs of kind send_email" */
  words: string;
  changed: () => void;
  /** Nothing narrows it down. */
  isAll?: boolean;
  extra?: Partial<Schemas["NewBulk"]>;
  title?: string;
  children?: ComponentChildren;
}) {
  const [count, setCount] = useState<Schemas["Count"]>();
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  const [typed, setTyped] = useState("");
  const verb = VERBS[action].name;
  const mustType = isAll && (count?.value ?? 0) >= TYPED_FROM;
  const isTyped = !mustType || Number(typed.replace(/[,\s]/g, "")) === count?.value;

  function look(): void {
    const { per_second: _, ...wanted } = extra;
    preview(action, filter, wanted).then(setCount, (error: unknown) =>
      setProblem(asProblem(error)),
    );
  }
  useEffect(look, []);

  async function begin(expected: number): Promise<void> {
    const body = { ...extra, action, filter, expected, preview: false } as Schemas["NewBulk"];
    setBusy(true);
    setProblem(undefined);
    try {
      await startBulk(body, changed);
      close();
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
      look();
    }
  }

  return (
    <Dialog
      title={title ?? (isAll ? `${verb}: ALL jobs` : `${verb} all that match`)}
      footer={
        <>
          <Button onClick={close}>Not now</Button>
          <Button
            kind={action === "cancel" || action === "delete" ? "danger" : "primary"}
            isDisabled={isBusy || !count?.value || !isTyped}
            onClick={() => void begin(count!.value)}
          >
            {count ? `${verb} ${counted(count)}` : verb}
          </Button>
        </>
      }
    >
      <div class="dialog-text">
        {count === undefined && !problem ? <Skeleton rows={1} /> : null}
        {count ? (
          <p>
            <b>{counted(count)}</b> {words} {count.value === 1 ? "fits" : "fit"} now
            {count.exact ? "." : ", or more: counting stops at 10,000."} Jobs that come later are
            left alone.
          </p>
        ) : null}
        {isAll ? (
          <p class="warn-line">
            No filter is set: this is about <b>ALL</b> jobs.
          </p>
        ) : null}
        {children}
        {mustType ? (
          <label class="field">
            <span>
              Type <b>{count!.value}</b> to go on
            </span>
            <input
              inputMode="numeric"
              autocomplete="off"
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
            />
          </label>
        ) : null}
        {action === "delete" ? <p>Deleted jobs can't be brought back.</p> : null}
      </div>
      {problem ? <Trouble problem={problem} /> : null}
    </Dialog>
  );
}

export function BulkProgress() {
  return (
    <div class="bulks" aria-live="polite">
      {bulks.value.map((bulk) => {
        const total = Math.max(bulk.total.value, bulk.done + bulk.skipped, 1);
        const isOver = bulk.state !== "running";
        return (
          <div class="bulk" key={bulk.id}>
            <div class="bulk-text">
              <b>{VERBS[bulk.action].name}</b>
              <span>
                {plural(bulk.done, "job")} of {counted(bulk.total)}
                {bulk.skipped ? `, ${bulk.skipped} skipped: their key is in use again` : ""}
                {bulk.problem ? `, ${bulk.problem}` : ""}
              </span>
              {isOver ? <span class="tag">{bulk.state}</span> : null}
              <Button kind="ghost" icon="close" label="Dismiss" onClick={() => dropBulk(bulk.id)} />
            </div>
            <Meter
              value={isOver ? 1 : (bulk.done + bulk.skipped) / total}
              label={`${VERBS[bulk.action].name}, progress`}
            />
          </div>
        );
      })}
    </div>
  );
}
