// Where the stacks of a workflow are drawn: layers from left to right, few crossings. Pure.
//
// 1. A stack is in the layer after the last of its parents. The longest path has one in each.
// 2. An edge over several layers passes through a place of its own in each of them, so that it
//    never runs behind a stack.
// 3. The order within a layer follows the places of neighbours, layer by layer, to and fro.
// 4. Heights are the closest to those of neighbours at which nothing overlaps.

export interface Stack {
  id: string;
  after: string[];
}

export interface Placed<S extends Stack> {
  stack: S;
  layer: number;
  /** Its place within the layer, from the top. */
  row: number;
  /** The upper left corner. */
  x: number;
  y: number;
  isOnLongestPath: boolean;
}

export interface Edge {
  from: string;
  to: string;
  /** The path, in the words of SVG. */
  path: string;
  isOnLongestPath: boolean;
}

export interface Drawing<S extends Stack> {
  nodes: Placed<S>[];
  edges: Edge[];
  width: number;
  height: number;
}

export const NODE = { width: 208, height: 64 };
const GAP = { x: 88, y: 20 };
/** The room of an edge that passes through a layer. */
const LANE = 14;
/** Beyond it long edges are drawn straight: tens of thousands of lanes would take seconds. */
const LANES_MAX = 4000;
const SWEEPS = 6;

/** A place in a layer: of a stack, or of an edge that passes through. */
interface Cell {
  layer: number;
  height: number;
  before: number[];
  after: number[];
  /** The middle, from the top. */
  middle: number;
}

export function layOut<S extends Stack>(stacks: S[]): Drawing<S> {
  const { parents, layers, longest } = ordered(stacks);
  const cells: Cell[] = layers.map((layer) => newCell(layer, NODE.height + GAP.y));
  const ways = routed(cells, parents, layers);
  const columns = columnsOf(cells);
  arrange(cells, columns);
  settle(cells, columns);
  const top = Math.min(...cells.slice(0, stacks.length).map((each) => each.middle));
  const shift = NODE.height / 2 - (stacks.length ? top : 0);
  const rows = new Map<number, number>();
  for (const column of columns) {
    const own = column.filter((each) => each < stacks.length);
    for (const [row, each] of own.entries()) rows.set(each, row);
  }
  const nodes = stacks.map((stack, place) => ({
    stack,
    layer: layers[place]!,
    row: rows.get(place)!,
    x: layers[place]! * (NODE.width + GAP.x),
    y: Math.round(cells[place]!.middle + shift - NODE.height / 2),
    isOnLongestPath: longest.has(place),
  }));
  const edges = ways.map((way) => ({
    from: stacks[way[0]!]!.id,
    to: stacks[way.at(-1)!]!.id,
    path: pathOf(way, cells, shift),
    isOnLongestPath: isStep(way[0]!, way.at(-1)!, longest, layers),
  }));
  return {
    nodes,
    edges,
    width: columns.length ? columns.length * (NODE.width + GAP.x) - GAP.x : 0,
    height: Math.max(0, ...nodes.map((each) => each.y + NODE.height)),
  };
}

/** The longest path goes from one layer to the next; an edge beside it is an ordinary one. */
function isStep(from: number, to: number, longest: Set<number>, layers: number[]): boolean {
  return longest.has(from) && longest.has(to) && layers[to]! === layers[from]! + 1;
}

/**
 * Layers, and the longest path. Parents come before children in what the server lists; stacks
 * that wait for each other in a circle come where they fit, and the edge back is left out.
 */
function ordered(stacks: Stack[]) {
  const places = new Map(stacks.map((each, place) => [each.id, place]));
  const parents = stacks.map((each, place) =>
    [...new Set(each.after)].flatMap((id) => {
      const parent = places.get(id);
      return parent !== undefined && parent < place ? [parent] : [];
    }),
  );
  const layers: number[] = [];
  const deepest: (number | undefined)[] = [];
  parents.forEach((before, place) => {
    let found: number | undefined;
    for (const parent of before) {
      if (found === undefined || layers[parent]! > layers[found]!) found = parent;
    }
    deepest.push(found);
    layers[place] = found === undefined ? 0 : layers[found]! + 1;
  });
  let last: number | undefined = layers.length ? layers.indexOf(maximum(layers)) : undefined;
  const longest = new Set<number>();
  // A path of one stack is none.
  if (last !== undefined && layers[last]! > 0) {
    for (; last !== undefined; last = deepest[last]) longest.add(last);
  }
  return { parents, layers, longest };
}

function maximum(values: number[]): number {
  return values.reduce((most, each) => Math.max(most, each), 0);
}

function newCell(layer: number, height: number): Cell {
  return { layer, height, before: [], after: [], middle: 0 };
}

/** The cells that each edge visits, from its parent to its child; those between are added. */
function routed(cells: Cell[], parents: number[][], layers: number[]): number[][] {
  let lanes = 0;
  for (const [child, before] of parents.entries()) {
    for (const parent of before) lanes += layers[child]! - layers[parent]! - 1;
  }
  const hasLanes = lanes <= LANES_MAX;
  const ways: number[][] = [];
  for (const [child, before] of parents.entries()) {
    for (const parent of before) {
      const way = [parent];
      for (let layer = layers[parent]! + 1; hasLanes && layer < layers[child]!; layer += 1) {
        way.push(cells.push(newCell(layer, LANE)) - 1);
      }
      way.push(child);
      for (let step = 1; step < way.length; step += 1) {
        cells[way[step - 1]!]!.after.push(way[step]!);
        cells[way[step]!]!.before.push(way[step - 1]!);
      }
      ways.push(way);
    }
  }
  return ways;
}

