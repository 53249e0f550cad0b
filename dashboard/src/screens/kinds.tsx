import { useMemo, useState } from "preact/hooks";

import { getExact, postExact, type Problem, type Schemas } from "../api.ts";
import { build, type Field, fieldsOf, type Typed } from "../fields.ts";
import { duration, plural, seconds as secondsOf } from "../format.ts";
import { isObject, type JsonObject, parse } from "../json.ts";
import { asProblem, useLive } from "../live.ts";
import { to } from "../router.ts";
import { may } from "../session.ts";
import {
  Button,
  Command,
  Empty,
  Facts,
  Head,
  Panel,
  sentence,
  Skeleton,
  Trouble,
} from "../ui/basics.tsx";
import { Icon } from "../ui/icons.tsx";
import { tell } from "../ui/toasts.tsx";
import { Tree } from "../ui/tree.tsx";
import { KindHistory, KindRates } from "./kindhistory.tsx";

export type Kind = Omit<Schemas["Kind"], "schema"> & { schema: JsonObject | null };

const EVERY_MS = 15_000;

async function load(signal: AbortSignal): Promise<Kind[]> {
  return (await getExact<{ kinds: Kind[] }>("v1/kinds", {}, signal)).kinds;
}

export function Kinds() {
  const live = useLive(load, EVERY_MS, []);
  const kinds = live.data;
  return (
    <>
      <Head title="Kinds" sub="The sorts of jobs that this server or a live worker knows." />
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {kinds === undefined && !live.problem ? <Skeleton /> : null}
      {kinds?.length === 0 ? (
        <Empty icon="kinds" title="No kinds are known here">
          <p>Start the server with your app, or a worker that has tasks:</p>
          <Command>rowlock --app shop:app serve</Command>
        </Empty>
      ) : null}
      {kinds?.length ? <KindRates kinds={kinds} /> : null}
    </>
  );
}

export function KindScreen({ kind }: { kind: string }) {
  const live = useLive(load, EVERY_MS, []);
  const found = live.data?.find((each) => each.kind === kind);
  return (
    <>
      <nav class="crumbs" aria-label="Where this is">
        <a href="#/kinds">Kinds</a> <Icon name="right" size={12} />
      </nav>
      <Head title={kind}>
        {may("read") ? (
          <a class="button" href={to(["jobs"], { kind })}>
            <Icon name="jobs" /> <span>Its jobs</span>
          </a>
        ) : null}
      </Head>
      {live.problem ? <Trouble problem={live.problem} retry={live.refresh} /> : null}
      {live.data === undefined && !live.problem ? <Skeleton /> : null}
      {live.data && !found ? (
        <p class="soft">
          Neither this server nor a live worker knows this kind; its jobs may still be there.
        </p>
      ) : null}
      {may("read") ? <KindHistory kind={kind} /> : null}
      {found ? (
        <div class="columns">
          <div class="main-column">{may("enqueue") ? <EnqueuePanel kind={found} /> : null}</div>
          <div class="side-column">
            <Panel title="Settings">
              <Settings kind={found} />
            </Panel>
            {found.schema ? (
              <Panel title="Schema">
                <Tree value={found.schema} label="Schema" />
              </Panel>
            ) : null}
          </div>
        </div>
      ) : null}
    </>
  );
}

function Settings({ kind }: { kind: Kind }) {
  if (!kind.is_known) {
    return (
      <p class="soft">
        Known by {plural(kind.workers, "live worker")}, by its name only: this server was started
        without its app.
      </p>
    );
  }
  return (
    <Facts
      facts={[
        ["Live workers", kind.workers],
        ["Queue", kind.queue],
        ["Priority", kind.priority],
        ["Attempts", kind.max_attempts],
        ["Time limit", kind.timeout == null ? "none" : duration(kind.timeout)],
        [
          "Kept once ended",
          kind.keep == null ? "forever" : kind.keep === 0 ? "not at all" : duration(kind.keep),
        ],
        ...(kind.cron ? [["Scheduled", kind.cron] as [string, string]] : []),
      ]}
    />
  );
}

function EnqueuePanel({ kind }: { kind: Kind }) {
  const fields = useMemo(() => (kind.schema ? fieldsOf(kind.schema) : undefined), [kind.kind]);
  const [isJson, setJson] = useState(fields === undefined);
  return (
    <Panel
      title="Enqueue"
      class="enqueue"
      aside={
        fields ? (
          <Button kind="ghost" onClick={() => setJson(!isJson)}>
            {isJson ? "As a form" : "As JSON"}
          </Button>
        ) : null
      }
    >
      <EnqueueForm key={String(isJson)} kind={kind} fields={isJson ? undefined : fields} />
    </Panel>
  );
}

