// A client made with the official TypeScript SDK `@i-am-bee/acp-sdk` 0.0.6, driven from the command line: `node
// agent_communication_client.mjs --sdk FOLDER STEP... -- COMMAND ARG...` talks to a server on stdio, `--sse URL` over
// HTTP+SSE, `--ws URL` over WebSocket. FOLDER holds the SDK's `node_modules`. Steps and output are those of
// `agent_communication_steps.py`; initialize comes with the connection, so `--bare` does not keep it away.
//
// What the SDK does of its own accord: it proposes 2024-11-05 and closes on any other answer than that or 2024-10-07.
// It gives the program an answer before notifications that came before it. It tells progress of a run to a handler for
// the notification, whatever the token; its own `onprogress` is for `notifications/progress` and makes the token the
// request's id (0 among them) and throws all other `_meta` away. It keeps unknown keys everywhere but in a message
// itself: one with a key that JSON-RPC has not it drops, with an error. A request that it cancels is over at once; the
// answer that still comes is an error in `onerror`, as is every answer that nobody waits for (ids are compared as
// numbers). After 60 s without an answer it cancels by itself. Of HTTP+SSE it wants the messages' address on its own
// origin, and 2xx; its stream reconnects when it ends, to a new session that has not been initialized.

import { appendFileSync } from "node:fs";
import { parse, sdkOf } from "./agent_communication_sdk.mjs";

const SETTINGS = ["token", "meta", "cancel-after", "sampling", "elicitation", "within"];
const METHODS = { list: "agents/list", templates: "agents/templates/list", tools: "tools/list" };
const started = performance.now();
const forever = () => new Promise(() => {});

/** Lets the SDK hand out what it has already received: notifications take it longer than answers do. */
const settled = () => new Promise((resolve) => setImmediate(resolve));

/** Prints lines, and lets others wait for one. */
class Output {
  lines = [];
  looked = 0;
  waiting = [];

  tell(op, said) {
    const line = JSON.stringify({ op, ...said, t: Math.round((performance.now() - started) * 10) / 10000 });
    console.log(line);
    this.lines.push(line);
    for (const wake of this.waiting.splice(0)) wake();
  }

  async awaited(text) {
    for (;;) {
      while (this.looked < this.lines.length) if (this.lines[this.looked++].includes(text)) return;
      await new Promise((resolve) => this.waiting.push(resolve));
    }
  }

  complain(op, error, said = {}) {
    const { name, code, message, data = null } = error ?? {};
    const type = error?.constructor?.name === "McpError" ? "McpError" : (name ?? typeof error);
    const text = message ?? String(error);
    this.tell(op, { error: { type, code: typeof code === "number" ? code : null, message: text, data }, ...said });
  }
}

/** `NAME JSON`, where the JSON may be missing. */
function split(what) {
  const [, name, json] = /^(\S*)\s*(.*)$/s.exec(what);
  return [name, JSON.parse(json || "{}")];
}

class Conversation {
  seconds = 60;
  sampling = "hello";
  token = "auto";
  meta = {};
  cancelAfter = 0;
  runs = 0;
  running = [];

  constructor(sdk, options, command, out) {
    Object.assign(this, { sdk, options, command, out });
    const { types } = sdk;
    const info = { name: "rig-ts-client", version: "0.1" };
    this.client = new sdk.Client(info, { capabilities: { roots: {}, sampling: {} } });
    this.client.onerror = (error) => this.out.tell("stray", { told: String(error).slice(0, 500) });
    const handed = (one) => this.out.tell(one.method, { told: one.params ?? null });
    this.client.fallbackNotificationHandler = async (one) => handed(one);
    for (const schema of [types.AgentRunProgressNotificationSchema, types.ProgressNotificationSchema]) {
      this.client.setNotificationHandler(schema, handed);
    }
    this.client.setRequestHandler(types.CreateMessageRequestSchema, (one) => this.asked(one, () => this.sampled()));
    const roots = [{ uri: "file:///rig", name: "rig" }];
    this.client.setRequestHandler(types.ListRootsRequestSchema, (one) => this.asked(one, () => ({ roots })));
  }

  async asked({ method, params }, answer) {
    await settled();
    this.out.tell(method, { asked: params ?? null });
    try {
      const answered = await answer();
      this.out.tell(method, { answered });
      return answered;
    } catch (error) {
      this.out.tell(method, { refused: error.code ?? null });
      throw error;
    }
  }

  async sampled() {
    if (this.sampling === "error") throw new this.sdk.types.McpError(-32099, "the client was told to fail");
    if (this.sampling === "ignore") await forever();
    const content = { type: "text", text: this.sampling };
    return { role: "assistant", content, model: "rig", stopReason: "endTurn" };
  }

  async connect() {
    const { SSEClientTransport, WebSocketClientTransport, StdioClientTransport } = this.sdk;
    const { sse, ws, header } = this.options;
    const headers = Object.fromEntries(header.map((line) => line.split(/: (.*)/s).slice(0, 2)));
    if (sse) this.transport = new SSEClientTransport(new URL(sse), { requestInit: { headers } });
    else if (ws) this.transport = new WebSocketClientTransport(new URL(ws));
    else {
      const [command, ...args] = this.command;
      this.transport = new StdioClientTransport({ command, args, env: process.env });
    }
    this.tap();
    await this.bounded(this.client.connect(this.transport));
    this.out.tell("initialize", {
      result: {
        capabilities: this.client.getServerCapabilities(),
        serverInfo: this.client.getServerVersion(),
        instructions: this.client.getInstructions(),
      },
    });
  }

