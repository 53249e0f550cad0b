// A JSON value as a tree: parts can be folded, numbers keep all their digits, text stays text.

import { useState } from "preact/hooks";

import { Digits, type Json, stringify } from "../json.ts";
import { CopyButton } from "./basics.tsx";
import { Icon } from "./icons.tsx";

const OPEN_DEPTH = 3;
const OPEN_ITEMS_MAX = 50;
const SHOWN_MAX = 200;
const TEXT_MAX = 600;

export function Tree({ value, label }: { value: Json; label: string }) {
  return (
    <div class="tree" role="group" aria-label={label}>
      <CopyButton text={stringify(value)} label={`Copy ${label.toLowerCase()} as JSON`} />
      <Node value={value} depth={0} />
    </div>
  );
}

function Node({ value, name, depth }: { value: Json; name?: string; depth: number }) {
  if (value !== null && typeof value === "object" && !(value instanceof Digits)) {
    return <Branch value={value} name={name} depth={depth} />;
  }
  return (
    <div class="leaf">
      <Name name={name} />
      <Leaf value={value} />
    </div>
  );
}

function Name({ name }: { name: string | undefined }) {
  return name === undefined ? null : (
    <>
      <span class="json-name">{name}</span>
      <span class="json-mark">: </span>
    </>
  );
}

function Branch({
  value,
  name,
  depth,
}: {
  value: Json[] | { [name: string]: Json };
  name: string | undefined;
  depth: number;
}) {
  const entries = Object.entries(value);
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH && entries.length <= OPEN_ITEMS_MAX);
  const [shown, setShown] = useState(SHOWN_MAX);
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!entries.length) {
    return (
      <div class="leaf">
        <Name name={name} />
        <span class="json-mark">
          {left}
          {right}
        </span>
      </div>
    );
  }
  return (
    <div class="branch">
      <button type="button" class="fold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name={isOpen ? "down" : "right"} size={12} />
        <Name name={name} />
        <span class="json-mark">{left}</span>
        {isOpen ? null : (
          <span class="json-more">
            {entries.length} {entries.length === 1 ? "item" : "items"} {right}
          </span>
        )}
      </button>
      {isOpen ? (
        <div class="twigs">
          {entries.slice(0, shown).map(([key, each]) => (
            <Node key={key} name={key} value={each} depth={depth + 1} />
          ))}
          {entries.length > shown ? (
            <button type="button" class="more" onClick={() => setShown(shown + SHOWN_MAX * 5)}>
              {entries.length - shown} more
            </button>
          ) : null}
        </div>
      ) : null}
      {isOpen ? <span class="json-mark">{right}</span> : null}
    </div>
  );
}

function Leaf({ value }: { value: null | boolean | number | string | Digits }) {
  const [isWhole, setWhole] = useState(false);
  if (value === null) return <span class="json-word">null</span>;
  if (typeof value === "boolean") return <span class="json-word">{String(value)}</span>;
  if (typeof value !== "string") return <span class="json-number">{String(value)}</span>;
  const isCut = value.length > TEXT_MAX && !isWhole;
  return (
    <span class="json-text">
      {JSON.stringify(isCut ? value.slice(0, TEXT_MAX) : value)}
      {isCut ? (
        <button type="button" class="more" onClick={() => setWhole(true)}>
          … {value.length - TEXT_MAX} more characters
        </button>
      ) : null}
    </span>
  );
}
