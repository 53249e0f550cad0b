// The frame around every screen: who is signed in, the menu, the keys, and what is shown now.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { get, type Problem, signIn, signOut } from "./api.ts";
import { watchConnection } from "./connection.ts";
import { zone } from "./format.ts";
import { asProblem } from "./live.ts";
import { PLACES, visible } from "./places.ts";
import { go, route, to } from "./router.ts";
import { Dead } from "./screens/dead.tsx";
import { JobScreen } from "./screens/job.tsx";
import { Jobs } from "./screens/jobs.tsx";
import { KindScreen, Kinds } from "./screens/kinds.tsx";
import { LimitScreen, Limits } from "./screens/limits.tsx";
import { Overview } from "./screens/overview.tsx";
import { QueueScreen } from "./screens/queue.tsx";
import { Queues } from "./screens/queues.tsx";
import { Schedules } from "./screens/schedules.tsx";
import { SignIn } from "./screens/signin.tsx";
import { System } from "./screens/system.tsx";
import { TenantScreen } from "./screens/tenant.tsx";
import { Workers } from "./screens/workers.tsx";
import { Workflows } from "./screens/workflows.tsx";
import { enter, isOver, may, me, type Me, takeLoginCode } from "./session.ts";
import { isDark, turn } from "./theme.ts";
import { Button, Empty, Skeleton, Trouble } from "./ui/basics.tsx";
import { Boundary } from "./ui/boundary.tsx";
import { AwayBanner, Pulse } from "./ui/connection.tsx";
import { Dialogs } from "./ui/dialog.tsx";
import { Icon } from "./ui/icons.tsx";
import { listenToKeys, showShortcuts } from "./ui/keys.tsx";
import { lazy } from "./ui/lazy.tsx";
import { showPalette } from "./ui/palette.tsx";
import { tell, Toasts } from "./ui/toasts.tsx";

// The graph is for those who look at one.
const WorkflowScreen = lazy(async () => (await import("./screens/workflow.tsx")).WorkflowScreen);

export function App() {
  const [problem, setProblem] = useState<Problem>();
  const [attempt, setAttempt] = useState(0);
  const [refused, setRefused] = useState<Problem>();
  useEffect(() => {
    async function begin(): Promise<void> {
      const code = takeLoginCode();
      try {
        if (code) await signIn(code).catch((error: unknown) => setRefused(asProblem(error)));
        enter(await get<Me>("v1/me"));
        setProblem(undefined);
      } catch (error) {
        const found = asProblem(error);
        if (found.status !== 401) setProblem(found);
      }
    }
    // The link may be opened in a tab that shows this page already.
    const again = () => void (location.hash.startsWith("#login=") && begin());
    void begin();
    addEventListener("hashchange", again);
    return () => removeEventListener("hashchange", again);
  }, [attempt]);
  useEffect(listenToKeys, []);
  useEffect(watchConnection, []);
  if (problem) {
    return (
      <main class="lonely">
        <h1>rowlock</h1>
        <Trouble problem={problem} retry={() => setAttempt(attempt + 1)} />
      </main>
    );
  }
  if (me.value === undefined)
    return (
      <main class="lonely">
        <Skeleton rows={3} />
      </main>
    );
  if (me.value === null) return <SignIn before={refused} key={refused?.message} />;
  return (
    <>
      {isOver.value ? <SignIn /> : null}
      <div class="whole" hidden={isOver.value}>
        <a class="skip" href="#main" onClick={skip}>
          Skip to the content
        </a>
        <Frame />
        <Dialogs />
        <Toasts />
      </div>
    </>
  );
}

function skip(event: Event): void {
  event.preventDefault();
  document.querySelector<HTMLElement>("main h1")?.focus();
}

/** Readers of a screen hear where they are, and go on from there, also by keyboard. */
function useArrival(address: string, title: string): string {
  const [announced, announce] = useState("");
  const isFirst = useRef(true);
  useEffect(() => {
    const place = me.value?.environment?.name;
    document.title = `${title} · ${place ? `${place} · ` : ""}rowlock`;
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    scrollTo(0, 0);
    announce(title);
    const main = document.getElementById("main");
    (main?.querySelector<HTMLElement>("h1") ?? main)?.focus({ preventScroll: true });
  }, [address]);
  return announced;
}

function Frame() {
  const { path } = route.value;
  const [isMenuOpen, setMenuOpen] = useState(false);
  const name = path[0] ?? "";
  const address = path.join("/");
  const place = PLACES.find((each) => each.path === name)?.title ?? "rowlock";
  const announced = useArrival(address, path[1] ? `${path[1]} · ${place}` : place);
  useEffect(() => setMenuOpen(false), [address]);
  function hear(event: KeyboardEvent): void {
    if (event.key === "Escape" && isMenuOpen) setMenuOpen(false);
  }
  const environment = me.value?.environment;
  if (name === "wall" && may("read")) {
    return (
      <main id="main" class="screen wall" tabIndex={-1}>
        {environment ? <div class={`strip place-${environment.color}`} /> : null}
        <AwayBanner />
        <Boundary key={address}>
          <Overview isWall />
        </Boundary>
      </main>
    );
  }
  return (
    <div class="frame" onKeyDown={hear}>
      {environment ? <div class={`strip place-${environment.color}`} /> : null}
      <header class="topbar">
        <Button
          kind="ghost"
          icon="menu"
          label="Menu"
          isExpanded={isMenuOpen}
          onClick={() => setMenuOpen(!isMenuOpen)}
        />
        <Brand />
        <Place />
        <Button kind="ghost" icon="search" label="Search or jump" onClick={showPalette} />
      </header>
      {isMenuOpen ? <div class="veil" onClick={() => setMenuOpen(false)} /> : null}
      <Menu current={name} isOpen={isMenuOpen} />
      <main id="main" class={`screen screen-${name || "overview"}`} tabIndex={-1}>
        <AwayBanner />
        <Boundary key={address}>
          <Screen path={path} />
        </Boundary>
      </main>
      <p class="hidden" role="status">
        {announced}
      </p>
    </div>
  );
}