function EnqueueForm({ kind, fields }: { kind: Kind; fields: Field[] | undefined }) {
  const [values, setValues] = useState<Typed>(() => initial(fields));
  const [text, setText] = useState("{}");
  const [options, setOptions] = useState({ queue: "", key: "", delay: "" });
  const [faults, setFaults] = useState<Record<string, string>>({});
  const [problem, setProblem] = useState<Problem>();

  function payload(): JsonObject | undefined {
    if (fields) {
      const made = build(fields, values);
      if ("payload" in made) return made.payload;
      setFaults(made.problems);
      return undefined;
    }
    try {
      const value = parse(text);
      if (isObject(value)) return value;
      setFaults({ payload: "must be a JSON object" });
    } catch (error) {
      setFaults({ payload: asProblem(error).message });
    }
    return undefined;
  }

  async function enqueue(event: Event): Promise<void> {
    event.preventDefault();
    setFaults({});
    setProblem(undefined);
    const made = payload();
    const delay = options.delay ? secondsOf(options.delay) : 0;
    if (delay === undefined) return setFaults({ delay: "such as 90, 5 min or 2h" });
    if (!made) return;
    const body: JsonObject = { kind: kind.kind, payload: made };
    if (options.queue) body["queue"] = options.queue;
    if (options.key) body["key"] = options.key;
    if (delay) body["delay"] = delay;
    try {
      const receipt = await postExact<Schemas["JobReceipt"]>("v1/jobs", body);
      const told = receipt.created
        ? `${kind.kind} is enqueued`
        : "A job with this key is there already";
      tell(told, may("read") ? { href: to(["jobs", receipt.id]) } : {});
    } catch (error) {
      const told = asProblem(error);
      const named = told.fields.map((each) => [
        each.field.replace(/^payload\.?/, "") || "payload",
        each.message,
      ]);
      setFaults(Object.fromEntries(named) as Record<string, string>);
      setProblem(told);
    }
  }

  return (
    <form class="form" onSubmit={enqueue} noValidate>
      {fields?.map((field) => (
        <FieldInput
          key={field.name}
          field={field}
          value={values[field.name] ?? ""}
          fault={faults[field.name]}
          set={(value) => setValues({ ...values, [field.name]: value })}
        />
      ))}
      {fields?.length === 0 ? <p class="soft">It takes no arguments.</p> : null}
      {fields ? null : (
        <Labelled name="payload" label="Payload, a JSON object" fault={faults["payload"]}>
          <textarea
            id="field-payload"
            class="editor"
            rows={8}
            spellcheck={false}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </Labelled>
      )}
      <details class="more-options">
        <summary>Queue, key, delay</summary>
        <div class="form-row">
          <Option name="queue" hint={kind.queue ?? "default"} options={options} set={setOptions} />
          <Option name="key" hint="one job in flight per key" options={options} set={setOptions} />
          <Option
            name="delay"
            hint="90, 5 min, 2h"
            options={options}
            set={setOptions}
            fault={faults["delay"]}
          />
        </div>
      </details>
      {problem && !Object.keys(faults).length ? <Trouble problem={problem} /> : null}
      <Button type="submit" kind="primary" icon="plus">
        Enqueue
      </Button>
    </form>
  );
}

function initial(fields: Field[] | undefined): Typed {
  return Object.fromEntries(
    (fields ?? []).map((field) => [
      field.name,
      field.type === "boolean"
        ? field.initial || (field.isRequired ? "false" : "")
        : field.initial === "null"
          ? ""
          : field.initial,
    ]),
  );
}

type Options = { queue: string; key: string; delay: string };

function Option({
  name,
  hint,
  options,
  set,
  fault,
}: {
  name: keyof Options;
  hint: string;
  options: Options;
  set: (next: Options) => void;
  fault?: string | undefined;
}) {
  return (
    <Labelled name={name} label={name} fault={fault}>
      <input
        id={`field-${name}`}
        type="text"
        placeholder={hint}
        value={options[name]}
        autocomplete="off"
        onInput={(event) => set({ ...options, [name]: event.currentTarget.value })}
      />
    </Labelled>
  );
}

function Labelled({
  name,
  label,
  hint,
  fault,
  children,
}: {
  name: string;
  label: string;
  hint?: string;
  fault?: string | undefined;
  children: preact.ComponentChildren;
}) {
  return (
    <div class="field">
      <label for={`field-${name}`}>
        {label}
        {hint ? <small>{hint}</small> : null}
      </label>
      {children}
      {fault ? (
        <p class="fault" role="alert">
          {sentence(fault)}
        </p>
      ) : null}
    </div>
  );
}

function FieldInput({
  field,
  value,
  fault,
  set,
}: {
  field: Field;
  value: string;
  fault: string | undefined;
  set: (value: string) => void;
}) {
  const id = `field-${field.name}`;
  const hint = [field.hint, field.isRequired ? "required" : "", field.description]
    .filter(Boolean)
    .join(" · ");
  const listen = (event: { currentTarget: { value: string } }) => set(event.currentTarget.value);
  return (
    <Labelled name={field.name} label={field.name} hint={hint} fault={fault}>
      {field.type === "choice" || field.type === "boolean" ? (
        <select id={id} value={value} onChange={listen}>
          {field.isRequired ? null : <option value="">(left out)</option>}
          {(field.type === "boolean" ? ["true", "false"] : field.choices).map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      ) : field.type === "json" ? (
        <textarea
          id={id}
          class="editor"
          rows={4}
          spellcheck={false}
          value={value}
          onInput={listen}
        />
      ) : (
        <input
          id={id}
          type="text"
          value={value}
          onInput={listen}
          autocomplete="off"
          inputMode={field.type === "text" ? "text" : "decimal"}
        />
      )}
    </Labelled>
  );
}
