// The turns of `agent_client_v2_agent.mjs`: what each word of a prompt does. The table of words is in
// `agent_client_v2_agent.py`.

import { randomUUID } from "node:crypto";

const OPTIONS = [
  { optionId: "ok", name: "Allow", kind: "allow_once" },
  { optionId: "no", name: "Reject", kind: "reject_once" },
];
const FORM = {
  type: "object",
  properties: { name: { type: "string", title: "Your name" }, sure: { type: "boolean" } },
  required: ["name"],
};
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const STOPS = { refuse: "refusal", max: "max_tokens", turns: "max_turn_requests" };
const AFTER = ["later", "work", "busy", "mind", "again"];
const KNOWN = { how: ["ask", "code"], model: ["small", "large"], loud: [true, false] };

const text = (said) => ({ type: "text", text: said });
const name = (what) => `${what}_${randomUUID().slice(0, 8)}`;
const base64 = (said) => Buffer.from(said).toString("base64");
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const choices = (values) => values.map((value) => ({ value, name: value[0].toUpperCase() + value.slice(1) }));

/** Work of the agent's own: whether a prompt waits for its end, and whether that has come. */
class Own {
  wanted = new Promise((resolve) => (this.want = resolve));
  done = new Promise((resolve) => (this.end = resolve));
}

/** What outlives a turn. `history` holds [kind, message id, text]. */
export class Session {
  mode = "ask";
  model = "small";
  loud = false;
  history = [];

  constructor(fields) {
    Object.assign(this, { id: name("sess") }, fields);
  }

  options() {
    const mode = { configId: "how", name: "Mode", category: "mode", currentValue: this.mode };
    const model = { configId: "model", name: "Model", currentValue: this.model };
    return [
      { type: "select", ...mode, options: choices(KNOWN.how) },
      { type: "select", ...model, options: choices(KNOWN.model) },
      { type: "boolean", configId: "loud", name: "Loud", currentValue: this.loud },
    ];
  }

  choose(option, value) {
    if (!KNOWN[option]?.includes(value)) return false;
    this[option === "how" ? "mode" : option] = value;
    return true;
  }
}

/** One prompt's foreground work, and what is done after it. */
export class Turn {
  message = name("user");
  answer = name("msg");
  cancelled = new AbortController();
  stops = new Map();

  constructor(rig, client, session, prompt) {
    Object.assign(this, { rig, client, session });
    this.kinds = prompt.map(({ type }) => type);
    const said = prompt.flatMap((block) => (block.type === "text" ? [block.text] : [])).join(" ");
    this.words = said.split(/\s+/).filter(Boolean);
  }

  cancel() {
    this.cancelled.abort();
  }

  stopped(id) {
    return new Promise((resolve) => this.stops.set(id, resolve));
  }

  send(kind, fields) {
    const update = { sessionUpdate: kind, ...fields };
    return this.client.notify("session/update", { sessionId: this.session.id, update });
  }

  state(state, fields) {
    return this.send("state_update", { state, background: [], ...fields });
  }

  chunk(content, messageId = this.answer) {
    return this.send("agent_message_chunk", { messageId, content });
  }

  say(said) {
    return this.chunk(text(said));
  }

  request(method, params) {
    return this.client.request(method, { sessionId: this.session.id, ...params });
  }

  async run() {
    const said = this.words.join(" ");
    this.session.history.push(["user_message", this.message, said]);
    if (!this.words.includes("quiet")) {
      await this.send("user_message", { messageId: this.message, content: [text(said)] });
      await this.state("running");
    }
    let ended;
    try {
      ended = { stopReason: await this.work() };
    } catch (error) {
      if (!(error instanceof this.rig.RequestError)) throw error;
      const { code, message, data } = error;
      ended = { stopReason: "error", error: { code, message, data } };
    }
    const { id } = this.session;
    this.rig.turns.delete(id);
    this.rig.keep();
    if (["work", "busy", "mind"].some((word) => this.words.includes(word))) this.rig.own.set(id, new Own());
    await this.state("idle", ended);
    for (const word of this.words) if (AFTER.includes(word)) void this[`after_${word}`](ended);
  }

