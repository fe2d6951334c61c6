// Shows a run's events: one row each, but what grows in pieces is one row that grows.

import { el, json, clean, renew } from "./view.js";

const MOST = 1000; // rows that are shown; of more, the newest
const TEXT = 100000; // characters of one part that are shown

export function saying(event) {
  switch (event.event) {
    case "message_started": return `${event.role ?? "assistant"} begins a message`;
    case "part_started": return `${event.kind ?? "text"} begins`;
    case "tool_call_started": return `tool: ${event.title || event.name} (${event.kind ?? "other"})`;
    case "tool_call_updated": return `tool ${event.call}: ${event.status ?? "goes on"}`;
    case "tool_call_ended": return `tool ${event.call}: ${event.failed ? "failed" : "done"}`;
    case "plan_updated": return `plan: ${(event.entries ?? []).map((entry) => `${{ completed: "✓", in_progress: "…" }[entry.status] ?? "·"} ${entry.content}`).join("  ")}`;
    case "interrupted": return `asks: ${event.interrupt.message || event.interrupt.kind}`;
    case "resumed": return `answered${event.answer?.by ? ` by ${event.answer.by.id}` : ""}`;
    case "artifact_added": return `file: ${event.artifact.name}`;
    case "usage_reported": return `tokens: ${event.input_tokens ?? "?"} in, ${event.output_tokens ?? "?"} out`;
    case "custom": return `${event.name}`;
    default: return event.event.replaceAll("_", " ");
  }
}

export class Log {
  constructor() {
    this.element = el("div", { class: "log" });
    this.left = el("p", { class: "faint" });
    this.count = 0;
    this.gone = 0;
    this.parts = new Map(); // growing text by part
    this.fresh = new Map(); // rows to write at the next frame
    this.frame = null;
  }

  add(number, event) {
    this.count += 1;
    const growing = this.parts.get(event.part);
    if (event.event === "part_delta" && growing) {
      growing.pieces += 1;
      if (growing.text.length < TEXT) growing.text += typeof event.delta === "string" ? event.delta : `${JSON.stringify(event.delta)}\n`;
      this.fresh.set(growing, number);
    } else {
      const row = { number, event, text: "", pieces: 0, element: null };
      if (event.event === "part_started") this.parts.set(event.part, row);
      if (event.event === "part_ended") this.parts.delete(event.part);
      this.fresh.set(row, number);
    }
    if (this.fresh.size > MOST) this.draw(); // nobody looks: then there are no frames
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = null;
    const made = document.createDocumentFragment();
    const rows = [...this.fresh.keys()];
    const late = rows.filter((row) => !row.element).length - MOST;
    let skipped = 0;
    for (const row of rows) {
      if (!row.element && skipped < late) { skipped += 1; continue; }
      if (!row.element) {
        row.body = el("div");
        row.title = el("span");
        row.element = el("details", { ontoggle: () => this.open(row) },
          el("summary", {}, el("span", { class: "number" }, row.number), row.title), row.body);
        made.append(row.element);
      }
      this.write(row);
    }
    this.gone += Math.max(0, skipped);
    this.fresh.clear();
    this.element.append(made);
    while (this.element.childElementCount > MOST) {
      this.element.firstElementChild.remove();
      this.gone += 1;
    }
    this.left.textContent = this.gone ? `${this.gone} earlier rows are not shown.` : "";
  }

  write(row) {
    const text = row.text.trim();
    const shown = text ? `: ${text.length > 300 ? `${text.slice(0, 300)} …` : text}` : "";
    row.title.textContent = clean(`${saying(row.event)}${row.pieces ? ` (${row.pieces} pieces)` : ""}${shown}`);
    if (row.element.open) this.open(row);
  }

  open(row) {
    if (!row.element.open) return;
    renew(row.body, row.text && json(row.text), json(row.event));
  }
}