function columnsOf(cells: Cell[]): number[][] {
  const columns: number[][] = [];
  cells.forEach((cell, place) => {
    while (columns.length <= cell.layer) columns.push([]);
    columns[cell.layer]!.push(place);
  });
  return columns;
}

/** Order each layer by the mean place of its neighbours, so that few edges cross. */
function arrange(cells: Cell[], columns: number[][]): void {
  const places = new Map<number, number>();
  function note(column: number[]): void {
    for (const [place, cell] of column.entries()) places.set(cell, place);
  }
  for (const column of columns) note(column);
  function sort(column: number[], side: "before" | "after"): void {
    const wanted = new Map(
      column.map((cell, place) => [
        cell,
        mean(cells[cell]![side], (each) => places.get(each)!, place),
      ]),
    );
    column.sort((a, b) => wanted.get(a)! - wanted.get(b)!);
    note(column);
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForth = sweep % 2 === 0;
    for (const column of isForth ? columns : columns.toReversed())
      sort(column, isForth ? "before" : "after");
  }
}

function mean(cells: number[], of: (cell: number) => number, otherwise: number): number {
  if (!cells.length) return otherwise;
  return cells.reduce((sum, each) => sum + of(each), 0) / cells.length;
}

/** Give each cell the height of its neighbours, as far as the cells beside it allow. */
function settle(cells: Cell[], columns: number[][]): void {
  const middleOf = (cell: number) => cells[cell]!.middle;
  for (const column of columns) {
    let y = 0;
    for (const cell of column) {
      cells[cell]!.middle = y + cells[cell]!.height / 2;
      y += cells[cell]!.height;
    }
    for (const cell of column) cells[cell]!.middle -= y / 2;
  }
  function align(column: number[], side: "before" | "after"): void {
    const wanted = column.map((cell) => mean(cells[cell]![side], middleOf, middleOf(cell)));
    const heights = column.map((cell) => cells[cell]!.height);
    spread(wanted, heights).forEach((middle, place) => {
      cells[column[place]!]!.middle = middle;
    });
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForth = sweep % 2 === 0;
    for (const column of isForth ? columns : columns.toReversed())
      align(column, isForth ? "before" : "after");
  }
}

/**
 * The middles that are closest to the wanted ones (least squares) in the same order, without
 * overlap: neighbours that would overlap are joined into a block, which lies at its mean.
 */
export function spread(wanted: number[], heights: number[]): number[] {
  const offsets: number[] = [];
  let y = 0;
  heights.forEach((height, place) => {
    if (place) y += (heights[place - 1]! + height) / 2;
    offsets.push(y);
  });
  const blocks: { sum: number; count: number }[] = [];
  wanted.forEach((middle, place) => {
    let block = { sum: middle - offsets[place]!, count: 1 };
    for (let last = blocks.at(-1); last; last = blocks.at(-1)) {
      if (last.sum / last.count < block.sum / block.count) break;
      block = { sum: last.sum + block.sum, count: last.count + block.count };
      blocks.pop();
    }
    blocks.push(block);
  });
  const starts = blocks.flatMap(({ sum, count }) =>
    Array.from({ length: count }, () => sum / count),
  );
  return offsets.map((offset, place) => starts[place]! + offset);
}

function pathOf(way: number[], cells: Cell[], shift: number): string {
  const step = NODE.width + GAP.x;
  const at = (place: number) => Math.round(cells[way[place]!]!.middle + shift);
  const left = (place: number) => cells[way[place]!]!.layer * step;
  let path = `M${left(0) + NODE.width} ${at(0)}`;
  for (let place = 1; place < way.length; place += 1) {
    const from = left(place - 1) + NODE.width;
    const bend = (left(place) - from) / 2;
    const y = at(place);
    path += `C${from + bend} ${at(place - 1)} ${left(place) - bend} ${y} ${left(place)} ${y}`;
    // It passes straight below and above the stacks of this layer.
    if (place < way.length - 1) path += `H${left(place) + NODE.width}`;
  }
  return path;
}

export type Arrow = "ArrowLeft" | "ArrowRight" | "ArrowUp" | "ArrowDown";

/** The stack that an arrow key leads to: a parent, a child, or the next one in the layer. */
export function neighbour<S extends Stack>(
  drawing: Drawing<S>,
  id: string,
  arrow: Arrow,
): string | undefined {
  const own = drawing.nodes.find((each) => each.stack.id === id);
  if (!own) return undefined;
  const isSide = arrow === "ArrowLeft" || arrow === "ArrowRight";
  const linked = new Set(
    drawing.edges.flatMap((edge) =>
      arrow === "ArrowLeft" && edge.to === id
        ? [edge.from]
        : arrow === "ArrowRight" && edge.from === id
          ? [edge.to]
          : [],
    ),
  );
  const step = arrow === "ArrowUp" ? -1 : 1;
  const found = drawing.nodes.filter((each) =>
    isSide ? linked.has(each.stack.id) : each.layer === own.layer && each.row === own.row + step,
  );
  const far = (each: Placed<S>) => Math.abs(each.y - own.y) + (each.isOnLongestPath ? 0 : 0.5);
  return found.sort((a, b) => far(a) - far(b))[0]?.stack.id;
}
