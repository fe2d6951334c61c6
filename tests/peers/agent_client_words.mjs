// The turns of `agent_client_agent.mjs`: what each word of a prompt does. The table of words is in
// `agent_client_agent.py`.

import { randomUUID } from "node:crypto";
import { writeSync } from "node:fs";

const OPTIONS = [
  { optionId: "ok", name: "Allow", kind: "allow_once" },
  { optionId: "no", name: "Reject", kind: "reject_once" },
];
const MODELS = [{ value: "small", name: "Small" }, { value: "large", name: "Large" }];
const FORM = {
  type: "object",
  title: "Some questions",
  properties: {
    name: { type: "string", title: "Your name" },
    colour: { type: "string", enum: ["red", "green"] },
    sure: { type: "boolean", default: false },
    count: { type: "integer", minimum: 1 },
  },
  required: ["name"],
};
const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const STOPS = { refuse: "refusal", max: "max_tokens", turns: "max_turn_requests" };

/** What outlives a turn. `history` holds pairs of an update's kind and its text. */
export class Session {
  mode = "ask";
  model = "small";
  loud = false;
  title = null;
  history = [];

  constructor(fields) {
    Object.assign(this, { id: `sess_${randomUUID().slice(0, 13)}`, touched: new Date().toISOString() }, fields);
  }

  listed() {
    const title = this.title ? { title: this.title } : {};
    return { sessionId: this.id, cwd: this.cwd, updatedAt: this.touched, ...title };
  }

  configOptions() {
    const model = { id: "model", name: "Model", category: "model", type: "select" };
    return [
      { ...model, currentValue: this.model, options: MODELS },
      { id: "loud", name: "Loud", type: "boolean", currentValue: this.loud },
    ];
  }

  /** Sets an option; false if there is none such or not such a value. */
  choose(id, value) {
    if (id === "loud" && typeof value === "boolean") this.loud = value;
    else if (id === "model" && MODELS.some((one) => one.value === value)) this.model = value;
    else return false;
    return true;
  }
}

/** One prompt being answered; `run` gives the stop reason. */
export class Turn {
  cancelled = new AbortController();

  constructor(client, session, prompt, declared, RequestError) {
    Object.assign(this, { client, session, declared, RequestError });
    this.kinds = prompt.map(({ type }) => type);
    this.text = prompt.flatMap((block) => (block.type === "text" ? [block.text] : [])).join(" ");
  }

  cancel() {
    this.cancelled.abort();
  }

  send(kind, fields) {
    const update = { sessionUpdate: kind, ...fields };
    return this.client.notify("session/update", { sessionId: this.session.id, update });
  }

  say(text) {
    return this.send("agent_message_chunk", { content: { type: "text", text } });
  }

  request(method, params) {
    return this.client.request(method, { sessionId: this.session.id, ...params });
  }

  async run() {
    this.session.touched = new Date().toISOString();
    this.session.history.push(["user_message_chunk", this.text]);
    const words = this.text.split(/\s+/).filter(Boolean);
    for (const [n, word] of words.entries()) {
      if (Object.hasOwn(STOPS, word)) return STOPS[word];
      if (typeof this[`on_${word}`] === "function") {
        try {
          await this[`on_${word}`](words[n + 1]);
        } catch (error) {
          if (!(error instanceof this.RequestError) || ["fail", "locked"].includes(word)) throw error;
          await this.say(`${word} failed ${error.code} `);
        }
      }
      if (this.cancelled.signal.aborted) return "cancelled";
    }
    const said = words.map((word) => (this.session.loud ? word.toUpperCase() : word));
    for (const word of said) await this.say(`${word} `);
    this.session.history.push(["agent_message_chunk", said.join(" ")]);
    return "end_turn";
  }

  on_think() {
    return this.send("agent_thought_chunk", { content: { type: "text", text: "hmm" } });
  }

  on_plan() {
    const first = { content: "step one", priority: "high", status: "in_progress" };
    return this.send("plan", { entries: [first, { content: "step two", priority: "medium", status: "pending" }] });
  }

  on_commands() {
    const web = { name: "web", description: "search", input: { hint: "what for" } };
    return this.send("available_commands_update", { availableCommands: [web] });
  }

  on_usage() {
    return this.send("usage_update", { used: 1200, size: 200000, cost: { amount: 0.25, currency: "USD" } });
  }

  on_title() {
    this.session.title = "A title";
    return this.send("session_info_update", { title: "A title", updatedAt: this.session.touched });
  }

  on_mode() {
    this.session.mode = "code";
    return this.send("current_mode_update", { currentModeId: "code" });
  }

  on_option() {
    this.session.model = "large";
    return this.send("config_option_update", { configOptions: this.session.configOptions() });
  }

  on_mirror() {
    return this.send("user_message_chunk", { content: { type: "text", text: this.text } });
  }

  begin(toolCallId) {
    const path = `${this.session.cwd}/x`;
    const about = { title: "Reading file", kind: "read", status: "pending" };
    return this.send("tool_call", { toolCallId, ...about, locations: [{ path, line: 3 }], rawInput: { path } });
  }

  async complete(toolCallId) {
    await this.send("tool_call_update", { toolCallId, status: "in_progress" });
    const body = { type: "content", content: { type: "text", text: "file body" } };
    const diff = { type: "diff", path: `${this.session.cwd}/x`, oldText: "old", newText: "new" };
    const ended = { status: "completed", content: [body, diff], rawOutput: { ok: true } };
    await this.send("tool_call_update", { toolCallId, ...ended });
  }

  async on_tool() {
    await this.begin("call_1");
    await this.complete("call_1");
  }

