// A form for a JSON Schema, and the value that it says. What a form cannot ask is asked as JSON.

import { dataUri } from "./files.js";
import { el } from "./view.js";

const DEEP = 6; // how deep objects and lists are asked as fields
const INPUTS = { date: "date", time: "time", email: "email", uri: "url" }; // kinds of <input> by a string's `format`

function choices(schema) {
  if (schema.enum) return schema.enum.map((value, at) => ({ value, title: String(schema.enumNames?.[at] ?? value) }));
  const options = schema.oneOf ?? schema.anyOf;
  if (options?.length && options.every((option) => "const" in option)) {
    return options.map((option) => ({ value: option.const, title: option.title ?? String(option.const) }));
  }
  return null;
}

// The schema without references into its document, and of a value that may be null the other kind.
function plain(schema, root, deep = 0) {
  if (typeof schema !== "object" || schema === null || deep > 20) return {};
  if (typeof schema.$ref === "string" && schema.$ref.startsWith("#/")) {
    const path = schema.$ref.slice(2).split("/").map((step) => decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~"));
    const { $ref, ...beside } = schema;
    return plain({ ...path.reduce((part, step) => part?.[step], root), ...beside }, root, deep + 1);
  }
  const others = (schema.anyOf ?? schema.oneOf)?.filter((one) => one?.type !== "null");
  if (others?.length === 1 && !("const" in others[0])) {
    const { anyOf, oneOf, ...beside } = schema;
    return plain({ ...others[0], ...beside }, root, deep + 1);
  }
  if (Array.isArray(schema.type)) {
    const kinds = schema.type.filter((kind) => kind !== "null");
    return { ...schema, type: kinds.length === 1 ? kinds[0] : undefined };
  }
  if (schema.allOf?.length) {
    const { allOf, ...beside } = schema;
    const parts = [...allOf.map((part) => plain(part, root, deep + 1)), beside];
    const properties = Object.assign({}, ...parts.map((part) => part.properties ?? {}));
    const required = parts.flatMap((part) => part.required ?? []);
    return Object.assign({}, ...parts, Object.keys(properties).length ? { type: "object", properties, required } : {});
  }
  return schema.properties && !schema.type ? { ...schema, type: "object" } : schema;
}

// Makes [elements, read] for one value; `read` may return a promise, and undefined for what is left out.
function field(name, given, needed, { root, titles, deep }) {
  const schema = plain(given, root);
  const label = schema.title ?? (titles?.size ? "answer" : name);
  const hint = schema.description && el("small", {}, schema.description);
  const inside = { root, deep: deep + 1 };
  if ("const" in schema) return [null, () => schema.const];
  const several = choices(schema);
  if (several) {
    const at = several.findIndex((choice) => choice.value === schema.default);
    const select = el("select", { name }, !needed && el("option", { value: "" }, ""),
      several.map((choice, number) => el("option", { value: String(number + 1), selected: number === at }, titles?.get(choice.value) ?? choice.title)));
    return [el("label", {}, label, select, hint), () => several[Number(select.value) - 1]?.value];
  }
  if (schema.type === "boolean" && (needed || "default" in schema)) {
    const box = el("input", { type: "checkbox", name, checked: schema.default === true });
    return [el("label", {}, label, box, hint), () => box.checked];
  }
  if (schema.type === "boolean") {
    const select = el("select", { name }, ["", "yes", "no"].map((word) => el("option", { value: word }, word)));
    return [el("label", {}, label, select, hint), () => ({ yes: true, no: false })[select.value]];
  }
  if (schema.type === "number" || schema.type === "integer") {
    const input = el("input", { type: "number", name, required: needed, step: schema.multipleOf ?? (schema.type === "integer" ? "1" : "any"),
      min: schema.minimum, max: schema.maximum, value: schema.default ?? "" });
    return [el("label", {}, label, input, hint), () => (input.value === "" ? undefined : Number(input.value))];
  }
  if (schema.type === "string" && (schema.contentEncoding === "base64" || ["data-url", "binary", "byte"].includes(schema.format))) {
    const input = el("input", { type: "file", name, required: needed, accept: schema.contentMediaType });
    const read = async () => {
      if (!input.files.length) return undefined;
      const uri = await dataUri(input.files[0]);
      return schema.format === "data-url" ? uri : uri.slice(uri.indexOf(",") + 1);
    };
    return [el("label", {}, label, input, hint), read];
  }
  if (schema.type === "string") {
    const limits = { name, required: needed, minlength: schema.minLength, maxlength: schema.maxLength, value: schema.default ?? "" };
    const short = INPUTS[schema.format] || schema.writeOnly || schema.maxLength < 100;
    const input = short ? el("input", { ...limits, type: schema.writeOnly ? "password" : INPUTS[schema.format] ?? "text" }) : el("textarea", limits);
    return [el("label", { class: short ? null : "wide" }, label, input, hint), () => (input.value === "" && !needed ? undefined : input.value)];
  }
  if (schema.type === "object" && schema.properties && deep < DEEP) {
    const [parts, read] = members(schema, needed, inside);
    return [el("fieldset", {}, el("legend", {}, label), hint, parts), async () => {
      const found = await read();
      return needed || Object.keys(found).length ? found : undefined;
    }];
  }
  if (schema.type === "array" && schema.items && deep < DEEP) return list(name, label, hint, schema, needed, inside);
  const input = el("textarea", { name, required: needed, placeholder: "JSON", value: schema.default === undefined ? "" : JSON.stringify(schema.default) });
  return [el("label", { class: "wide" }, `${label} (JSON)`, input, hint), () => {
    if (input.value.trim() === "") return undefined;
    try {
      return JSON.parse(input.value);
    } catch (error) {
      throw new Error(`${label}: ${error.message}`);
    }
  }];
}

// Members of an object that must be there are only demanded where the object itself must be.
function members(schema, needed, around) {
  const required = new Set(needed ? schema.required : []);
  const made = Object.entries(schema.properties).map(([name, part]) => [name, ...field(name, part, required.has(name), around)]);
  const value = async () => {
    const found = await Promise.all(made.map(async ([name, , read]) => [name, await read()]));
    return Object.fromEntries(found.filter(([, one]) => one !== undefined));
  };
  return [made.map(([, element]) => element), value];
}

function list(name, label, hint, schema, needed, around) {
  const several = choices(plain(schema.items, around.root));
  if (several) {
    const boxes = several.map((choice) => [el("input", { type: "checkbox", name, checked: (schema.default ?? []).includes(choice.value) }), choice]);
    const read = () => {
      const found = boxes.filter(([box]) => box.checked).map(([, choice]) => choice.value);
      return found.length || needed ? found : undefined;
    };
    return [el("fieldset", {}, el("legend", {}, label), hint, boxes.map(([box, choice]) => el("label", {}, choice.title, box))), read];
  }
  const items = new Map();
  const place = el("div");
  const add = () => {
    const [element, read] = field(`${name} ${items.size + 1}`, schema.items, true, around);
    const row = el("div", { class: "item" }, element,
      el("button", { type: "button", onclick: () => { items.delete(row); row.remove(); } }, `Remove from ${label}`));
    items.set(row, read);
    place.append(row);
  };
  for (let count = needed ? schema.minItems ?? 0 : 0; count > 0; count -= 1) add();
  const box = el("fieldset", {}, el("legend", {}, label), hint, place, el("button", { type: "button", onclick: add }, `Add to ${label}`));
  return [box, async () => {
    const found = (await Promise.all([...items.values()].map((read) => read()))).filter((one) => one !== undefined);
    return found.length || needed ? found : undefined;
  }];
}

// Returns the fields, and an async function that gives the value; it throws an Error for what is no JSON.
// titles: of values, as the question calls them.
export function fields(given, titles) {
  const schema = plain(given ?? {}, given);
  const around = { root: given, titles, deep: 0 };
  if (schema.type === "object" && Object.keys(schema.properties ?? {}).length) return members(schema, true, around);
  const [element, value] = field("answer", schema, true, around);
  return [[element], async () => value()];
}
