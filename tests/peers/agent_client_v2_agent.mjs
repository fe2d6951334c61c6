// The agent of `agent_client_v2_agent.py`, words and options alike, made with the official TypeScript SDK
// `@agentclientprotocol/sdk` 2.4.0, experimental version 2: `node agent_client_v2_agent.mjs --sdk FOLDER ...`, where
// FOLDER holds the SDK's `node_modules`. With `--http PORT` it answers Streamable HTTP and WebSocket on every path. With
// `--both` it is an agent of version 1 too, which says every word back and nothing else, chosen by the SDK's router.
//
// Unlike the Python SDK's agent it acknowledges a prompt before it says anything, tells its background work with every
// state, and what a failure was. It alone knows the word `stoppable`: a tool call with a terminal that can be cancelled
// one by one, and go on until they are, the terminal first.

import { createServer } from "node:http";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { load, parse } from "./agent_client_sdk.mjs";
import { Session, Turn } from "./agent_client_v2_words.mjs";

const { steps } = parse(process.argv.slice(2), ["auth", "early", "both"]);
const options = Object.fromEntries(steps);
const given = (name) => options[name] !== undefined;
const sdk = await load(options.sdk, "@agentclientprotocol/sdk/experimental/v2");
const { RequestError } = sdk;

const sessions = new Map();
if (options.state && existsSync(options.state)) {
  for (const one of JSON.parse(readFileSync(options.state, "utf8"))) sessions.set(one.id, new Session(one));
}
const keep = () => options.state && writeFileSync(options.state, JSON.stringify([...sessions.values()]));

/** One connection's agent: an app of the SDK. */
function agent() {
  const rig = { turns: new Map(), own: new Map(), repeat: new Map(), declared: {}, RequestError, keep };
  let known = !given("auth");

  const find = (name) => {
    if (!known) throw RequestError.authRequired({ method: "key" });
    if (!sessions.has(name)) throw new RequestError(-32002, "Resource not found", { uri: name });
    return sessions.get(name);
  };
  const turnOf = (ctx, session) => new Turn(rig, ctx.client, session, [], "");
  const cancel = (name) => rig.turns.get(name)?.cancel();
  const stop = (name, id) => {
    find(name);
    const stops = rig.turns.get(name)?.stops;
    stops?.get(id)?.();
    if (!stops?.delete(id)) throw RequestError.invalidParams({ id });
    return {};
  };

  return sdk
    .agent({ name: "rig-v2-ts" })
    .onRequest("initialize", ({ params }) => {
      rig.declared = { capabilities: params.capabilities, info: params.info };
      const prompt = { image: {}, audio: {}, embeddedContext: {} };
      const session = { prompt, mcp: { stdio: {}, http: {} }, delete: {}, additionalDirectories: {} };
      return {
        protocolVersion: 2,
        info: { name: "rig-v2-ts", title: "Rig", version: "0.2" },
        capabilities: { session, _meta: { rig: 1 } },
        authMethods: given("auth") ? [{ type: "agent", methodId: "key", name: "Key" }] : [],
      };
    })
    .onRequest("auth/login", ({ params }) => {
      known ||= params.methodId === "key";
      return {};
    })
    .onRequest("auth/logout", () => {
      known = !given("auth");
      return {};
    })
    .onRequest("session/new", async (ctx) => {
      if (!known) throw RequestError.authRequired({ method: "key" });
      const session = new Session({ cwd: ctx.params.cwd });
      sessions.set(session.id, session);
      keep();
      if (given("early")) await turnOf(ctx, session).send("session_info_update", { title: "early" });
      return { sessionId: session.id, configOptions: session.options() };
    })
    .onRequest("session/resume", async (ctx) => {
      const session = find(ctx.params.sessionId);
      session.cwd = ctx.params.cwd;
      const turn = turnOf(ctx, session);
      for (const [kind, messageId, text] of ctx.params.replayFrom ? session.history : []) {
        await turn.send(kind, { messageId, content: [{ type: "text", text }] });
      }
      await turn.state(rig.turns.has(session.id) ? "running" : "idle");
      return { configOptions: session.options() };
    })
    .onRequest("session/list", ({ params }) => {
      const found = [...sessions.values()].filter(({ cwd }) => !params.cwd || cwd === params.cwd);
      return { sessions: found.map(({ id, cwd }) => ({ sessionId: id, cwd })) };
    })
    .onRequest("session/close", ({ params }) => {
      find(params.sessionId);
      cancel(params.sessionId);
      return {};
    })
    .onRequest("session/delete", ({ params }) => {
      find(params.sessionId);
      cancel(params.sessionId);
      sessions.delete(params.sessionId);
      keep();
      return {};
    })
    .onRequest("session/set_config_option", ({ params }) => {
      const { sessionId, configId, value } = params;
      const session = find(sessionId);
      if (!session.choose(configId, value)) throw RequestError.invalidParams({ configId, value });
      keep();
      return { configOptions: session.options() };
    })
    .onRequest("session/prompt", async (ctx) => {
      const { sessionId, prompt } = ctx.params;
      const session = find(sessionId);
      if (rig.turns.has(sessionId)) throw RequestError.invalidRequest({ sessionId, reason: "busy" });
      const turn = new Turn(rig, ctx.client, session, prompt);
      if (turn.words.includes("reject")) throw RequestError.invalidParams({ reason: "not this one" });
      rig.turns.set(sessionId, turn);
      const repeated = rig.repeat.get(sessionId);
      if (repeated) {
        rig.repeat.delete(sessionId);
        await turn.state("idle", repeated);
      }
      const own = rig.own.get(sessionId);
      if (own) {
        own.want();
        await own.done;
      }
      if (turn.words.includes("early")) await turn.run();
      else setTimeout(() => void turn.run(), 5);
      return { messageId: turn.message };
    })
    .onRequest("tool_call/cancel", ({ params }) => stop(params.sessionId, params.toolCallId))
    .onRequest("terminal/cancel", ({ params }) => stop(params.sessionId, params.terminalId))
    .onNotification("session/cancel", ({ params }) => cancel(params.sessionId))
    .onRequest("_rig/echo", (params) => params, ({ params }) => ({ echo: params }));
}

const stream = () => sdk.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin));
if (given("http")) {
  const { AcpServer } = await load(options.sdk, "@agentclientprotocol/sdk/experimental/server");
  const node = await load(options.sdk, "@agentclientprotocol/sdk/experimental/node");
  const { default: sockets } = await load(options.sdk, "ws");
  const server = new AcpServer({ createAgent: agent });
  const listener = createServer(node.createNodeHttpHandler(server));
  const webSockets = new sockets.WebSocketServer({ noServer: true });
  listener.on("upgrade", node.createNodeWebSocketUpgradeHandler(server, webSockets));
  listener.listen(Number(options.http), "127.0.0.1");
} else if (given("both")) {
  const first = await load(options.sdk, "@agentclientprotocol/sdk");
  const old = first
    .agent({ name: "rig-v1-ts" })
    .onRequest("initialize", () => ({ protocolVersion: 1, agentInfo: { name: "rig-v1-ts", version: "0.1" } }))
    .onRequest("session/new", () => ({ sessionId: "s1" }))
    .onRequest("session/prompt", async (ctx) => {
      const { sessionId, prompt } = ctx.params;
      const update = { sessionUpdate: "agent_message_chunk", content: prompt[0] };
      await ctx.client.notify("session/update", { sessionId, update });
      return { stopReason: "end_turn" };
    });
  sdk.agentProtocolRouter().withV1(old).withV2(agent()).connect(stream());
} else {
  agent().connect(stream());
}
