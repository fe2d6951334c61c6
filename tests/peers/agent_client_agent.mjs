// The agent of `agent_client_agent.py`, words and options alike, made with the official TypeScript SDK
// `@agentclientprotocol/sdk`: `node agent_client_agent.mjs --sdk FOLDER [--http PORT] ...`, where FOLDER holds the
// SDK's `node_modules`. It runs unchanged with 0.29.0 and 2.4.0. An unknown session is -32002 here.
//
// What the SDK does of its own accord: its server has 400 for a post without the session's header where its params name
// one (0.29.0: for the methods that need one, load and resume among them), for one that names another, and for an
// answer to a session's question without it; 404 for an unknown connection only, since it makes a stream for any
// session that is named, before there is one; 202 for DELETE; 406 for a GET that does not accept `text/event-stream`,
// 415 for other content than `application/json`. A batch is 501 in 0.29.0, 400 with a JSON-RPC error in 2.4.0, where a
// second GET for a stream that is being read is 409. The answer to `session/load` comes on the connection's stream,
// that to `session/resume` on the session's. 2.4.0 refuses what comes before initialize with -32600.

import { createServer } from "node:http";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import { load, parse, recorded } from "./agent_client_sdk.mjs";
import { Session, Turn } from "./agent_client_words.mjs";

const MODES = [{ id: "ask", name: "Ask" }, { id: "code", name: "Code" }];
const RAW = (params) => params;

/** All sessions by id, kept in a file where one is named. */
class Sessions extends Map {
  constructor(file) {
    super();
    this.file = file;
    if (file && existsSync(file)) {
      for (const one of JSON.parse(readFileSync(file, "utf8"))) this.set(one.id, new Session(one));
    }
  }

  keep() {
    if (this.file) writeFileSync(this.file, JSON.stringify([...this.values()]));
  }
}

