// A chart without words, beside a number: what it was before.

import { stretches } from "../series.ts";

const WIDTH = 72;
const HEIGHT = 22;

export function Sparkline({
  values,
  tone = "accent",
}: {
  values: (number | null)[];
  tone?: "accent" | "good" | "bad" | "calm" | "violet";
}) {
  if (!values.some((each) => each)) return null;
  return (
    <svg
      class={`sparkline sparkline-${tone}`}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      width={WIDTH}
      height={HEIGHT}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      {stretches(values, WIDTH, HEIGHT).map((points) =>
        points.includes(" ") ? (
          <polyline key={points} points={points} />
        ) : (
          <circle key={points} cx={points.split(",")[0]} cy={points.split(",")[1]} r="1.8" />
        ),
      )}
    </svg>
  );
}
