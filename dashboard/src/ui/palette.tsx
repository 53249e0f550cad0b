// Jump to anything by typing a part of its name: screens, kinds, queues, a job by its id.

import { useEffect, useRef, useState } from "preact/hooks";

import { get, getWhole, type Schemas, signOut } from "../api.ts";
import { fromSearch, ID, inWords, STATES, toQuery } from "../filters.ts";
import { isPaused } from "../live.ts";
import { visible } from "../places.ts";
import { go, to } from "../router.ts";
import { may, me } from "../session.ts";
import { isDark, turn } from "../theme.ts";
import { close, open } from "./dialog.tsx";
import { Icon, type IconName } from "./icons.tsx";

interface Entry {
  text: string;
  group: string;
  icon: IconName;
  act: () => void;
}

const SHOWN_MAX = 12;

export function showPalette(): void {
  open(<Palette />);
}

function Palette() {
  const [text, setText] = useState("");
  const [place, setPlace] = useState(0);
  const [named, setNamed] = useState<Entry[]>([]);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current?.showModal();
    let isOver = false;
    void loadNames().then((found) => {
      if (!isOver) setNamed(found);
    });
    return () => {
      isOver = true;
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  const found = matching([...fixed(), ...named], text);
  const chosen = Math.min(place, found.length - 1);

  function run(entry: Entry | undefined): void {
    if (!entry) return;
    close();
    entry.act();
  }

  function hear(event: KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setPlace((chosen + step + found.length) % found.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(found[chosen]);
    }
  }

  return (
    <dialog
      ref={dialog}
      class="dialog palette"
      aria-label="Search or jump"
      onClose={close}
      onMouseDown={(event) => {
        if (event.target === dialog.current) close();
      }}
    >
      <div class="palette-box">
        <Icon name="search" />
        <input
          type="text"
          autofocus
          placeholder="Search jobs, or jump to a screen, kind or queue"
          aria-label="Search or jump"
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-list"
          aria-activedescendant={`palette-${chosen}`}
          autocomplete="off"
          spellcheck={false}
          value={text}
          onKeyDown={hear}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setPlace(0);
          }}
        />
        <kbd>Esc</kbd>
      </div>
      <ul id="palette-list" role="listbox" aria-label="Found">
        {found.map((entry, number) => (
          <li
            key={`${entry.group} ${entry.text}`}
            id={`palette-${number}`}
            role="option"
            aria-selected={number === chosen}
            onMouseMove={() => setPlace(number)}
            onClick={() => run(entry)}
          >
            <Icon name={entry.icon} /> <span>{entry.text}</span> <small>{entry.group}</small>
          </li>
        ))}
      </ul>
    </dialog>
  );
}

function fixed(): Entry[] {
  const entries: Entry[] = visible().map((each) => ({
    text: each.title,
    group: "Go to",
    icon: each.icon,
    act: () => go(to([each.path])),
  }));
  if (may("read")) {
    for (const state of STATES) {
      entries.push({
        text: `${state} jobs`,
        group: "Jobs",
        icon: "jobs",
        act: () => go(to(["jobs"], { state })),
      });
    }
  }
  entries.push(
    {
      text: isDark.value ? "Light colours" : "Dark colours",
      group: "Do",
      icon: isDark.value ? "sun" : "moon",
      act: turn,
    },
    {
      text: isPaused.value ? "Resume live updates" : "Pause live updates",
      group: "Do",
      icon: "pause",
      act: () => (isPaused.value = !isPaused.value),
    },
  );
  if (me.value?.token_id)
    entries.push({ text: "Sign out", group: "Do", icon: "exit", act: () => void signOut() });
  return entries;
}

async function loadNames(): Promise<Entry[]> {
  const kinds = get<Schemas["Kinds"]>("v1/kinds").then(
    (found) =>
      found.kinds.map((each) => entry(each.kind, "Kind", "kinds", to(["kinds", each.kind]))),
    () => [],
  );
  const queues = may("read")
    ? getWhole<Schemas["Queues"]>("v1/queues", "queues").then(
        (found) =>
          found.queues.map((each) =>
            entry(each.queue, "Queue", "queues", to(["queues", each.queue])),
          ),
        () => [],
      )
    : Promise.resolve([]);
  return (await Promise.all([kinds, queues])).flat();
}

function entry(text: string, group: string, icon: IconName, address: string): Entry {
  return { text, group, icon, act: () => go(address) };
}

function matching(entries: Entry[], text: string): Entry[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return entries.slice(0, SHOWN_MAX);
  const found = entries
    .filter((each) => each.text.toLowerCase().includes(wanted))
    .sort((a, b) => rank(a, wanted) - rank(b, wanted));
  if (!may("read")) return found.slice(0, SHOWN_MAX);
  const { filter, faults } = fromSearch(text.trim());
  const search: Entry = ID.test(wanted)
    ? { text: `Job ${wanted}`, group: "Open", icon: "jobs", act: () => go(to(["jobs", wanted])) }
    : {
        text: faults[0] ?? inWords(filter),
        group: "Search",
        icon: "search",
        act: () => go(to(["jobs"], faults.length ? { search: text.trim() } : toQuery(filter))),
      };
  const isNamed = ID.test(wanted) || /\w:\S/.test(wanted);
  const rest = found.slice(0, SHOWN_MAX - 1);
  return isNamed ? [search, ...rest] : [...rest, search];
}

function rank(entry: Entry, wanted: string): number {
  return entry.text.toLowerCase().startsWith(wanted) ? 0 : 1;
}