/** A component of its own: what it throws is caught above it. */
function Screen({ path }: { path: string[] }) {
  return screen(path);
}

function screen(path: string[]): JSX.Element {
  const [name = "", id] = path;
  // A tenant has no place in the menu: one comes to it from its jobs.
  const isTenant = name === "tenants" && id !== undefined && may("read");
  if (!isTenant && !visible().some((each) => each.path === name)) {
    const first = visible()[0];
    if (name === "" && first) {
      queueMicrotask(() => go(to([first.path])));
      return <Skeleton />;
    }
    return (
      <Empty icon="search" title="There is nothing here">
        <p>No screen has this address, or your token does not reach it.</p>
        <p>
          <a href="#/">Go to the start</a>
        </p>
      </Empty>
    );
  }
  switch (name) {
    case "jobs":
      return id ? <JobScreen id={id} key={id} /> : <Jobs />;
    case "dead":
      return <Dead />;
    case "workflows":
      return id ? <WorkflowScreen id={id} key={id} /> : <Workflows />;
    case "queues":
      return id ? <QueueScreen name={id} key={id} /> : <Queues />;
    case "tenants":
      return <TenantScreen tenant={id ?? ""} key={id} />;
    case "workers":
      return <Workers />;
    case "schedules":
      return <Schedules />;
    case "limits":
      return id ? <LimitScreen name={id} key={id} /> : <Limits />;
    case "kinds":
      return id ? <KindScreen kind={id} key={id} /> : <Kinds />;
    case "system":
      return <System />;
    default:
      return <Overview />;
  }
}

function Brand() {
  return (
    <a class="brand" href="#/" aria-label="rowlock">
      <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
        <rect width="32" height="32" rx="8" class="brand-tile" />
        <path d="M9 10v5a7 7 0 0 0 14 0v-5M16 22v4" class="brand-mark" />
        <path d="M6 19 26 7" class="brand-oar" />
      </svg>
      <span>rowlock</span>
    </a>
  );
}

/** Where one is: a change meant for another place is the costliest of mistakes. */
function Place() {
  const environment = me.value?.environment;
  if (!environment) return null;
  return <p class={`place place-${environment.color}`}>{environment.name}</p>;
}

function Menu({ current, isOpen }: { current: string; isOpen: boolean }) {
  return (
    <nav class={`menu ${isOpen ? "menu-open" : ""}`} aria-label="Main">
      <Brand />
      <Place />
      <button type="button" class="jump" title="Search or jump" onClick={showPalette}>
        <Icon name="search" /> <span>Search</span> <kbd>{isMac() ? "⌘" : "Ctrl"} K</kbd>
      </button>
      <ul>
        {visible().map((place) => (
          <li key={place.path}>
            <a
              href={`#/${place.path}`}
              title={place.title}
              aria-current={place.path === current ? "page" : undefined}
            >
              <Icon name={place.icon} /> <span>{place.title}</span>
            </a>
          </li>
        ))}
      </ul>
      <MenuFoot />
    </nav>
  );
}

function isMac(): boolean {
  return navigator.platform.startsWith("Mac");
}

function MenuFoot() {
  const who = me.value!;
  const level = who.scopes.includes("admin")
    ? undefined
    : who.scopes.includes("read")
      ? "read-only"
      : "enqueue only";
  return (
    <div class="menu-foot">
      <Pulse />
      <p class="who">
        {who.name === "anybody" ? (
          "Open: no token is needed"
        ) : (
          <>
            Signed in as <b>{who.name}</b>
          </>
        )}
        {who.tenant ? (
          <>
            {" "}
            of <b>{who.tenant}</b>
          </>
        ) : null}
        {level ? <span class="tag">{level}</span> : null}
      </p>
      <p class="zone" title="All times of this page are in this zone">
        Times in {zone(new Date())}
      </p>
      <div class="menu-tools">
        <Button
          kind="ghost"
          icon={isDark.value ? "sun" : "moon"}
          onClick={turn}
          label={isDark.value ? "Light colours" : "Dark colours"}
          title="Dark or light (t)"
        />
        <Button
          kind="ghost"
          icon="help"
          label="Keyboard shortcuts"
          title="Shortcuts (?)"
          onClick={showShortcuts}
        />
        {who.token_id ? (
          <Button
            kind="ghost"
            icon="exit"
            label="Sign out"
            title="Sign out"
            onClick={() => signOut().catch((error: unknown) => tell(asProblem(error).message))}
          />
        ) : null}
        <span class="version">{who.version}</span>
      </div>
    </div>
  );
}
