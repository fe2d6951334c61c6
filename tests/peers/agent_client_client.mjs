// A client made with the official TypeScript SDK `@agentclientprotocol/sdk`, driven from the command line:
// `node agent_client_client.mjs --sdk FOLDER STEP... -- COMMAND ARG...`, where FOLDER holds the SDK's `node_modules`.
// It runs unchanged with 0.29.0 and 2.4.0. Options, steps and output are those of `agent_client_client.py`; params
// and results are what the SDK parsed.
//
// What the SDK does of its own accord: it gives the program an answer before notifications that came before it. Over
// HTTP it wants any 2xx for a POST, and the answer to initialize must have its id. Before it posts anything with a
// session's id in its params (load and resume too) it opens that session's stream and waits for its 2xx, and it names
// the session on the post; an answer is posted with the session of the stream that the question came on. The end of the
// connection's stream is an error. It keeps cookies, and sends them back.
// 0.29.0: any other HTTP status, and the end of a session's stream while a request waits, end the connection.
// 2.4.0: 401, 403, 404 and 410 do; any other status fails that request alone, with JSON-RPC error -32603 and
// `data: {status, body}`; 409 fails the session until it is loaded or resumed; -32002 for close and delete is success.

import { spawn } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { Editor, Output, settled } from "./agent_client_editor.mjs";
import { load, parse, recorded } from "./agent_client_sdk.mjs";

const SETTINGS = ["permission", "elicitation", "file", "capabilities", "within"];
const ENDS_WITHIN = 5000;

class Conversation {
  capabilities = {
    fs: { readTextFile: true, writeTextFile: true },
    terminal: true,
    elicitation: { form: {}, url: {} },
    session: { configOptions: { boolean: {} } },
  };
  seconds = 60;
  session = "none";
  created = [];
  running = [];

  constructor(sdk, options, out, root, command) {
    Object.assign(this, { sdk, options, out, root, command });
    this.editor = new Editor(out, root, sdk.main.RequestError);
  }

  async run(steps) {
    try {
      await this.connect();
      const first = steps.findIndex(([name]) => !SETTINGS.includes(name));
      const settings = first < 0 ? steps : steps.slice(0, first);
      const opening = this.options.bare === undefined ? [["do", "initialize"], ["do", "new"]] : [];
      for (const [name, value] of [...settings, ...opening, ...steps.slice(settings.length)]) {
        await this[`on_${name.replaceAll("-", "_")}`](value);
      }
    } finally {
      for (const one of this.editor.terminals.values()) this.editor.kill(one);
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
    const app = this.editor.register(main.client({ name: "rig-ts-client" }));
    this.connection = app.connect(this.stream);
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
      timer = setTimeout(() => reject(error), this.seconds * 1000);
    });
    try {
      return await Promise.race([promise, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Makes one request and prints what came of it; the result, or undefined where it failed. */
  async ask(method, params) {
    try {
      const result = await this.bounded(this.connection.agent.request(method, params));
      await settled();
      this.out.tell(method, { result: result ?? null });
      return result;
    } catch (error) {
      await settled();
      this.out.complain(method, error);
      return undefined;
    }
  }

  /** Sends one notification; prints only what went wrong. */
  async tell(method, params) {
    await this.bounded(this.connection.agent.notify(method, params)).catch((error) => this.out.complain(method, error));
  }

  prompt(blocks) {
    return this.ask("session/prompt", { sessionId: this.session, prompt: blocks });
  }

  on_say(text) {
    return this.prompt([{ type: "text", text }]);
  }

  on_blocks(blocks) {
    return this.prompt(JSON.parse(blocks));
  }

  on_start(text) {
    this.out.looked = this.out.lines.length;
    this.running.push(this.on_say(text));
  }

  async on_finish() {
    await Promise.all(this.running.splice(0));
  }

  async on_await(text) {
    await this.bounded(this.out.awaited(text)).catch((error) => this.out.complain("await", error));
  }

  async on_do(what) {
    const [name, extra] = what.split(/ (.*)/s);
    const given = extra ? JSON.parse(extra) : {};
    const here = { cwd: this.root, mcpServers: [] };
    const there = { sessionId: this.session };
    switch (name) {
      case "initialize":
        return await this.initialize(given);
      case "new": {
        const made = await this.ask("session/new", { ...here, ...given });
        if (made) this.created.push((this.session = made.sessionId));
        return;
      }
      case "load":
      case "resume":
        return await this.ask(`session/${name}`, { ...here, ...there, ...given });
      case "close":
      case "delete":
        return await this.ask(`session/${name}`, { ...there, ...given });
      case "list":
        return await this.ask("session/list", given);
      case "logout":
        return await this.ask("logout", given);
      case "cancel":
        await this.tell("session/cancel", { ...there, ...given });
        return this.editor.giveUp();
      default:
        throw new Error(`--do ${name}`);
    }
  }

  initialize(given) {
    return this.ask("initialize", {
      protocolVersion: this.sdk.main.PROTOCOL_VERSION,
      clientCapabilities: this.capabilities,
      clientInfo: { name: "rig-ts-client", title: "Rig", version: "0.1" },
      ...given,
    });
  }

  on_session(which) {
    this.session = which.startsWith("@") ? this.created[Number(which.slice(1))] : which;
  }

  on_set_mode(modeId) {
    return this.ask("session/set_mode", { sessionId: this.session, modeId });
  }

  on_set_option(what) {
    const [configId, text] = what.split(/=(.*)/s);
    const flag = { true: true, false: false }[text];
    const value = flag === undefined ? { value: text } : { type: "boolean", value: flag };
    return this.ask("session/set_config_option", { sessionId: this.session, configId, ...value });
  }

  on_authenticate(methodId) {
    return this.ask("authenticate", { methodId });
  }

  on_call(what) {
    const [method, params] = what.split(/ (.*)/s);
    return this.ask(method, JSON.parse(params || "{}"));
  }

  on_notify(what) {
    const [method, params] = what.split(/ (.*)/s);
    return this.tell(method, JSON.parse(params || "{}"));
  }

  on_permission(how) {
    this.editor.permission = how;
  }

  on_elicitation(how) {
    this.editor.elicitation = how;
  }

  on_file(what) {
    const [name, text] = what.split(/=(.*)/s);
    writeFileSync(join(this.root, name), text);
  }

  async on_reconnect() {
    await this.disconnect();
    await this.connect();
    await this.initialize({});
  }

  on_capabilities(given) {
    this.capabilities = JSON.parse(given);
  }

  on_within(seconds) {
    this.seconds = Number(seconds);
  }
}

const THROUGHOUT = ["sdk", "http", "ws", "root", "wire", "bare"];
/** One conversation: its options, its steps, and the command of its agent. */
function parsed(words) {
  const { steps, command } = parse(words, ["bare", "finish", "reconnect"]);
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
  main: await load(folder, "@agentclientprotocol/sdk"),
  http: await load(folder, "@agentclientprotocol/sdk/experimental/http-client"),
  ws: await load(folder, "@agentclientprotocol/sdk/experimental/ws-client"),
  sockets: (await load(folder, "ws")).default,
};
for (const words of conversations) {
  const { options, command, script } = parsed(words);
  if (conversations.length > 1) console.log('{"op": "converse"}');
  const made = options.root ? undefined : mkdtempSync(join(tmpdir(), "rig-"));
  const conversation = new Conversation(sdk, options, new Output(), realpathSync(options.root ?? made), command);
  try {
    await conversation.run(script);
  } finally {
    if (made) rmSync(made, { recursive: true, force: true });
  }
}
process.exit(0);
