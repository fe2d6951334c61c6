// The client of `agent_client_v2_client.py`, steps, options and output alike, made with the official TypeScript SDK
// `@agentclientprotocol/sdk` 2.4.0, experimental version 2: `node agent_client_v2_client.mjs --sdk FOLDER STEP... --
// COMMAND ARG...`, where FOLDER holds the SDK's `node_modules`. Params and results are what the SDK parsed.
//
// It alone has `--do "cancel-call JSON"` and `--do "cancel-terminal JSON"`, whose params are without the session.
// What the SDK does of its own accord: it gives the program an answer before notifications that came before it.

import { spawn } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { Output, settled } from "./agent_client_editor.mjs";
import { load, parse, recorded } from "./agent_client_sdk.mjs";

const WITHIN = 60000;
const ENDS_WITHIN = 5000;

/** What the program does when the agent tells and asks. */
class Editor {
  permission = "allow";
  elicitation = "decline";
  waiting = [];

  constructor(out, RequestError) {
    Object.assign(this, { out, RequestError });
  }

  giveUp() {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  register(app) {
    const raw = (params) => params;
    const ask = (method, answer, ...parser) =>
      app.onRequest(method, ...parser, (ctx) => this.asked(method, ctx, answer));
    ask("session/request_permission", (params, signal) => this.decide(params, signal));
    ask("elicitation/create", () => this.fill());
    ask("_rig/ask", (params) => ({ answer: 42, params }), raw);
    app.onNotification("session/update", (ctx) => this.out.tell("session/update", { params: ctx.params }));
    for (const [method, ...parser] of [["elicitation/complete"], ["_rig/note", raw]]) {
      app.onNotification(method, ...parser, (ctx) => this.out.tell(method, { told: ctx.params }));
    }
    return app;
  }

  async asked(method, ctx, answer) {
    await settled();
    this.out.tell(method, { asked: ctx.params });
    try {
      const answered = await answer(ctx.params, ctx.signal);
      this.out.tell(method, { answered });
      return answered;
    } catch (error) {
      this.out.tell(method, { refused: error.code ?? null });
      throw error;
    }
  }

  async decide(params, signal) {
    const how = this.permission;
    if (how === "never") {
      await new Promise((resolve, reject) => {
        this.waiting.push(resolve);
        signal?.addEventListener("abort", () => reject(new this.RequestError(-32800, "Request cancelled")));
      });
    }
    if (how === "never" || how === "cancelled") return { outcome: { outcome: "cancelled" } };
    const kind = ["allow", "reject"].includes(how) && params.options.find((one) => one.kind.startsWith(how));
    return { outcome: { outcome: "selected", optionId: kind ? kind.optionId : how } };
  }

  fill() {
    if (this.elicitation === "decline") return { action: "decline" };
    if (this.elicitation === "cancelled") return { action: "cancel" };
    return { action: "accept", content: JSON.parse(this.elicitation) };
  }
}

/** The steps, on one connection after the other. */
class Conversation {
  session = "none";
  created = [];
  asked = [];
  seen = 0;

  constructor(sdk, options, out, root, command) {
    Object.assign(this, { sdk, options, out, root, command });
    this.editor = new Editor(out, sdk.main.RequestError);
  }

  async run(steps) {
    try {
      await this.connect();
      const opening = this.options.bare === undefined ? [["do", "initialize"], ["do", "new"]] : [];
      for (const [name, value] of [...opening, ...steps]) await this[`on_${name.replaceAll("-", "_")}`](value);
      await Promise.all(this.asked);
    } finally {
      await this.disconnect();
    }
  }

  async connect() {
    const { main, http, ws, sockets } = this.sdk;
    const headers = Object.fromEntries((this.options.header ?? []).map((line) => line.split(/: (.*)/s).slice(0, 2)));
    let stream;
    if (this.options.http) stream = http.createHttpStream(this.options.http, { headers });
    else if (this.options.ws) {
      stream = ws.createWebSocketStream(this.options.ws, { WebSocket: sockets.WebSocket, headers });
    } else {
      const [program, ...args] = this.command;
      this.child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
      this.child.ended = new Promise((resolve) => this.child.on("close", resolve));
      stream = main.ndJsonStream(Writable.toWeb(this.child.stdin), Readable.toWeb(this.child.stdout));
    }
    this.stream = recorded(stream, this.options.wire, "agent", "client");
    this.connection = this.editor.register(main.client({ name: "rig-v2-ts-client" })).connect(this.stream);
  }

  async disconnect() {
    this.connection?.close();
    if (!this.child) {
      await this.stream?.writable.close().catch(() => {});
      return;
    }
    this.child.stdin.end();
    const late = setTimeout(() => this.child.kill("SIGKILL"), ENDS_WITHIN);
    const code = await this.child.ended;
    clearTimeout(late);
    this.out.tell("exit", { code });
  }

