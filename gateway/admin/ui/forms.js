// A form for a JSON Schema, and the value that it says. What a form cannot ask is asked as JSON.

import { el } from "./view.js";

function choices(schema) {
  if (schema.enum) return schema.enum.map((value) => ({ value, title: String(value) }));
  const options = schema.oneOf ?? schema.anyOf;
  if (options?.length && options.every((option) => "const" in option)) {
    return options.map((option) => ({ value: option.const, title: option.title ?? String(option.const) }));
  }
  return null;
}

function field(name, schema, required, titles) {
  const label = schema.title ?? (titles?.size ? "answer" : name);
  const several = choices(schema);
  if (several) {
    const select = el("select", { name }, !required && el("option", { value: "" }, ""),
      several.map((choice, at) => el("option", { value: String(at + 1) }, titles?.get(choice.value) ?? choice.title)));
    return [el("label", {}, label, select), () => several[Number(select.value) - 1]?.value];
  }
  if (schema.type === "boolean") {
    const box = el("input", { type: "checkbox", name, checked: schema.default === true });
    return [el("label", {}, label, box), () => box.checked];
  }
  if (schema.type === "number" || schema.type === "integer") {
    const input = el("input", { type: "number", name, required, step: schema.type === "integer" ? "1" : "any",
      min: schema.minimum, max: schema.maximum, value: schema.default ?? "" });
    return [el("label", {}, label, input), () => (input.value === "" ? undefined : Number(input.value))];
  }
  if (schema.type === "string") {
    const input = el("textarea", { name, required, value: schema.default ?? "" });
    return [el("label", { class: "wide" }, label, input), () => (input.value === "" && !required ? undefined : input.value)];
  }
  const input = el("textarea", { name, required, placeholder: "JSON", value: schema.default === undefined ? "" : JSON.stringify(schema.default) });
  return [el("label", { class: "wide" }, `${label} (JSON)`, input), () => (input.value.trim() === "" ? undefined : JSON.parse(input.value))];
}

// Returns the fields, and a function that gives the value; it throws SyntaxError for what is no JSON.
// titles: of values, as the question calls them.
export function fields(schema, titles) {
  const properties = schema?.properties;
  const asked = properties ? Object.entries(properties) : [];
  if (schema?.type !== "object" || !asked.length) {
    const [element, value] = field("answer", schema ?? {}, true, titles);
    return [[element], value];
  }
  const required = new Set(schema.required ?? []);
  const made = asked.map(([name, part]) => [name, ...field(name, part, required.has(name), titles)]);
  const value = () => Object.fromEntries(made.map(([name, , read]) => [name, read()]).filter(([, found]) => found !== undefined));
  return [made.map(([, element]) => element), value];
}
