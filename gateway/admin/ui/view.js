// Makes elements. Everything that comes from agents and clients is text: nothing here reads markup.

// Marks that turn text around, and control characters, are shown instead of obeyed.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function clean(text) {
  return String(text).replace(HIDDEN, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false).map((child) =>
    child instanceof Node ? child : document.createTextNode(clean(child))));
  return element;
}

// Draws a place anew. Elements that are alike stay the elements they were, and are given the new attributes and content:
// focus, selection, scrolling and open details stay. One with an id stays as it is, with its listeners and what was
// entered there; of others the listeners must not depend on what is drawn. If the focus was in what went, it is at main.
export function renew(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  match(place, el("div", {}, ...children));
  if (focused && !focused.isConnected) document.getElementById("main").focus({ preventScroll: true });
}

function match(place, wanted) {
  let next = place.firstChild;
  for (const child of [...wanted.childNodes]) {
    let found = next;
    while (found && !alike(found, child)) found = found.nextSibling;
    if (!found) {
      place.insertBefore(child, next);
      continue;
    }
    while (next !== found) next = gone(next);
    next = found.nextSibling;
    if (found.nodeType === Node.TEXT_NODE) {
      if (found.data !== child.data) found.data = child.data;
    } else if (!found.id) {
      for (const { name } of [...found.attributes]) if (name !== "open" && !child.hasAttribute(name)) found.removeAttribute(name);
      for (const { name, value } of child.attributes) if (found.getAttribute(name) !== value) found.setAttribute(name, value);
      match(found, child);
    }
  }
  while (next) next = gone(next);
}

function gone(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// Rows are known by their first cells: a row that is new above others does not become one of them.
function alike(one, other) {
  return one.nodeName === other.nodeName && (one.nodeName === "TR" ? one.firstElementChild.textContent === other.firstElementChild.textContent : (one.id ?? "") === (other.id ?? ""));
}

export function table(heads, rows, caption) {
  return el("table", {}, el("caption", { class: "skip" }, caption),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col", class: head.number && "number" }, head.text ?? head)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, at) =>
      el("td", { class: heads[at].number && "number" }, cell ?? "")))))); 
}

export function definitions(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value !== "" && value != null).map(([name, value]) =>
    [el("dt", {}, name), el("dd", {}, value)]));
}

export function json(value) {
  return el("pre", { tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

export function status(word) {
  return el("span", { class: word }, word);
}

export function moment(seconds) {
  const time = new Date(seconds * 1000);
  return el("time", { datetime: time.toISOString(), title: time.toISOString() }, time.toLocaleString());
}

export function duration(seconds) {
  if (seconds == null) return "";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 120 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds / 60)} min`;
}

export function size(bytes) {
  return bytes < 2048 ? `${bytes} bytes` : bytes < 2 << 20 ? `${Math.round(bytes / 1024)} kB` : `${Math.round(bytes / 1048576)} MB`;
}

export function tell(text) {
  const told = document.getElementById("told");
  told.textContent = clean(text);
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => { told.textContent = ""; }, 8000);
}
