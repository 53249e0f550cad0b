// JSON without loss: numbers that JavaScript would round keep the digits that they came with.

/** A number as it was written, because a JavaScript number could not hold it. */
export class Digits {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
  toString(): string {
    return this.text;
  }
}

export type Json = null | boolean | number | string | Digits | Json[] | JsonObject;
export interface JsonObject {
  [name: string]: Json;
}

export class JsonError extends Error {
  /** Where it went wrong: lines and columns count from 1. */
  readonly line: number;
  readonly column: number;
  constructor(message: string, text: string, place: number) {
    const before = text.slice(0, place).split("\n");
    const line = before.length;
    const column = (before.at(-1) ?? "").length + 1;
    super(`${message}, in line ${line}, column ${column}`);
    this.line = line;
    this.column = column;
  }
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON forbids them in strings
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORD = /true|false|null/y;
const DEPTH_MAX = 1000;

/** Parse a text. Raises `JsonError`, which says where. */
export function parse(text: string): Json {
  let place = 0;
  let depth = 0;

  function take(pattern: RegExp): string | undefined {
    pattern.lastIndex = place;
    const found = pattern.exec(text)?.[0];
    if (found !== undefined) place += found.length;
    return found;
  }

  function fail(message: string): never {
    throw new JsonError(place < text.length ? message : "the text ends too early", text, place);
  }

  function sees(character: string): boolean {
    take(SPACE);
    if (text[place] !== character) return false;
    place += 1;
    return true;
  }

  function string(): string {
    const found = take(STRING);
    if (found === undefined) fail("a string in double quotes is expected");
    return JSON.parse(found) as string;
  }

  function object(): JsonObject {
    const made: JsonObject = {};
    if (sees("}")) return made;
    do {
      take(SPACE);
      const name = string();
      if (!sees(":")) fail("a colon is expected");
      const inner = value();
      // Not by assignment: `__proto__` is a name like any other.
      Object.defineProperty(made, name, {
        value: inner,
        enumerable: true,
        configurable: true,
        writable: true,
      });
    } while (sees(","));
    if (!sees("}")) fail("a comma or a closing brace is expected");
    return made;
  }

  function array(): Json[] {
    const made: Json[] = [];
    if (sees("]")) return made;
    do made.push(value());
    while (sees(","));
    if (!sees("]")) fail("a comma or a closing bracket is expected");
    return made;
  }

  function value(): Json {
    take(SPACE);
    const first = text[place];
    if (first === "{" || first === "[") {
      if (++depth > DEPTH_MAX) fail("it is nested too deeply");
      place += 1;
      const made = first === "{" ? object() : array();
      depth -= 1;
      return made;
    }
    if (first === '"') return string();
    const word = take(WORD);
    if (word !== undefined) return word === "null" ? null : word === "true";
    const digits = take(NUMBER);
    if (digits === undefined) fail("a value is expected");
    return number(digits);
  }

  const made = value();
  take(SPACE);
  if (place < text.length) fail("nothing more is expected");
  return made;
}

function number(digits: string): number | Digits {
  const value = Number(digits);
  const isInteger = /^-?\d+$/.test(digits);
  if (isInteger && digits !== "-0") return String(value) === digits ? value : new Digits(digits);
  // A fraction of more digits than a double has is kept as it is written.
  const given = digits
    .replace(/[eE].*$/, "")
    .replace(/[-.]/g, "")
    .replace(/^0+/, "");
  return Number.isFinite(value) && given.length <= 17 ? value : new Digits(digits);
}

/** Write a value as text; `indent` 0 is one line. */
export function stringify(value: Json, indent = 2, level = 0): string {
  if (value instanceof Digits) return value.text;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const gap = indent ? `\n${" ".repeat(indent * (level + 1))}` : "";
  const end = indent ? `\n${" ".repeat(indent * level)}` : "";
  const comma = indent ? "," : ", ";
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    const parts = value.map((each) => gap + stringify(each, indent, level + 1));
    return `[${parts.join(comma)}${end}]`;
  }
  const names = Object.keys(value);
  if (!names.length) return "{}";
  const parts = names.map(
    (name) => `${gap}${JSON.stringify(name)}: ${stringify(value[name]!, indent, level + 1)}`,
  );
  return `{${parts.join(comma)}${end}}`;
}

export function isObject(value: Json | undefined): value is JsonObject {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof Digits)
  );
}
