// A traceback as frames: the handler's own code is what one looks for, libraries are folded. Pure.

export interface Frame {
  /** The lines of it, as they were. */
  lines: string[];
  path: string;
  line: number;
  isLibrary: boolean;
  /** How often it comes in a row: recursion. */
  times: number;
}

export type Part = { frames: Frame[]; isLibrary: boolean } | { text: string };

const FRAME = /^ {2}File "(.+)", line (\d+)/;
const LIBRARY = new RegExp(
  [
    String.raw`[\\/](?:site-packages|dist-packages|lib[\\/]python\d[\d.]*)[\\/]`,
    "^<frozen ",
    String.raw`[\\/]src[\\/]rowlock[\\/]`,
  ].join("|"),
);

/** Runs of frames of one sort, and the text between them: headings, and what was raised. */
export function partsOf(traceback: string): Part[] {
  const parts: Part[] = [];
  let frame: Frame | undefined;
  for (const text of traceback.replace(/\n+$/, "").split("\n")) {
    const found = FRAME.exec(text);
    if (found) {
      frame = {
        lines: [text],
        path: found[1]!,
        line: Number(found[2]),
        isLibrary: LIBRARY.test(found[1]!),
        times: 1,
      };
      put(parts, frame);
    } else if (frame && /^ {4}/.test(text)) {
      frame.lines.push(text);
    } else {
      frame = undefined;
      const last = parts.at(-1);
      if (last && "text" in last) last.text += `\n${text}`;
      else parts.push({ text });
    }
  }
  return parts.map((part) => ("text" in part ? part : { ...part, frames: joined(part.frames) }));
}

function put(parts: Part[], frame: Frame): void {
  const last = parts.at(-1);
  if (last && "frames" in last && last.isLibrary === frame.isLibrary) last.frames.push(frame);
  else parts.push({ frames: [frame], isLibrary: frame.isLibrary });
}

/** The same frame many times in a row is one, with a number. */
function joined(frames: Frame[]): Frame[] {
  const found: Frame[] = [];
  for (const frame of frames) {
    const last = found.at(-1);
    if (last && last.lines.join("\n") === frame.lines.join("\n")) last.times += 1;
    else found.push(frame);
  }
  return found;
}
