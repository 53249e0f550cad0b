// The fields of a form, from the JSON Schema of a payload; and a payload, from what was typed.

import { Digits, isObject, type Json, type JsonObject, parse, stringify } from "./json.ts";

export type FieldType = "text" | "integer" | "number" | "boolean" | "choice" | "json";

export interface Field {
  name: string;
  type: FieldType;
  isRequired: boolean;
  isNullable: boolean;
  choices: string[];
  description: string;
  initial: string;
  /** What JSON fields may be given, in a few words. */
  hint: string;
}

/** The fields of an object's schema; undefined if it is none, so that only JSON will do. */
export function fieldsOf(schema: JsonObject): Field[] | undefined {
  const definitions = isObject(schema["$defs"]) ? schema["$defs"] : {};
  const top = deref(schema, definitions);
  const properties = top["properties"];
  if (!isObject(properties)) return undefined;
  const required = Array.isArray(top["required"]) ? top["required"] : [];
  return Object.keys(properties).map((name) =>
    fieldOf(name, properties[name]!, required.includes(name), definitions),
  );
}

function fieldOf(name: string, given: Json, isRequired: boolean, definitions: JsonObject): Field {
  const outer = isObject(given) ? deref(given, definitions) : {};
  const arms = (Array.isArray(outer["anyOf"]) ? outer["anyOf"] : [outer])
    .filter(isObject)
    .map((arm) => deref(arm, definitions));
  const real = arms.filter((arm) => arm["type"] !== "null");
  const isNullable = real.length < arms.length;
  const only = real.length === 1 ? real[0]! : {};
  const type = typeOf(only);
  const fallback = outer["default"];
  return {
    name,
    type,
    isRequired,
    isNullable,
    choices: type === "choice" ? choicesOf(only) : [],
    description: [outer["description"], only["description"]].find(isText) ?? "",
    initial: fallback === undefined ? "" : typed(fallback, type),
    hint: hintOf(only, type),
  };
}

function deref(schema: JsonObject, definitions: JsonObject): JsonObject {
  const reference = schema["$ref"];
  if (!isText(reference)) return schema;
  const found = definitions[reference.split("/").at(-1) ?? ""];
  return isObject(found) ? found : {};
}

function isText(value: Json | undefined): value is string {
  return typeof value === "string";
}

function typeOf(schema: JsonObject): FieldType {
  if (choicesOf(schema).length) return "choice";
  switch (schema["type"]) {
    case "string":
      return "text";
    case "integer":
    case "number":
    case "boolean":
      return schema["type"];
    default:
      return "json";
  }
}

function choicesOf(schema: JsonObject): string[] {
  const listed = schema["enum"];
  return Array.isArray(listed) && listed.every(isText) ? listed : [];
}

function hintOf(schema: JsonObject, type: FieldType): string {
  if (isText(schema["format"])) return schema["format"];
  if (type !== "json") return type === "text" || type === "choice" ? "" : type;
  return isText(schema["type"]) ? `JSON, ${schema["type"]}` : "JSON";
}

function typed(value: Json, type: FieldType): string {
  return typeof value === "string" && type !== "json" ? value : stringify(value, 0);
}

export type Typed = Record<string, string>;
export type Built = { payload: JsonObject } | { problems: Record<string, string> };

/** The payload of what was typed. An empty field that is not required is left out. */
export function build(fields: Field[], values: Typed): Built {
  const payload: JsonObject = {};
  const problems: Record<string, string> = {};
  for (const field of fields) {
    const text = values[field.name] ?? "";
    if (text === "" && !field.isRequired) continue;
    try {
      payload[field.name] = read(field, text);
    } catch (error) {
      problems[field.name] = error instanceof Error ? error.message : String(error);
    }
  }
  return Object.keys(problems).length ? { problems } : { payload };
}

function read(field: Field, text: string): Json {
  if (field.isNullable && text === "null" && field.type !== "json") return null;
  switch (field.type) {
    case "text":
    case "choice":
      return text;
    case "boolean":
      return text === "true";
    case "integer":
    case "number":
      return readNumber(field.type, text.trim());
    case "json":
      return parse(text);
  }
}

function readNumber(type: "integer" | "number", text: string): number | Digits {
  const pattern = type === "integer" ? /^-?\d+$/ : /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;
  if (!pattern.test(text))
    throw new Error(`must be ${type === "integer" ? "an integer" : "a number"}`);
  const value = parse(text.replace(/^(-?)0+(?=\d)/, "$1"));
  return value instanceof Digits ? value : Number(text);
}
