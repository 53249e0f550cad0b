// Questions before something is done to jobs: is it meant, when, where to.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { getWhole, type Problem, type Schemas } from "../api.ts";
import { exact, seconds as secondsOf } from "../format.ts";
import { type Action, type Details, NEEDS_DETAILS, VERBS } from "../jobs.ts";
import { asProblem, now, useLive } from "../live.ts";
import { Button, Trouble } from "./basics.tsx";
import { close, Confirm, Dialog, open, shown } from "./dialog.tsx";
import { attempt } from "./toasts.tsx";

/**
 * Do it, after the question that it needs: a delete can't be taken back, a move needs a place.
 * `what` is "send_email" or "5 jobs".
 */
export function begin(
  action: Action,
  what: string,
  act: (details: Details) => Promise<void>,
): void {
  if (NEEDS_DETAILS.has(action)) {
    open(<DetailsDialog action={action} what={what} act={act} />);
    return;
  }
  if (action === "delete") {
    open(
      <Confirm title={`Delete ${what}?`} verb="Delete" isDanger act={() => act({})}>
        <p>It is removed with its payload, errors and log. That can't be undone.</p>
      </Confirm>,
    );
    return;
  }
  void attempt(() => act({}));
}

/** Asks for the time or the queue, and stays open, with the reason, if the API refuses it. */
export function DetailsDialog({
  action,
  what,
  act,
}: {
  action: Action;
  what: string;
  act: (details: Details) => Promise<void>;
}) {
  const [details, setDetails] = useState<Details>();
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  async function run(event: Event): Promise<void> {
    event.preventDefault();
    if (!details) return;
    setBusy(true);
    setProblem(undefined);
    try {
      const own = shown();
      await act(details);
      // It may have led to another question.
      if (shown() === own) close();
    } catch (error) {
      setProblem(asProblem(error));
      setBusy(false);
    }
  }
  const Fields = action === "reroute" ? QueueField : TimeField;
  return (
    <Dialog title={action === "reroute" ? `Move ${what} to a queue` : `Reschedule ${what}`}>
      <form class="form" onSubmit={run}>
        <Fields set={setDetails} />
        {problem ? <Trouble problem={problem} /> : null}
        <div class="dialog-foot">
          <Button onClick={close}>Not now</Button>
          <Button type="submit" kind="primary" isDisabled={!details || isBusy}>
            {VERBS[action].name === "Reschedule" ? "Reschedule" : "Move"}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Field({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
    </label>
  );
}

function QueueField({ set }: { set: (details: Details | undefined) => void }) {
  const queues = useLive(
    (signal) => getWhole<Schemas["Queues"]>("v1/queues", "queues", signal),
    0,
    [],
  );
  return (
    <Field label="Queue">
      <input
        list="queue-names"
        autocomplete="off"
        required
        onInput={(event) => {
          const queue = event.currentTarget.value.trim();
          set(queue ? { queue } : undefined);
        }}
      />
      <datalist id="queue-names">
        {queues.data?.queues.map((each) => (
          <option key={each.queue} value={each.queue} />
        ))}
      </datalist>
    </Field>
  );
}

/** "in 2h", or a date and time in the reader's zone. */
function TimeField({ set }: { set: (details: Details | undefined) => void }) {
  const [text, setText] = useState("");
  const at = momentOf(text, now.value);
  return (
    <>
      <Field label="When">
        <input
          autocomplete="off"
          required
          placeholder="10 min, 2h, 1d, or 2030-01-31 09:30"
          value={text}
          onInput={(event) => {
            const next = event.currentTarget.value;
            setText(next);
            const found = momentOf(next, now.peek());
            set(found === undefined ? undefined : { runAt: new Date(found).toISOString() });
          }}
        />
      </Field>
      <p class="soft" role="status">
        {text === ""
          ? "\u00a0"
          : at === undefined
            ? "Write how long from now, or a date and a time."
            : exact(new Date(at)).replace(/\.\d+/, "")}
      </p>
    </>
  );
}

/** The time that was typed, in milliseconds; undefined if it is none. */
export function momentOf(text: string, now: number): number | undefined {
  const typed = text.trim().replace(/^in\s+/, "");
  const wait = secondsOf(typed);
  if (wait !== undefined) return now + wait * 1000;
  if (!/^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}/.test(typed)) return undefined;
  const at = Date.parse(typed.replace(" ", "T"));
  return Number.isNaN(at) ? undefined : at;
}