  /** Keeps each message that passes, if a file is named. */
  tap() {
    const { transport, options } = this;
    const keep = (to, message) => {
      if (options.wire) appendFileSync(options.wire, `${JSON.stringify({ to, message })}\n`);
    };
    const send = transport.send.bind(transport);
    transport.send = (message) => {
      keep("server", message);
      return send(message);
    };
    let handed;
    Object.defineProperty(transport, "onmessage", {
      set: (handler) => (handed = handler),
      get: () => (message) => {
        keep("client", message);
        handed(message);
      },
    });
  }

  async run(steps) {
    const first = steps.findIndex(([name]) => !SETTINGS.includes(name));
    const settings = first < 0 ? steps : steps.slice(0, first);
    for (const step of settings) await this.step(step);
    try {
      await this.connect();
    } catch (error) {
      this.out.complain("connect", error);
      return;
    }
    for (const step of steps.slice(settings.length)) await this.step(step);
    await this.client.close();
  }

  async step([name, value]) {
    try {
      await this[`on_${name.replaceAll("-", "_")}`](value);
    } catch (error) {
      this.out.complain(name, error);
    }
  }

  async bounded(promise) {
    let timer;
    const late = new Promise((_, reject) => {
      const error = Object.assign(new Error("not in time"), { name: "TimeoutError" });
      timer = setTimeout(() => reject(error), this.seconds * 1000);
    });
    try {
      return await Promise.race([promise, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** One request, by the SDK's own method for it where it has one. */
  perform(method, params, options) {
    const { client } = this;
    switch (method) {
      case "ping":
        return client.ping(options);
      case "logging/setLevel":
        return client.setLoggingLevel(params.level, options);
      case "agents/list":
        return client.listAgents(params, options);
      case "agents/templates/list":
        return client.listAgentTemplates(params, options);
      case "agents/create":
        return client.createAgent(params, options);
      case "agents/destroy":
        return client.destroyAgent(params, options);
      case "agents/run":
        return client.runAgent(params, options);
      case "tools/list":
        return client.listTools(params, options);
      case "tools/call":
        return client.callTool(params, undefined, options);
      default:
        return client.request({ method, params }, this.sdk.types.ResultSchema, options);
    }
  }

  /** Makes one request and prints what came of it. */
  async ask(method, params, said = {}, options = undefined) {
    try {
      const result = await this.bounded(this.perform(method, params, options));
      await settled();
      this.out.tell(method, { result, ...said });
    } catch (error) {
      await settled();
      this.out.complain(method, error, said);
    }
  }

  async called(method, what, key) {
    this.out.looked = this.out.lines.length;
    const run = ++this.runs;
    const [name, params] = split(what);
    const meta = { ...this.meta };
    if (this.token !== "none") meta.progressToken = this.token === "auto" ? `run-${run}` : JSON.parse(this.token);
    const asked = { name, [key]: params, ...(Object.keys(meta).length ? { _meta: meta } : {}) };
    const cancelling = new AbortController();
    this.last = cancelling;
    const after = this.cancelAfter;
    this.cancelAfter = 0;
    const answer = this.ask(method, asked, { run }, { signal: cancelling.signal });
    const token = `"progressToken":${JSON.stringify(meta.progressToken)}`;
    if (after) await Promise.race([answer, this.cancelled(after, token)]);
    await answer;
  }

  async cancelled(after, token) {
    for (let n = 0; n < after; n++) await this.out.awaited(token);
    this.on_cancel();
  }

  on_run(what) {
    return this.called("agents/run", what, "input");
  }

  on_tool(what) {
    return this.called("tools/call", what, "arguments");
  }

  on_start(what) {
    this.running.push(this.on_run(what));
  }

  on_start_tool(what) {
    this.running.push(this.on_tool(what));
  }

  async on_finish() {
    await Promise.all(this.running.splice(0));
  }

  on_cancel() {
    this.last.abort("told to");
  }

  async on_await(text) {
    await this.bounded(this.out.awaited(text)).catch(() => {
      this.out.tell("await", { error: { type: "TimeoutError", code: null, message: text, data: null } });
    });
  }

  async on_do(what) {
    const [name, params] = split(what);
    if (name === "roots") await this.client.sendRootsListChanged();
    else await this.ask(METHODS[name] ?? name, params);
  }

  async on_create(what) {
    const [templateName, config] = split(what);
    await this.ask("agents/create", { templateName, config });
  }

  async on_destroy(name) {
    await this.ask("agents/destroy", { name });
  }

  async on_call(what) {
    await this.ask(...split(what));
  }

  async on_notify(what) {
    const [method, params] = split(what);
    await this.client.notification({ method, params });
  }

  async on_level(level) {
    await this.ask("logging/setLevel", { level });
  }

  on_token(token) {
    this.token = token;
  }

  on_meta(meta) {
    this.meta = JSON.parse(meta);
  }

  on_cancel_after(count) {
    this.cancelAfter = Number(count);
  }

  on_sampling(how) {
    this.sampling = how;
  }

  on_elicitation() {} // the SDK knows none; the option is there so that all clients take the same steps

  on_within(seconds) {
    this.seconds = Number(seconds);
  }
}

const { options, steps, command } = parse(process.argv.slice(2), ["finish", "cancel", "bare"]);
const conversation = new Conversation(await sdkOf(options.sdk), options, command, new Output());
await conversation.run(steps);
process.exit(0);
