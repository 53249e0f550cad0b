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
import { afterGrace } from "./toasts.tsx";

/** Says how many fit before anything is done; `changed` is called once it has ended. */
export function BulkDialog({
  action,
  filter,
  words,
  changed,
  extra,
  title,
  children,
}: {
  action: Action;
  filter: BulkFilter;
  /** "dead jobs of kind send_email" */
  words: string;
  changed: () => void;
  extra?: Partial<Schemas["NewBulk"]>;
  title?: string;
  children?: ComponentChildren;
}) {
  const [count, setCount] = useState<Schemas["Count"]>();
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  const verb = VERBS[action];

  function look(): void {
    preview(action, filter).then(setCount, (error: unknown) => setProblem(asProblem(error)));
  }
  useEffect(look, []);

  async function begin(expected: number): Promise<void> {
    const body = { ...extra, action, filter, expected, preview: false } as Schemas["NewBulk"];
    if (action === "delete") {
      close();
      afterGrace(
        `${counted(count!)} ${words} will be deleted`,
        () => startBulk(body, changed),
        changed,
      );
      return;
    }
    setBusy(true);
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
      title={title ?? `${verb} all that match`}
      footer={
        <>
          <Button onClick={close}>Not now</Button>
          <Button
            kind={action === "retry" ? "primary" : "danger"}
            isDisabled={isBusy || !count?.value}
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
            {count.exact ? "." : ", or more: counting stops at 10,000."} What comes later is left
            alone.
          </p>
        ) : null}
        {children}
        {action === "delete" ? (
          <p>What is deleted is gone; you have six seconds to call it off.</p>
        ) : null}
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
              <b>{VERBS[bulk.action]}</b>
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
              label={`${VERBS[bulk.action]}, progress`}
            />
          </div>
        );
      })}
    </div>
  );
}