  /** Asks permission for a tool call that was begun, and ends it as it was answered; the outcome. */
  async ask(toolCallId, said = {}) {
    const asked = { toolCall: { toolCallId, ...said }, options: OPTIONS };
    const { outcome } = await this.request("session/request_permission", asked);
    if (outcome.outcome === "cancelled") this.cancel();
    else if (outcome.optionId === "ok") await this.complete(toolCallId);
    else await this.send("tool_call_update", { toolCallId, status: "failed" });
    return outcome;
  }

  async on_perm() {
    await this.begin("call_1");
    await this.say(`permission ${JSON.stringify(await this.ask("call_1"))} `);
  }

  async on_vague() {
    await this.begin("call_1");
    const content = [{ type: "content", content: { type: "text", text: "Requesting approval to Running: rm -rf build" } }];
    await this.say(`permission ${JSON.stringify(await this.ask("call_1", { title: "Bash", content }))} `);
  }

  async on_edit() {
    const diff = { type: "diff", path: `${this.session.cwd}/notes`, oldText: "one\ntwo\n", newText: "one\n2\n" };
    await this.send("tool_call", { toolCallId: "call_e", title: "Edit notes", kind: "edit", content: [diff] });
    await this.say(`permission ${JSON.stringify(await this.ask("call_e"))} `);
  }

  async on_late() {
    await this.send("tool_call", { toolCallId: "call_l", title: "Edit", kind: "edit", rawInput: {} });
    const said = { title: "Edit: notes", status: "in_progress", rawInput: { file: "notes" } };
    await this.send("tool_call_update", { toolCallId: "call_l", ...said });
    await this.complete("call_l");
  }

  async on_twoperm() {
    await this.begin("call_2");
    await this.begin("call_3");
    const outcomes = await Promise.all([this.ask("call_2"), this.ask("call_3")]);
    await this.say(`permissions ${outcomes.map((one) => JSON.stringify(one)).join(" ")} `);
  }

  async on_fs() {
    const { cwd } = this.session;
    const { content } = await this.request("fs/read_text_file", { path: `${cwd}/x`, line: 1, limit: 5 });
    await this.say(`read ${content} `);
    await this.request("fs/write_text_file", { path: `${cwd}/y`, content: "z" });
  }

  async on_term() {
    const there = await this.request("terminal/create", { command: "echo", args: ["hi"] });
    const { terminalId } = there;
    const running = { kind: "execute", status: "in_progress", content: [{ type: "terminal", terminalId }] };
    await this.send("tool_call", { toolCallId: "call_t", title: "Terminal", ...running });
    const { exitCode } = await this.request("terminal/wait_for_exit", { terminalId });
    const { output } = await this.request("terminal/output", { terminalId });
    await this.request("terminal/release", { terminalId });
    await this.send("tool_call_update", { toolCallId: "call_t", status: "completed" });
    await this.say(`term ${exitCode} ${output} `);
  }

  async on_termkill() {
    const { terminalId } = await this.request("terminal/create", { command: "sleep", args: ["600"] });
    await this.request("terminal/kill", { terminalId });
    const { exitCode } = await this.request("terminal/wait_for_exit", { terminalId });
    await this.request("terminal/release", { terminalId });
    await this.say(`killed ${exitCode !== 0} `);
  }

  async elicit(mode) {
    const answer = await this.request("elicitation/create", { message: "Please tell me", ...mode });
    await this.say(`elicit ${JSON.stringify(answer)} `);
  }

  on_elicit() {
    return this.elicit({ mode: "form", requestedSchema: FORM });
  }

  async on_ext() {
    const answer = await this.request("_rig/ask", { question: "why" });
    await this.say(`ext ${JSON.stringify(answer)} `);
    await this.client.notify("_rig/note", { sessionId: this.session.id, note: [1, null] });
  }

  on_blocks() {
    return this.say(`blocks ${this.kinds.join(",")} `);
  }

  on_picture() {
    return this.send("agent_message_chunk", { content: { type: "image", data: PIXEL, mimeType: "image/png" } });
  }

  on_link() {
    const link = { type: "resource_link", uri: `file://${this.session.cwd}/x`, name: "x", size: 1 };
    return this.send("agent_message_chunk", { content: link });
  }

  on_embed() {
    const resource = { uri: "memory://note", mimeType: "text/plain", text: "embedded text" };
    return this.send("agent_message_chunk", { content: { type: "resource", resource } });
  }

  on_meta() {
    const content = { type: "text", text: "meta ", _meta: { "rig/content": 1 } };
    const update = { sessionUpdate: "agent_message_chunk", content, _meta: { "rig/update": 2 } };
    const params = { sessionId: this.session.id, update, _meta: { "rig/params": 3 } };
    return this.client.notify("session/update", params);
  }

  on_where() {
    return this.say(`where ${this.session.cwd} `);
  }

  on_client() {
    return this.say(`client ${JSON.stringify(this.declared)} `);
  }

  async on_flood(count) {
    for (let n = 0; n < Number(count); n++) await this.say(`${n} `);
  }

  on_big(count) {
    return this.say("x".repeat(Number(count)));
  }

  async on_slow() {
    const { signal } = this.cancelled;
    for (let n = 0; n < 600 && !signal.aborted; n++) {
      await this.say(`${n} `);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, 100);
        signal.addEventListener("abort", () => resolve(clearTimeout(timer)), { once: true });
      });
    }
  }

  async on_stuck() {
    await this.say("stuck ");
    await new Promise(() => {});
  }

  on_noise() {
    writeSync(1, "this is no JSON\n");
  }

  on_fail() {
    throw this.RequestError.internalError({ details: "boom" });
  }

  on_locked() {
    throw this.RequestError.authRequired({ method: "key" });
  }

  async on_exit() {
    await this.say("bye ");
    process.exit(3);
  }
}
