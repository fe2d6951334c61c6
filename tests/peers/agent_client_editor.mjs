// The editor's half of `agent_client_client.mjs`: what it shows, and how it answers what an agent asks of it.

import { spawn } from "node:child_process";
import { readFileSync, realpathSync, writeFileSync } from "node:fs";
import { basename, dirname, join, sep } from "node:path";

const forever = () => new Promise(() => {});

/** Lets the SDK hand out what it has already received: notifications take it longer than answers and requests do. */
export const settled = () => new Promise((resolve) => setImmediate(resolve));

/** Prints lines, and lets others wait for one. */
export class Output {
  lines = [];
  looked = 0;
  wake = () => {};

  tell(op, said) {
    const line = JSON.stringify({ op, ...said });
    console.log(line);
    this.lines.push(line);
    this.wake();
  }

  async awaited(text) {
    for (;;) {
      while (this.looked < this.lines.length) if (this.lines[this.looked++].includes(text)) return;
      await new Promise((resolve) => (this.wake = resolve));
    }
  }

  complain(op, error) {
    const { name, code, message, data = null } = error ?? {};
    const type = name ?? error?.constructor?.name ?? null;
    this.tell(op, { error: { type, code: typeof code === "number" ? code : null, message, data } });
  }
}

export class Editor {
  permission = "allow";
  elicitation = "decline";
  terminals = new Map();
  made = 0;
  waiting = [];

  constructor(out, root, RequestError) {
    Object.assign(this, { out, root, RequestError });
  }

  /** The turn is cancelled: what still waits is answered as the protocol wants, cancelled. */
  giveUp() {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  givenUp(signal) {
    return new Promise((resolve, reject) => {
      this.waiting.push(resolve);
      signal?.addEventListener("abort", () => reject(new this.RequestError(-32800, "Request cancelled")));
    });
  }

  /** Registers a handler for every request and notification on the SDK's client app. */
  register(app) {
    const ask = (method, answer, ...parser) =>
      app.onRequest(method, ...parser, (ctx) => this.asked(method, ctx, answer));
    const tell = (method, ...parser) =>
      app.onNotification(method, ...parser, (ctx) => this.out.tell(method, { told: ctx.params }));
    const raw = (params) => params;
    ask("session/request_permission", (params, signal) => this.decide(params, signal));
    ask("elicitation/create", (params, signal) => this.fill(params, signal));
    ask("fs/read_text_file", (params) => this.read(params));
    ask("fs/write_text_file", (params) => this.write(params));
    ask("terminal/create", (params) => this.run(params));
    ask("terminal/output", (params) => ({ output: this.terminal(params).printed, truncated: false }));
    ask("terminal/wait_for_exit", (params) => this.terminal(params).ended);
    ask("terminal/kill", (params) => this.kill(this.terminal(params)));
    ask("terminal/release", (params) => this.release(params));
    ask("_rig/ask", (params) => ({ answer: 42, params }), raw);
    app.onNotification("session/update", (ctx) => this.out.tell("session/update", { params: ctx.params }));
    tell("elicitation/complete");
    tell("_rig/note", raw);
    tell("_rig/heard", raw);
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

  /** What the four ways to give no answer come to; undefined where `how` is none of them. */
  async unanswered(how, cancelled, signal) {
    if (how === "error") throw new this.RequestError(-32099, "the client was told to fail", { told: true });
    if (how === "ignore") await forever();
    if (how === "never") await this.givenUp(signal);
    return how === "cancelled" || how === "never" ? cancelled : undefined;
  }

  async decide({ options }, signal) {
    const how = this.permission;
    const none = await this.unanswered(how, { outcome: { outcome: "cancelled" } }, signal);
    if (none) return none;
    const kind = ["allow", "reject"].includes(how);
    const optionId = kind ? options.find((one) => one.kind.startsWith(how)).optionId : how;
    return { outcome: { outcome: "selected", optionId } };
  }

  async fill({ mode }, signal) {
    const how = this.elicitation;
    const none = await this.unanswered(how, { action: "cancel" }, signal);
    if (none) return none;
    if (how === "decline") return { action: "decline" };
    return mode === "form" ? { action: "accept", content: JSON.parse(how) } : { action: "accept" };
  }

  inside(path) {
    const found = join(realpathSync(dirname(path)), basename(path));
    if (!found.startsWith(this.root + sep)) throw this.RequestError.invalidParams({ path, reason: "outside" });
    return found;
  }

  read({ path, line, limit }) {
    let text;
    try {
      text = readFileSync(this.inside(path), "utf8");
    } catch (error) {
      throw error.code === "ENOENT" ? this.RequestError.resourceNotFound(path) : error;
    }
    const first = Math.max((line || 1) - 1, 0);
    const lines = text.split(/(?<=\n)/);
    return { content: lines.slice(first, limit ? first + limit : undefined).join("") };
  }

  write({ path, content }) {
    writeFileSync(this.inside(path), content);
    return {};
  }

  run({ command, args, env, cwd }) {
    const extra = Object.fromEntries((env ?? []).map(({ name, value }) => [name, value]));
    const options = { cwd: cwd ?? this.root, env: { ...process.env, ...extra }, stdio: ["ignore", "pipe", "pipe"] };
    const child = spawn(command, args ?? [], options);
    const one = { child, printed: "" };
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (one.printed += data));
    one.ended = new Promise((resolve) => {
      child.on("close", (exitCode, signal) => resolve(signal ? { signal } : { exitCode }));
    });
    const terminalId = `term_${++this.made}`;
    this.terminals.set(terminalId, one);
    return { terminalId };
  }

  terminal({ terminalId }) {
    if (!this.terminals.has(terminalId)) throw this.RequestError.resourceNotFound(terminalId);
    return this.terminals.get(terminalId);
  }

  kill(one) {
    one.child.kill("SIGKILL");
    return {};
  }

  release(params) {
    this.kill(this.terminal(params));
    this.terminals.delete(params.terminalId);
    return {};
  }
}
