// A workflow as a picture that is moved and zoomed. What moves is one element, and the browser
// moves it without drawing it again; edges are a few paths in all, however many there are.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Schemas } from "../api.ts";
import { counted, plural } from "../format.ts";
import {
  type Arrow,
  type Drawing,
  type Edge,
  layOut,
  neighbour,
  NODE,
  type Placed,
} from "../graph.ts";
import { inWords, mainState, total } from "../workflows.ts";
import { Button } from "./basics.tsx";
import { CountBar } from "./countbar.tsx";
import { Icon, STATE_ICONS } from "./icons.tsx";

export type Stack = Schemas["WorkflowStack"];

const SCALE = { min: 0.05, max: 2, step: 1.25 };
/** Below it words are too small to be read: less is said, in larger letters. */
const FAR = 0.5;
/** The least scale at which a graph begins: whoever wants to see all of it asks for it. */
const READABLE = 0.7;
const MARGIN = 24;
const HEIGHT = { min: 200, max: 560 };
/** A finger or a mouse that moved this far did not mean a click. */
const DRAG_PX = 4;

interface View {
  x: number;
  y: number;
  scale: number;
}

export function GraphView({
  stacks,
  chosen,
  addressOf,
}: {
  stacks: Stack[];
  /** The stack whose jobs are shown. */
  chosen: string | undefined;
  addressOf: (stack: string) => string;
}) {
  // Counts change every few seconds, the shape hardly ever.
  const shape = stacks.map((each) => `${each.id}<${each.after.join()}`).join(" ");
  const drawing = useMemo(() => layOut(stacks), [shape]);
  const now = new Map(stacks.map((each) => [each.id, each]));
  const [current, setCurrent] = useState<string | undefined>(chosen);
  const first = drawing.nodes.some((each) => each.stack.id === current)
    ? current
    : drawing.nodes[0]?.stack.id;
  const { viewport, canvas, move } = useView(drawing, frontOf(drawing, now, chosen));

  function hear(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const id = (event.target as HTMLElement).dataset["stack"];
    if (id && event.key.startsWith("Arrow")) {
      event.preventDefault();
      const next = neighbour(drawing, id, event.key as Arrow);
      if (next) focus(next);
      return;
    }
    const act = { "+": move.closer, "=": move.closer, "-": move.further, "0": move.fit }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
  function focus(id: string): void {
    const found = canvas.current?.querySelector<HTMLElement>(`[data-stack="${id}"]`);
    found?.focus({ preventScroll: true });
  }
  return (
    <div class="graph" onKeyDown={hear}>
      <div class="graph-tools" role="group" aria-label="Zoom">
        <Button icon="minus" label="Zoom out" title="Zoom out (-)" onClick={move.further} />
        <Button icon="plus" label="Zoom in" title="Zoom in (+)" onClick={move.closer} />
        <Button icon="fit" label="Fit" title="Show all of it (0)" onClick={move.fit} />
      </div>
      <div class="graph-view" ref={viewport} role="group" aria-label={labelOf(drawing)}>
        <div class="graph-canvas" ref={canvas}>
          <Edges drawing={drawing} now={now} active={current ?? chosen} />
          {drawing.nodes.map((each) => (
            <Node
              key={each.stack.id}
              stack={now.get(each.stack.id) ?? each.stack}
              x={each.x}
              y={each.y}
              isHeavy={each.isOnLongestPath}
              isChosen={each.stack.id === chosen}
              isTabbed={each.stack.id === first}
              address={addressOf(each.stack.id)}
              enter={(isByKey) => {
                setCurrent(each.stack.id);
                if (isByKey) move.show(each.x, each.y);
              }}
              leave={() => setCurrent(chosen)}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

/** Where to look first: at what is chosen, what is dead, or what goes on. */
function frontOf(
  drawing: Drawing<Stack>,
  now: ReadonlyMap<string, Stack>,
  chosen: string | undefined,
): Placed<Stack> | undefined {
  const counts = (each: Placed<Stack>) => (now.get(each.stack.id) ?? each.stack).counts;
  return (
    drawing.nodes.find((each) => each.stack.id === chosen) ??
    drawing.nodes.find((each) => counts(each).dead.value) ??
    drawing.nodes.find((each) => counts(each).running.value || counts(each).ready.value) ??
    drawing.nodes[0]
  );
}

function labelOf(drawing: Drawing<Stack>): string {
  const stacks = plural(drawing.nodes.length, "stack");
  return `Graph of ${stacks}; arrow keys move between them, Enter shows the jobs of one`;
}

function Node({
  stack,
  x,
  y,
  isHeavy,
  isChosen,
  isTabbed,
  address,
  enter,
  leave,
}: {
  stack: Stack;
  x: number;
  y: number;
  isHeavy: boolean;
  isChosen: boolean;
  isTabbed: boolean;
  address: string;
  enter: (isByKey: boolean) => void;
  leave: () => void;
}) {
  const state = mainState(stack.counts);
  const all = total(stack.counts);
  const names = ["node", `node-${state}`];
  if (all.value > 1) names.push("node-many");
  if (isHeavy) names.push("node-heavy");
  return (
    <a
      class={names.join(" ")}
      href={address}
      data-stack={stack.id}
      draggable={false}
      tabIndex={isTabbed ? 0 : -1}
      aria-current={isChosen ? "true" : undefined}
      style={{
        left: `${x}px`,
        top: `${y}px`,
        width: `${NODE.width}px`,
        height: `${NODE.height}px`,
      }}
      onFocus={() => enter(true)}
      onMouseEnter={() => enter(false)}
      onMouseLeave={leave}
      onBlur={leave}
    >
      <span class="node-head">
        <span class={`node-state state-${state}`}>
          <Icon name={STATE_ICONS[state]} size={12} />
        </span>
        <span class="node-kind">{stack.kind}</span>
        {all.value > 1 ? <span class="node-count">{counted(all)}</span> : null}
      </span>
      <CountBar counts={stack.counts} />
      <span class="node-note">
        {WHEN[stack.when] ?? ""}
        {inWords(stack.counts)}
      </span>
    </a>
  );
}

const WHEN: Record<string, string> = { dead: "if one dies · ", ended: "after any end · " };

/** All edges of one look are one path. */
function Edges({
  drawing,
  now,
  active,
}: {
  drawing: Drawing<Stack>;
  now: ReadonlyMap<string, Stack>;
  active: string | undefined;
}) {
  const looks = useMemo(() => {
    const found: Record<string, string> = {};
    for (const edge of drawing.edges) {
      const look = lookOf(edge, now.get(edge.to));
      found[look] = (found[look] ?? "") + edge.path;
    }
    return Object.entries(found);
  }, [drawing]);
  const lit = drawing.edges.filter((each) => each.from === active || each.to === active);
  return (
    <svg
      class="edges"
      width={drawing.width}
      height={drawing.height}
      viewBox={`0 0 ${drawing.width} ${drawing.height}`}
      aria-hidden="true"
    >
      {looks.map(([look, path]) => (
        <path key={look} class={`edge ${look}`} d={path} />
      ))}
      {lit.length ? <path class="edge edge-lit" d={lit.map((each) => each.path).join("")} /> : null}
    </svg>
  );
}

function lookOf(edge: Edge, child: Stack | undefined): string {
  const dash = child?.when === "dead" ? " edge-dead" : child?.when === "ended" ? " edge-ended" : "";
  return (edge.isOnLongestPath ? "edge-heavy" : "edge-plain") + dash;
}

/** Moving and zooming: by the mouse, by fingers, by the wheel with Ctrl, and by buttons. */
function useView(drawing: Drawing<Stack>, front: Placed<Stack> | undefined) {
  const viewport = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLDivElement>(null);
  const view = useRef<View>({ x: 0, y: 0, scale: 1 });
  // Who has looked at a part of it goes on looking at that part.
  const isMoved = useRef(false);

  function apply(next: View): void {
    view.current = next;
    const element = canvas.current;
    if (!element) return;
    element.style.transform = `translate(${next.x}px, ${next.y}px) scale(${next.scale})`;
    element.classList.toggle("far", next.scale < FAR);
  }
  function size(): { width: number; height: number } {
    const element = viewport.current;
    return { width: element?.clientWidth ?? 0, height: element?.clientHeight ?? 0 };
  }
  /** The scale at which all of it fits, but not beyond its own size, after a change of height. */
  function fitting(least: number): number {
    const element = viewport.current;
    if (!element) return 1;
    const wide = (element.clientWidth - 2 * MARGIN) / Math.max(1, drawing.width);
    const wanted = drawing.height * clamp(wide, least, 1) + 2 * MARGIN;
    element.style.height = `${clamp(wanted, HEIGHT.min, HEIGHT.max)}px`;
    const high = (element.clientHeight - 2 * MARGIN) / Math.max(1, drawing.height);
    return clamp(Math.min(wide, high), SCALE.min, 1);
  }
  function fit(): void {
    centre(drawing.width / 2, drawing.height / 2, fitting(SCALE.min));
  }
  /** All of it, if it can be read then; otherwise the part where something happens. */
  function begin(): void {
    isMoved.current = false;
    const scale = fitting(READABLE);
    if (scale >= READABLE || !front) {
      centre(drawing.width / 2, drawing.height / 2, scale);
      return;
    }
    const { width, height } = size();
    // No more beside it than at its ends.
    const within = (middle: number, whole: number, room: number) =>
      whole * READABLE < room - 2 * MARGIN
        ? whole / 2
        : clamp(middle, (room / 2 - MARGIN) / READABLE, whole - (room / 2 - MARGIN) / READABLE);
    centre(
      within(front.x + NODE.width / 2, drawing.width, width),
      within(front.y + NODE.height / 2, drawing.height, height),
      READABLE,
    );
  }
  function centre(x: number, y: number, scale: number): void {
    const { width, height } = size();
    apply({ x: width / 2 - x * scale, y: height / 2 - y * scale, scale });
  }
  function zoom(factor: number, at?: { x: number; y: number }): void {
    const { width, height } = size();
    const { x, y } = at ?? { x: width / 2, y: height / 2 };
    const { scale, ...before } = view.current;
    const next = clamp(scale * factor, SCALE.min, SCALE.max);
    isMoved.current = true;
    apply({
      x: x - ((x - before.x) * next) / scale,
      y: y - ((y - before.y) * next) / scale,
      scale: next,
    });
  }
  function pan(x: number, y: number): void {
    isMoved.current = true;
    apply({ ...view.current, x: view.current.x + x, y: view.current.y + y });
  }
  /** Bring a stack into view, which the keyboard has reached. */
  function show(x: number, y: number): void {
    const { width, height } = size();
    const { scale, ...at } = view.current;
    const side = (from: number, length: number, room: number) =>
      from < MARGIN ? MARGIN - from : Math.min(0, room - MARGIN - from - length);
    const right = side(at.x + x * scale, NODE.width * scale, width);
    const down = side(at.y + y * scale, NODE.height * scale, height);
    if (right || down) pan(right, down);
  }

  useLayoutEffect(() => {
    if (!isMoved.current) begin();
  }, [drawing]);
  useEffect(() => {
    const element = viewport.current!;
    const resize = () => {
      if (!isMoved.current) begin();
    };
    addEventListener("resize", resize);
    const stop = hearPointers(element, { pan, zoom });
    return () => {
      removeEventListener("resize", resize);
      stop();
    };
  }, [drawing]);
  const move = {
    fit,
    show,
    closer: () => zoom(SCALE.step),
    further: () => zoom(1 / SCALE.step),
  };
  return { viewport, canvas, move };
}

function clamp(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}

interface Mover {
  pan: (x: number, y: number) => void;
  zoom: (factor: number, at: { x: number; y: number }) => void;
}

/** Hear what pointers and wheels do; the answer stops it. */
function hearPointers(element: HTMLElement, { pan, zoom }: Mover): () => void {
  const pointers = new Map<number, { x: number; y: number }>();
  let moved = 0;
  const placeOf = (event: MouseEvent) => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const spanOf = () => {
    const [a, b] = [...pointers.values()];
    return a && b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
  };
  const handlers: { [name: string]: (event: never) => void } = {
    pointerdown(event: PointerEvent) {
      if (event.button !== 0) return;
      if (!pointers.size) moved = 0;
      pointers.set(event.pointerId, placeOf(event));
    },
    pointermove(event: PointerEvent) {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const at = placeOf(event);
      const wide = spanOf();
      pointers.set(event.pointerId, at);
      moved += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
      if (moved < DRAG_PX) return;
      // Only now: a captured pointer clicks on what has captured it.
      element.setPointerCapture(event.pointerId);
      element.classList.add("dragged");
      pan((at.x - before.x) / pointers.size, (at.y - before.y) / pointers.size);
      if (wide) zoom(spanOf() / wide, at);
    },
    pointerup: release,
    pointercancel: release,
    click(event: MouseEvent) {
      if (moved < DRAG_PX) return;
      event.preventDefault();
      event.stopPropagation();
    },
    wheel(event: WheelEvent) {
      // Without Ctrl the wheel moves the page, as everywhere on it. A pinch comes with Ctrl.
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 300), placeOf(event));
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(-event.deltaX, 0);
      else return;
      event.preventDefault();
    },
    // The browser scrolls to what has the focus; here it is moved to.
    scroll() {
      element.scrollTo(0, 0);
    },
  };
  function release(event: PointerEvent): void {
    pointers.delete(event.pointerId);
    if (!pointers.size) element.classList.remove("dragged");
  }
  const entries = Object.entries(handlers) as [string, EventListener][];
  for (const [name, handler] of entries)
    element.addEventListener(name, handler, { capture: name === "click", passive: false });
  return () => {
    for (const [name, handler] of entries)
      element.removeEventListener(name, handler, { capture: name === "click" });
  };
}
