// Shows a recorded run: what its client said, its events, what its agent said, in three columns, each row at its time.

import { saying } from "./log.js";
import { clean, duration, el, json, size } from "./view.js";

const MOST = 1000; // rows that are shown, and entries and events that wait to be; of more, the newest
const TEXT = 2000; // characters of one row that grows
const NEAR = 40; // pixels from the end within which the view follows it
const BEFORE = /^\{"jsonrpc":.*?"(?:params|result|error)":/; // what all messages of JSON-RPC begin with
const MARKS = { completed: "✓", in_progress: "…" };

// An event, its tool calls and plans as such. `titles`: of tool calls, by id.
function shown(event, titles) {
  const title = titles.get(event.call) ?? event.call;
  switch (event.event) {
    case "tool_call_started": return [el("strong", { class: "tool" }, "tool"), ` ${title} (${event.kind ?? "other"})`];
    case "tool_call_updated": return [el("strong", { class: "tool" }, "tool"), ` ${title}: ${event.status ?? "goes on"}`];
    case "tool_call_ended": return [el("strong", { class: "tool" }, "tool"), ` ${title}: `, el("span", { class: event.failed ? "error" : "success" }, event.failed ? "failed" : "done")];
    case "plan_updated": return [el("strong", { class: "tool" }, "plan"), el("ul", { class: "plan" }, (event.entries ?? []).map((entry) =>
      el("li", {}, `${MARKS[entry.status] ?? "·"} ${entry.content}`)))];
    case "part_delta": return [typeof event.delta === "string" ? event.delta : JSON.stringify(event.delta)];
    default: return [saying(event)];
  }
}

function detail(entry) {
  const headers = (entry.headers ?? []).map(([name, value]) => `${name}: ${value}`).join("\n");
  let text = entry.text;
  if (text && !entry.cut) {
    try { text = JSON.parse(text); } catch { /* it is text */ }
  }
  return [
    el("p", { class: "faint" }, `${entry.form}, ${size(entry.bytes)}`),
    headers && json(headers),
    entry.text === undefined ? entry.bytes > 0 && el("p", { class: "faint" }, "Not shown: it is large, or no text.") : text !== "" && json(text),
    entry.cut && el("p", { class: "faint" }, `The beginning of ${size(entry.bytes)}.`),
  ].filter(Boolean);
}

// A summary that opens to what `inside` makes, which is made when it is looked at.
function opening(titles, inside) {
  const body = el("div");
  return el("details", { ontoggle: ({ target }) => body.replaceChildren(...(target.open ? inside() : [])) },
    el("summary", {}, titles), body);
}

export class Columns {
  constructor() {
    const head = ["", "client", "events", "agent"].map((name) => el("div", { role: "columnheader" }, name || el("span", { class: "skip" }, "time")));
    this.left = el("p", { class: "faint" });
    this.rows = el("div", { role: "rowgroup" });
    this.element = el("div", { class: "columns", role: "table", tabindex: "0", "aria-label": "What was said, in order" },
      el("div", { role: "row", class: "row head" }, head), this.rows);
    this.follows = true; // the newest row is kept in view, until a reader scrolls up and from when they are at the end again
    this.top = 0;
    this.element.addEventListener("scroll", () => {
      const { scrollHeight, scrollTop, clientHeight } = this.element;
      this.follows = scrollTop >= this.top && scrollHeight - scrollTop - clientHeight < NEAR;
      this.top = scrollTop;
    });
    // A view that glides is still at the end when the next row comes.
    const up = () => { this.follows &&= this.element.scrollTop === 0; };
    this.element.addEventListener("keydown", ({ key }) => ["Home", "PageUp", "ArrowUp"].includes(key) && up());
    this.element.addEventListener("wheel", ({ deltaY }) => deltaY < 0 && up(), { passive: true });
    this.entries = []; // to be drawn
    this.events = new Map(); // that wait for their time, by number
    this.titles = new Map(); // of tool calls, by id
    this.groups = []; // of rows, one for each time at which events came: {from, last, element}
    this.placed = 0; // the number up to which events have a time
    this.count = 0; // rows that are shown
    this.gone = 0;
    this.next = 1; // the number of the next entry
    this.at = null; // when the last row was
    this.frame = null;
  }

  // An event of the run.
  add(number, event) {
    this.events.set(number, event);
    if (this.events.size > MOST) {
      this.events.delete(this.events.keys().next().value);
      this.gone += 1;
    }
    this.soon();
  }

  // Entries of its recording.
  said(entries) {
    for (const entry of entries) this.entries.push(entry);
    if (this.entries.length > 2 * MOST) this.draw(); // nobody looks: then there are no frames
    this.soon();
  }

  // Nothing more is recorded: events that still come have no time.
  over() {
    this.entries.push({ n: this.next + this.entries.length, kind: "events", last: Infinity, at: null });
    this.soon();
  }

  soon() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  draw() {
    const entries = this.entries.splice(0);
    const late = entries.length - MOST;
    entries.forEach((entry, at) => {
      if (at < late) {
        if (entry.kind === "events") this.placed = entry.last;
        this.gone += 1;
      } else {
        if (entry.n > this.next) this.row(null, 2, el("span", { class: "faint" }, `${entry.n - this.next} entries are not kept`));
        this.entry(entry);
      }
      this.next = entry.n + 1;
    });
    this.place();
    for (; this.count > MOST; this.count -= 1) this.shorten();
    this.left.textContent = this.gone ? `${this.gone} earlier rows are not shown.` : "";
    if (this.follows) this.element.scrollTop = this.element.scrollHeight;
    this.top = this.element.scrollTop;
  }

  entry(entry) {
    if (entry.kind === "lost") {
      this.row(entry.at, 2, el("span", { class: "lost" }, `lost: ${entry.what}${entry.count > 1 ? ` ×${entry.count}` : ""}`));
    } else if (entry.kind === "events") {
      const group = { from: this.placed, last: entry.last, at: entry.at, element: el("div", { role: "rowgroup" }), part: null, before: this.at };
      this.placed = entry.last;
      this.groups.push(group);
      this.rows.append(group.element);
      this.at = entry.at ?? this.at;
    } else {
      const arrow = entry.sent === (entry.side === "agent") ? "→" : "←";
      const titles = [el("span", { class: "faint" }, `${arrow} `), entry.title, el("span", { class: "faint" }, ` ${(entry.text ?? "").replace(BEFORE, "").slice(0, 200)}`)];
      this.row(entry.at, entry.side === "client" ? 1 : 3, opening(titles, () => detail(entry)));
    }
  }

  // Takes the oldest row away.
  shorten() {
    for (;;) {
      const first = this.rows.firstElementChild;
      const grouped = this.groups[0]?.element === first;
      this.gone += !grouped || first.childElementCount > 0;
      if (grouped && first.childElementCount > 1) return first.firstElementChild.remove();
      if (grouped) this.groups.shift();
      first.remove();
      if (!grouped || first.childElementCount > 0) return undefined;
    }
  }

  // Puts events where their time is known.
  place() {
    for (const [number, event] of this.events) {
      if (number > this.placed) continue; // its time is not here yet
      this.events.delete(number);
      const group = this.groups.find((one) => one.from < number && number <= one.last);
      if (group) this.event(group, number, event);
      else this.gone += 1;
    }
    if (this.groups.length > MOST) this.groups.splice(0, this.groups.length - MOST);
  }

  event(group, number, event) {
    if (event.event === "tool_call_started" && this.titles.size < MOST) this.titles.set(event.call, event.title || event.name);
    if (event.event === "part_delta" && group.part === event.part) {
      if (group.text.textContent.length < TEXT) group.text.append(...shown(event, this.titles).map(clean));
      group.pieces.push(event);
      return;
    }
    const text = el("span", {}, shown(event, this.titles));
    const pieces = [event];
    [group.part, group.text, group.pieces] = [event.event === "part_delta" ? event.part : null, text, pieces];
    const first = group.element.childElementCount === 0;
    group.element.append(this.made(first ? group.at : null, first ? group.before : null, 2,
      opening([el("span", { class: "number" }, number), text], () => pieces.slice(0, 100).map((one) => json(one)))));
  }

  row(at, column, content) {
    this.rows.append(this.made(at, this.at, column, content));
    this.at = at ?? this.at;
  }

  // A row whose content is in one column. `before`: when the row before it was.
  made(at, before, column, content) {
    this.count += 1;
    const time = at && el("time", { datetime: new Date(at * 1000).toISOString(), title: new Date(at * 1000).toISOString() },
      before === null ? new Date(at * 1000).toLocaleTimeString() : `+${duration(Math.max(0, at - before))}`);
    return el("div", { role: "row", class: "row" }, [1, 2, 3].reduce((cells, one) => [...cells, el("div", { role: "cell" }, one === column && content)],
      [el("div", { role: "cell", class: "time" }, time)]));
  }
}
