// Renders this server's own openapi.json. Everything is written as text: a document is data.
"use strict";

const byId = (id) => document.getElementById(id);

function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

function styled(name, className, text) {
  const made = element(name, text);
  made.className = className;
  return made;
}

async function load(token) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch("openapi.json", { headers });
  const content = await answer.json();
  if (answer.ok) return show(content);
  byId("entry").hidden = answer.status !== 401;
  byId("state").textContent = token || answer.status !== 401 ? content.detail : "";
}

function show(api) {
  byId("entry").hidden = true;
  byId("state").textContent = "";
  const page = byId("document");
  page.replaceChildren(...api.info.description.trim().split("\n\n").map((text) => element("p", text)));
  for (const tag of api.tags) {
    page.append(element("h2", tag.name), element("p", tag.description));
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (operation.tags.includes(tag.name)) page.append(call(api, method, path, operation));
      }
    }
  }
}

function call(api, method, path, operation) {
  const line = element("summary", "", styled("span", "method", method.toUpperCase()));
  line.append(element("code", path), styled("span", "about", operation.summary));
  const body = element("div");
  if (operation.description) body.append(element("p", operation.description));
  if (operation.parameters.length) body.append(element("h4", "Parameters"), parameters(api, operation));
  if (operation.requestBody) {
    body.append(element("h4", "Body"), content(api, operation.requestBody.content));
  }
  for (const [status, response] of Object.entries(operation.responses)) {
    const found = resolved(api, response);
    if (status < 400) {
      body.append(element("h4", `Answer ${status}`), content(api, found.content ?? {}));
    }
  }
  body.append(element("h4", "Problems"), problems(api, operation));
  const block = element("details", "", line, body);
  block.id = operation.operationId;
  return block;
}

function parameters(api, operation) {
  return table(operation.parameters.map((each) => [
    each.name, `${each.in}${each.required ? ", required" : ""}`, kind(api, each.schema), each.description ?? "",
  ]));
}

function problems(api, operation) {
  const rows = Object.entries(operation.responses).filter(([status]) => status >= 400);
  return table(rows.map(([status, response]) => [status, resolved(api, response).description]));
}

function content(api, byType) {
  const [described] = Object.values(byType);
  if (!described) return element("p", "Empty.");
  const schema = resolved(api, described.schema ?? described["x-item"] ?? {});
  const required = schema.required ?? [];
  const made = element("div");
  if (schema.description) made.append(element("p", schema.description));
  made.append(table(Object.entries(schema.properties ?? {}).map(([name, each]) => [
    name, required.includes(name) ? "required" : "", kind(api, each), each.description ?? "",
  ])));
  if (described.example) made.append(element("pre", JSON.stringify(described.example, null, 2)));
  return made;
}

function kind(api, schema) {
  if (schema.$ref) return fields(api, schema);
  if (schema.anyOf) return schema.anyOf.map((each) => kind(api, each)).join(" or ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(", ");
  if (schema.type === "array") return `list of ${kind(api, schema.items ?? {})}`;
  const bounds = [schema.minimum ?? schema.minLength, schema.maximum ?? schema.maxLength];
  const range = bounds.some((each) => each !== undefined) ? ` ${bounds[0] ?? ""}…${bounds[1] ?? ""}` : "";
  return `${schema.format ?? schema.type ?? "anything"}${range}`;
}

function fields(api, schema) {
  const name = schema.$ref.split("/").pop();
  const found = resolved(api, schema);
  if (found.enum) return found.enum.join(", ");
  return `${name} {${Object.keys(found.properties ?? {}).join(", ")}}`;
}

function resolved(api, part) {
  if (!part.$ref) return part;
  return part.$ref.split("/").slice(1).reduce((place, name) => place[name], api);
}

function table(rows) {
  const cells = (row) => row.map((each, place) => element("td", "", place ? each : element("code", each)));
  return element("table", "", ...rows.map((row) => element("tr", "", ...cells(row))));
}

byId("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  load(byId("token").value.trim());
});
load("");