  async work() {
    for (const [n, word] of this.words.entries()) {
      if (Object.hasOwn(STOPS, word)) return STOPS[word];
      if (typeof this[`on_${word}`] === "function") {
        try {
          await this[`on_${word}`](this.words[n + 1]);
        } catch (error) {
          if (!(error instanceof this.rig.RequestError) || word === "fail") throw error;
          await this.say(`${word} failed ${error.code} `);
        }
      }
      if (this.cancelled.signal.aborted) return "cancelled";
    }
    const said = this.words.map((word) => (this.session.loud ? word.toUpperCase() : word));
    for (const word of said) await this.say(`${word} `);
    this.session.history.push(["agent_message", this.answer, said.join(" ")]);
    return "end_turn";
  }

  on_think() {
    return this.send("agent_thought_chunk", { messageId: name("th"), content: text("hmm") });
  }

  on_plan() {
    const first = { content: "step one", priority: "high", status: "in_progress" };
    const entries = [first, { content: "step two", priority: "medium", status: "pending" }];
    return this.send("plan_update", { plan: { type: "items", planId: "plan-1", entries } });
  }

  async on_plans() {
    for (const [planId, status] of [["a", "pending"], ["b", "pending"], ["a", "completed"]]) {
      const entries = [{ content: "one thing", priority: "low", status }];
      await this.send("plan_update", { plan: { type: "items", planId, entries } });
    }
  }

  on_commands() {
    const web = { type: "command", name: "web", description: "search", input: { type: "text", hint: "what for" } };
    return this.send("available_commands_update", { availableCommands: [web] });
  }

  on_usage() {
    return this.send("usage_update", { used: 1200, size: 200000, cost: { amount: 0.25, currency: "USD" } });
  }

  on_title() {
    return this.send("session_info_update", { title: "A title" });
  }

  on_mode() {
    this.session.mode = "code";
    return this.send("config_option_update", { configOptions: this.session.options() });
  }

  on_option() {
    this.session.model = "large";
    return this.send("config_option_update", { configOptions: this.session.options() });
  }

  on_whole() {
    return this.send("agent_message", { messageId: name("msg"), content: [text("said at once ")] });
  }

  async on_rewrite() {
    const messageId = name("msg");
    await this.chunk(text("a draft "), messageId);
    await this.send("agent_message", { messageId, content: [text("rewritten ")] });
    await this.chunk(text("and more "), messageId);
  }

  async on_clear() {
    const messageId = name("msg");
    await this.chunk(text("a slip "), messageId);
    await this.send("agent_message", { messageId, content: null });
  }

  on_picture() {
    return this.chunk({ type: "image", data: PIXEL, mimeType: "image/png" });
  }

  on_link() {
    return this.chunk({ type: "resource_link", uri: `file://${this.session.cwd}/x`, name: "x", size: 1 });
  }

  on_strange() {
    return this.send("_rig_thing", { thing: { n: [1, null] } });
  }

  call(fields) {
    return this.send("tool_call_update", { toolCallId: "call_1", ...fields });
  }

  begin() {
    const path = `${this.session.cwd}/x`;
    const about = { title: "Reading file", kind: "read", status: "pending" };
    return this.call({ ...about, locations: [{ path, line: 3 }], rawInput: { path } });
  }

  async complete() {
    await this.call({ status: "in_progress" });
    const body = { type: "content", content: text("file ") };
    await this.send("tool_call_content_chunk", { toolCallId: "call_1", content: body });
    const change = { operation: "modify", path: `${this.session.cwd}/x`, fileType: "text" };
    const patch = { format: "git_patch", text: "diff --git /x /x\n--- /x\n+++ /x\n@@ -1 +1 @@\n-old\n+new\n" };
    const diff = { type: "diff", changes: [change], patch };
    await this.send("tool_call_content_chunk", { toolCallId: "call_1", content: diff });
    await this.call({ status: "completed", rawOutput: { ok: true } });
  }

  async on_tool() {
    await this.begin();
    await this.complete();
  }

  async on_display() {
    const shown = { type: "terminal", terminalId: "term_1" };
    const about = { title: "Terminal", kind: "execute", status: "in_progress", content: [shown] };
    await this.send("tool_call_update", { toolCallId: "call_t", ...about });
    const output = { data: base64("hi ") };
    await this.send("terminal_update", { terminalId: "term_1", command: "echo hi", cwd: this.session.cwd, output });
    const bytes = Buffer.from("tä");
    for (const piece of [bytes.subarray(0, 2), bytes.subarray(2)]) {
      await this.send("terminal_output_chunk", { terminalId: "term_1", data: base64(piece) });
    }
    await this.send("terminal_update", { terminalId: "term_1", exitStatus: { exitCode: 0 } });
    await this.send("tool_call_update", { toolCallId: "call_t", status: "completed" });
  }

