// Values over time, as they are drawn. A null is a step in which nobody looked. Pure.

export type Values = ArrayLike<number | null | undefined>;

/** The sums up to each row: bars one upon the other. */
export function stacked(rows: (number | null)[][]): (number | null)[][] {
  const sums: (number | null)[][] = [];
  for (const row of rows) {
    const below = sums.at(-1);
    sums.push(
      row.map((each, place) => {
        const base = below?.[place] ?? null;
        return each === null && base === null ? null : (each ?? 0) + (base ?? 0);
      }),
    );
  }
  return sums;
}

/** The samples with a gap on both sides, which no line shows. */
export function lonely(values: Values): number[] {
  const found: number[] = [];
  for (let place = 0; place < values.length; place += 1) {
    if (values[place] == null) continue;
    if (values[place - 1] == null && values[place + 1] == null) found.push(place);
  }
  return found;
}

/** The points of each stretch without gaps, in a box of that size. */
export function stretches(values: (number | null)[], width: number, height: number): string[] {
  const most = Math.max(...values.map((each) => each ?? 0), 0);
  const step = width / Math.max(1, values.length - 1);
  const found: string[] = [];
  let points: string[] = [];
  const end = () => {
    if (points.length) found.push(points.join(" "));
    points = [];
  };
  values.forEach((each, place) => {
    if (each === null) {
      end();
      return;
    }
    const y = height - 2 - (most ? (each / most) * (height - 4) : 0);
    points.push(`${(place * step).toFixed(1)},${y.toFixed(1)}`);
  });
  end();
  return found;
}
