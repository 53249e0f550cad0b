// A payload in one line, from the beginning of its JSON text: `to="ada@…" n=12`. Pure.

const VALUE_MAX = 48;

/** The text may end anywhere: what is whole is shown, and what was cut ends in "…". */
export function preview(json: string): { name: string; value: string }[] {
  const found: { name: string; value: string }[] = [];
  let place = skip(json, json.indexOf("{") + 1);
  while (place < json.length && json[place] === '"') {
    const nameEnd = endOfString(json, place);
    if (nameEnd === undefined) break;
    const name = decoded(json.slice(place, nameEnd));
    place = skip(json, nameEnd);
    if (json[place] !== ":") break;
    place = skip(json, place + 1);
    const end = endOfValue(json, place);
    const isCut = end === undefined;
    found.push({ name, value: shortened(json.slice(place, end), isCut) });
    if (isCut) break;
    place = skip(json, end);
    if (json[place] !== ",") break;
    place = skip(json, place + 1);
  }
  return found;
}

function skip(text: string, place: number): number {
  while (place < text.length && " \n\r\t".includes(text[place]!)) place += 1;
  return place;
}

/** Where a string that begins here ends, behind its quote; undefined if it was cut. */
function endOfString(text: string, place: number): number | undefined {
  for (let at = place + 1; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === '"') return at + 1;
  }
  return undefined;
}

function endOfValue(text: string, place: number): number | undefined {
  if (text[place] === '"') return endOfString(text, place);
  let depth = 0;
  for (let at = place; at < text.length; at += 1) {
    const sign = text[at]!;
    if (sign === '"') {
      const end = endOfString(text, at);
      if (end === undefined) return undefined;
      at = end - 1;
    } else if ("[{".includes(sign)) depth += 1;
    else if (depth > 0 && "]}".includes(sign)) depth -= 1;
    else if (depth === 0 && ",}".includes(sign)) return at;
    if (depth === 0 && "]}".includes(sign)) return at + 1;
  }
  return undefined;
}

function decoded(text: string): string {
  try {
    return JSON.parse(text) as string;
  } catch {
    return text;
  }
}

function shortened(value: string, isCut: boolean): string {
  const text = value.trim();
  if (text.length <= VALUE_MAX && !isCut) return text;
  const end = text.startsWith('"') ? '"' : "";
  return `${text.slice(0, VALUE_MAX).replace(/\\u?[0-9a-f]{0,3}$/i, "")}…${end}`;
}