/** One connection's agent: an app of the SDK. */
function agent(sdk, options, sessions) {
  const { RequestError, PROTOCOL_VERSION } = sdk;
  const without = (options.without ?? "").split(",");
  const has = (feature) => !without.includes(feature);
  const turns = new Map();
  let known = options.auth === undefined;
  let declared = {};

  const check = () => {
    if (!known) throw RequestError.authRequired({ method: "key" });
  };
  const find = (name) => {
    if (!sessions.has(name)) throw RequestError.resourceNotFound(name);
    return sessions.get(name);
  };
  const settings = (session) => ({
    ...(has("modes") ? { modes: { currentModeId: session.mode, availableModes: MODES } } : {}),
    ...(has("options") ? { configOptions: session.configOptions() } : {}),
  });
  const cancel = (name) => turns.get(name)?.cancel();
  const notify = (ctx, name, update) => ctx.client.notify("session/update", { sessionId: name, update });

  const app = sdk
    .agent({ name: "rig-ts-agent" })
    .onRequest("initialize", ({ params }) => {
      const { protocolVersion, clientCapabilities: capabilities, clientInfo: info = null } = params;
      declared = { protocolVersion, capabilities, info };
      const kinds = ["list", "resume", "close", "delete"].filter(has).map((name) => [name, {}]);
      return {
        protocolVersion: Math.min(protocolVersion, PROTOCOL_VERSION) || PROTOCOL_VERSION,
        agentCapabilities: {
          loadSession: has("load"),
          promptCapabilities: { image: true, audio: true, embeddedContext: true },
          mcpCapabilities: { http: true, sse: false },
          sessionCapabilities: Object.fromEntries(kinds),
          auth: has("logout") ? { logout: {} } : {},
        },
        agentInfo: { name: "rig-ts-agent", title: "Rig", version: "0.1" },
        authMethods: options.auth === undefined ? [] : [{ id: "key", name: "Key", description: "any will do" }],
      };
    })
    .onRequest("authenticate", ({ params }) => {
      if (params.methodId !== "key") throw RequestError.invalidParams({ methodId: params.methodId });
      known = true;
      return {};
    })
    .onRequest("session/new", async (ctx) => {
      check();
      const session = new Session({ cwd: ctx.params.cwd });
      sessions.set(session.id, session);
      sessions.keep();
      if (options.early !== undefined) {
        const availableCommands = [{ name: "early", description: "sent before the session's answer" }];
        await notify(ctx, session.id, { sessionUpdate: "available_commands_update", availableCommands });
      }
      return { sessionId: session.id, ...settings(session) };
    })
    .onRequest("session/set_mode", async (ctx) => {
      const { sessionId, modeId } = ctx.params;
      const session = find(sessionId);
      if (!MODES.some(({ id }) => id === modeId)) throw RequestError.invalidParams({ modeId });
      session.mode = modeId;
      sessions.keep();
      await notify(ctx, sessionId, { sessionUpdate: "current_mode_update", currentModeId: modeId });
      return {};
    })
    .onRequest("session/set_config_option", ({ params }) => {
      const { sessionId, configId, value } = params;
      const session = find(sessionId);
      if (!session.choose(configId, value)) throw RequestError.invalidParams({ configId, value });
      sessions.keep();
      return { configOptions: session.configOptions() };
    })
    .onRequest("session/prompt", async (ctx) => {
      check();
      const { sessionId, prompt } = ctx.params;
      const session = find(sessionId);
      if (turns.has(sessionId)) throw RequestError.invalidRequest({ sessionId, reason: "busy" });
      const turn = new Turn(ctx.client, session, prompt, declared, RequestError);
      turns.set(sessionId, turn);
      try {
        return { stopReason: await turn.run() };
      } finally {
        turns.delete(sessionId);
        sessions.keep();
      }
    })
    .onNotification("session/cancel", ({ params }) => cancel(params.sessionId))
    .onRequest("_rig/echo", RAW, ({ params }) => ({ echo: params }))
    .onNotification("_rig/x", RAW, (ctx) =>
      ctx.client.notify("_rig/heard", { method: "_rig/x", params: ctx.params }),
    );

  const reopen = async (ctx, replay) => {
    check();
    const session = find(ctx.params.sessionId);
    session.cwd = ctx.params.cwd;
    for (const [kind, text] of replay ? session.history : []) {
      await notify(ctx, session.id, { sessionUpdate: kind, content: { type: "text", text } });
    }
    return settings(session);
  };
  if (has("load")) app.onRequest("session/load", (ctx) => reopen(ctx, true));
  if (has("resume")) app.onRequest("session/resume", (ctx) => reopen(ctx, false));
  if (has("list")) {
    app.onRequest("session/list", ({ params }) => {
      check();
      const found = [...sessions.values()].filter(({ cwd }) => !params.cwd || cwd === params.cwd);
      const first = Number(params.cursor ?? 0);
      const following = first + 2 < found.length ? { nextCursor: String(first + 2) } : {};
      return { sessions: found.slice(first, first + 2).map((one) => one.listed()), ...following };
    });
  }
  const end = ({ params }) => {
    find(params.sessionId);
    cancel(params.sessionId);
    return {};
  };
  if (has("close")) app.onRequest("session/close", end);
  if (has("delete")) {
    app.onRequest("session/delete", (ctx) => {
      end(ctx);
      sessions.delete(ctx.params.sessionId);
      sessions.keep();
      return {};
    });
  }
  if (has("logout")) {
    app.onRequest("logout", () => {
      known = options.auth === undefined;
      return {};
    });
  }
  return app;
}

const { steps } = parse(process.argv.slice(2), ["auth", "early", "banner"]);
const options = Object.fromEntries(steps);
const sdk = await load(options.sdk, "@agentclientprotocol/sdk");
const sessions = new Sessions(options.state);
if (options.http) {
  const { AcpServer } = await load(options.sdk, "@agentclientprotocol/sdk/experimental/server");
  const node = await load(options.sdk, "@agentclientprotocol/sdk/experimental/node");
  const { default: sockets } = await load(options.sdk, "ws");
  const server = new AcpServer({ createAgent: () => agent(sdk, options, sessions) });
  const listener = createServer(node.createNodeHttpHandler(server));
  const webSockets = new sockets.WebSocketServer({ noServer: true });
  listener.on("upgrade", node.createNodeWebSocketUpgradeHandler(server, webSockets));
  listener.listen(Number(options.http), "127.0.0.1");
} else {
  if (options.banner !== undefined) console.log("Welcome to the agent!");
  const stream = sdk.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin));
  agent(sdk, options, sessions).connect(recorded(stream, options.wire, "client", "agent"));
}