  async on_stoppable() {
    const stopped = { call: this.stopped("call_1"), terminal: this.stopped("term_1") };
    const capabilities = { cancel: {} };
    const content = [{ type: "terminal", terminalId: "term_1" }];
    await this.call({ title: "Watching", kind: "execute", status: "in_progress", content, capabilities });
    await this.send("terminal_update", { terminalId: "term_1", command: "watch", capabilities });
    await stopped.terminal;
    await this.send("terminal_update", { terminalId: "term_1", exitStatus: { signal: "SIGTERM" }, capabilities: null });
    await stopped.call;
    await this.call({ status: "cancelled", capabilities: null });
  }

  async ask(subject) {
    const asked = { title: "May I?", description: "It is harmless.", options: OPTIONS, ...(subject ? { subject } : {}) };
    const asking = this.request("session/request_permission", asked);
    await this.state("requires_action");
    const { outcome } = await asking;
    await this.state("running");
    if (outcome.outcome === "cancelled") this.cancel();
    await this.say(`permission ${JSON.stringify(outcome)} `);
  }

  async on_perm() {
    await this.begin();
    await this.ask({ type: "tool_call", toolCall: { toolCallId: "call_1", title: "Reading file" } });
    await this.complete();
  }

  on_command() {
    return this.ask({ type: "command", command: "cargo test", cwd: this.session.cwd });
  }

  on_bare() {
    return this.ask();
  }

  async on_elicit() {
    const asked = { message: "Please tell me", mode: "form", requestedSchema: FORM };
    await this.say(`elicit ${JSON.stringify(await this.request("elicitation/create", asked))} `);
  }

  async on_ext() {
    await this.say(`ext ${JSON.stringify(await this.request("_rig/ask", { question: "why" }))} `);
    await this.client.notify("_rig/note", { sessionId: this.session.id, note: [1, null] });
  }

  async on_fs() {
    const read = await this.request("fs/read_text_file", { path: `${this.session.cwd}/x` });
    await this.say(`read ${JSON.stringify(read)} `);
  }

  async on_wait() {
    await this.state("requires_action");
    await this.state("running");
  }

  on_blocks() {
    return this.say(`blocks ${this.kinds.join(",")} `);
  }

  on_where() {
    return this.say(`where ${this.session.cwd} `);
  }

  on_client() {
    return this.say(`client ${JSON.stringify(this.rig.declared)} `);
  }

  async on_flood(count) {
    for (let n = 0; n < Number(count); n++) await this.say(`${n} `);
  }

  cancelling(milliseconds) {
    const { signal } = this.cancelled;
    return new Promise((resolve) => {
      if (signal.aborted) return resolve();
      const timer = setTimeout(resolve, milliseconds);
      signal.addEventListener("abort", () => resolve(clearTimeout(timer)), { once: true });
    });
  }

  async on_slow() {
    for (let n = 0; n < 600 && !this.cancelled.signal.aborted; n++) {
      await this.say(`${n} `);
      await this.cancelling(100);
    }
  }

  async on_linger() {
    await this.cancelling(60_000);
    await pause(300);
    await this.say("lingered ");
  }

  async on_stuck() {
    await this.say("stuck ");
    await new Promise(() => {});
  }

  on_fail() {
    throw this.rig.RequestError.internalError({ details: "boom" });
  }

  async on_exit() {
    await this.say("bye ");
    process.exit(3);
  }

  async after_later() {
    const about = { title: "In the background", kind: "other", status: "completed" };
    await this.send("tool_call_update", { toolCallId: "call_b", ...about });
    await this.chunk(text("by the way "), name("msg"));
  }

  after_work() {
    return this.own(["of its own "]);
  }

  after_busy() {
    return this.own(["busy ", "done "]);
  }

  after_mind() {
    this.answer = name("msg");
    return this.own(["a thought "], true);
  }

  /** Work that nobody asked for; between what it says it waits for a prompt, which waits for its end. */
  async own(said, asks = false) {
    const work = this.rig.own.get(this.session.id);
    await this.state("running");
    for (const [n, piece] of said.entries()) {
      if (n) await work.wanted;
      await this.chunk(text(piece), name("msg"));
    }
    if (asks) await this.on_command();
    await this.state("idle", { stopReason: "end_turn" });
    this.rig.own.delete(this.session.id);
    work.end();
  }

  after_again(ended) {
    this.rig.repeat.set(this.session.id, ended);
  }
}
