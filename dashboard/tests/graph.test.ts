import assert from "node:assert/strict";
import { test } from "node:test";

import { type Drawing, layOut, neighbour, NODE, spread, type Stack } from "../src/graph.ts";

/** Stacks from "a b:a c:a,b". */
function stacks(text: string): Stack[] {
  return text.split(" ").map((each) => {
    const [id = "", after = ""] = each.split(":");
    return { id, after: after.split(",").filter(Boolean) };
  });
}

function byId<S extends Stack>(drawing: Drawing<S>) {
  return Object.fromEntries(drawing.nodes.map((each) => [each.stack.id, each]));
}

function overlaps<S extends Stack>({ nodes }: Drawing<S>): string[] {
  return nodes.flatMap((a) =>
    nodes
      .filter((b) => a !== b && a.x === b.x && Math.abs(a.y - b.y) < NODE.height)
      .map((b) => `${a.stack.id} ${b.stack.id}`),
  );
}

test("a stack is right of its parents, and the longest path has one in each layer", () => {
  const drawing = layOut(stacks("a b:a c:b d:a e:c,d f:a"));
  const layers = drawing.nodes.map((each) => `${each.stack.id}${each.layer}`);
  assert.deepEqual(layers, ["a0", "b1", "c2", "d1", "e3", "f1"]);
  const heavy = drawing.nodes.filter((each) => each.isOnLongestPath).map((each) => each.stack.id);
  assert.deepEqual(heavy, ["a", "b", "c", "e"]);
  const edges = drawing.edges.filter((each) => each.isOnLongestPath);
  assert.deepEqual(
    edges.map((each) => each.from + each.to),
    ["ab", "bc", "ce"],
  );
});

test("a chain is a straight line, and a fan lies around its parent", () => {
  const chain = layOut(stacks("a b:a c:b"));
  assert.deepEqual(new Set(chain.nodes.map((each) => each.y)), new Set([0]));
  const fan = byId(layOut(stacks("a b:a c:a d:a")));
  assert.equal(fan["a"]!.y, fan["c"]!.y);
  assert.ok(fan["b"]!.y < fan["c"]!.y && fan["c"]!.y < fan["d"]!.y);
});

test("edges do not cross where they need not", () => {
  const placed = byId(layOut(stacks("a b c:b d:a")));
  assert.equal(placed["a"]!.y < placed["b"]!.y, placed["d"]!.y < placed["c"]!.y);
});

test("an edge over a layer does not run behind a stack there", () => {
  const drawing = layOut(stacks("a b:a c:a,b"));
  const placed = byId(drawing);
  const way = drawing.edges.find((each) => each.from === "a" && each.to === "c")!;
  const y = Number(/C\S+ \S+ \S+ \S+ \S+ (\S+)H/.exec(way.path)![1]);
  const { y: top } = placed["b"]!;
  assert.ok(y < top || y > top + NODE.height, `${y} is within ${top}`);
});

test("circles, unknown parents and an empty graph are drawn as far as they go", () => {
  assert.deepEqual(layOut([]), { nodes: [], edges: [], width: 0, height: 0 });
  const drawing = layOut(stacks("a:c b:a,gone c:b"));
  assert.deepEqual(
    drawing.edges.map((each) => each.from + each.to),
    ["ab", "bc"],
  );
  assert.equal(
    layOut(stacks("a b")).nodes.some((each) => each.isOnLongestPath),
    false,
  );
});

test("hundreds of stacks do not overlap", () => {
  const many = Array.from({ length: 800 }, (_, number) => ({
    id: String(number),
    // Numbers that look random, and are the same each time.
    after: number < 20 ? [] : [1, 7, 13].map((step) => String((number * step * 31) % number)),
  }));
  const drawing = layOut(many);
  assert.deepEqual(overlaps(drawing), []);
  assert.equal(drawing.nodes.length, 800);
});

test("middles are as close to the wanted ones as they can be", () => {
  assert.deepEqual(spread([0, 0, 100], [20, 20, 20]), [-10, 10, 100]);
  assert.deepEqual(spread([50, 0], [20, 20]), [15, 35]);
  assert.deepEqual(spread([], []), []);
});

test("arrow keys lead to parents, children, and the next of a layer", () => {
  const drawing = layOut(stacks("a b:a c:a d:b"));
  const next = (id: string, arrow: Parameters<typeof neighbour>[2]) =>
    neighbour(drawing, id, arrow);
  assert.deepEqual(
    [
      next("a", "ArrowRight"),
      next("b", "ArrowDown"),
      next("c", "ArrowLeft"),
      next("d", "ArrowLeft"),
    ],
    ["b", "c", "a", "b"],
  );
  assert.deepEqual([next("a", "ArrowLeft"), next("b", "ArrowUp")], [undefined, undefined]);
});