  async bounded(promise) {
    let timer;
    const late = new Promise((_, reject) => {
      const error = Object.assign(new Error("not in time"), { name: "TimeoutError" });
      timer = setTimeout(() => reject(error), WITHIN);
    });
    try {
      return await Promise.race([promise, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Makes one request and prints what came of it; the result, or undefined where it failed. */
  async request(method, params) {
    try {
      const result = await this.bounded(this.connection.agent.request(method, params));
      await settled();
      this.out.tell(method, { result: result ?? null });
      return result ?? {};
    } catch (error) {
      await settled();
      this.out.complain(method, error);
      return undefined;
    }
  }

  prompt(blocks) {
    this.seen = this.out.looked = this.out.lines.length;
    return this.request("session/prompt", { sessionId: this.session, prompt: blocks });
  }

  on_say(text) {
    return this.on_blocks(JSON.stringify([{ type: "text", text }]));
  }

  async on_blocks(blocks) {
    if ((await this.prompt(JSON.parse(blocks))) !== undefined) await this.on_idle();
  }

  on_start(text) {
    return this.prompt([{ type: "text", text }]);
  }

  on_ask(text) {
    this.asked.push(this.on_start(text));
  }

  async on_idle() {
    const [looked, seen] = [this.out.looked, this.seen];
    this.out.looked = seen;
    await this.bounded(this.out.awaited('"state":"idle"')).catch((error) => this.out.complain("idle", error));
    this.out.looked = Math.max(looked, 0);
  }

  async on_await(text) {
    await this.bounded(this.out.awaited(text)).catch((error) => this.out.complain("await", error));
  }

  async on_do(what) {
    const [name, extra] = what.split(/ (.*)/s);
    const given = extra ? JSON.parse(extra) : {};
    const there = { sessionId: this.session, ...given };
    switch (name) {
      case "initialize":
        return await this.initialize(given);
      case "new": {
        const made = await this.request("session/new", { cwd: this.root, ...given });
        if (made) this.created.push((this.session = made.sessionId));
        return;
      }
      case "resume":
        return await this.request("session/resume", { cwd: this.root, ...there });
      case "replay":
        return await this.request("session/resume", { cwd: this.root, replayFrom: { type: "start" }, ...there });
      case "close":
      case "delete":
        return await this.request(`session/${name}`, there);
      case "list":
        return await this.request("session/list", given);
      case "logout":
        return await this.request("auth/logout", given);
      case "cancel":
        await this.connection.agent.notify("session/cancel", there);
        return this.editor.giveUp();
      case "cancel-call":
        return await this.request("tool_call/cancel", there);
      case "cancel-terminal":
        return await this.request("terminal/cancel", there);
      default:
        throw new Error(`--do ${name}`);
    }
  }

  initialize(given) {
    return this.request("initialize", {
      protocolVersion: 2,
      info: { name: "rig-v2-ts-client", title: "Rig", version: "0.2" },
      capabilities: { elicitation: { form: {}, url: {} } },
      ...given,
    });
  }

  on_login(methodId) {
    return this.request("auth/login", { methodId });
  }

  on_session(which) {
    this.session = which.startsWith("@") ? this.created[Number(which.slice(1))] : which;
  }

  on_set_option(what) {
    const [configId, text] = what.split(/=(.*)/s);
    const flag = { true: true, false: false }[text];
    const value = flag === undefined ? { type: "id", value: text } : { type: "boolean", value: flag };
    return this.request("session/set_config_option", { sessionId: this.session, configId, ...value });
  }

  on_call(what) {
    const [method, params] = what.split(/ (.*)/s);
    return this.request(method, JSON.parse(params || "{}"));
  }

  async on_notify(what) {
    const [method, params] = what.split(/ (.*)/s);
    await this.connection.agent.notify(method, JSON.parse(params || "{}"));
  }

  on_permission(how) {
    this.editor.permission = how;
  }

  on_elicitation(how) {
    this.editor.elicitation = how;
  }

  async on_reconnect() {
    await this.disconnect();
    await this.connect();
    await this.initialize({});
  }
}

const THROUGHOUT = ["sdk", "http", "ws", "root", "wire", "bare"];
function parsed(words) {
  const { steps, command } = parse(words, ["bare", "idle", "reconnect"]);
  const options = Object.fromEntries(steps.filter(([name]) => THROUGHOUT.includes(name)));
  options.header = steps.filter(([name]) => name === "header").map(([, value]) => value);
  return { options, command, script: steps.filter(([name]) => !THROUGHOUT.includes(name) && name !== "header") };
}

const conversations = [[]];
for (const word of process.argv.slice(2)) {
  if (word === "+") conversations.push([]);
  else conversations.at(-1).push(word);
}
const folder = parsed(conversations[0]).options.sdk;
const sdk = {
  main: await load(folder, "@agentclientprotocol/sdk/experimental/v2"),
  http: await load(folder, "@agentclientprotocol/sdk/experimental/http-client"),
  ws: await load(folder, "@agentclientprotocol/sdk/experimental/ws-client"),
  sockets: (await load(folder, "ws")).default,
};
for (const words of conversations) {
  const { options, command, script } = parsed(words);
  if (conversations.length > 1) console.log('{"op": "converse"}');
  const made = options.root ? undefined : mkdtempSync(join(tmpdir(), "rig-"));
  try {
    await new Conversation(sdk, options, new Output(), realpathSync(options.root ?? made), command).run(script);
  } finally {
    if (made) rmSync(made, { recursive: true, force: true });
  }
}
process.exit(0);
