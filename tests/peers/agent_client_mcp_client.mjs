// A client made with the official TypeScript SDK `@agentclientprotocol/sdk` 2.4.0 that offers an MCP server over its
// connection, with the SDK's own provider: `--sdk FOLDER PROMPT... -- COMMAND ARG...`. What it prints is what
// `agent_client_mcp_client.py` prints. Its server speaks 2026-07-28 and has these tools: `echo {text}`; `count {upto}`,
// so many progress notifications, and its result a moment later, since the SDK gives its users an answer before
// notifications that came with it; `ask {about}`, by `input_required`; `slow`, which ends when it is cancelled; `fail`, an
// error of the server's. `seen`, which is not listed, tells whether `slow` was begun.

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { load, parse } from "./agent_client_sdk.mjs";

const tell = (op, said) => console.log(JSON.stringify({ op, ...said }));
const argv = process.argv.slice(2);
const folder = argv[argv.indexOf("--sdk") + 1];
const end = argv.indexOf("--");
const prompts = argv.slice(argv.indexOf("--sdk") + 2, end);
const [program, ...rest] = argv.slice(end + 1);
const acp = await load(folder, "@agentclientprotocol/sdk/unstable");

const VERSION = acp.MCP_PROTOCOL_VERSION;
const TOOLS = ["echo", "count", "ask", "slow", "fail"];
const begun = [];
const form = { type: "object", properties: { sure: { type: "boolean" } }, required: ["sure"] };
const complete = (result) => ({ result: { resultType: "complete", ...result } });
const text = (said) => complete({ content: [{ type: "text", text: said }] });

async function handler(cx) {
  if (cx.method === "server/discover") {
    const capabilities = { tools: {} };
    const server = { "io.modelcontextprotocol/serverInfo": { name: "toolbox", version: "1" } };
    return complete({ supportedVersions: [VERSION], capabilities, ttlMs: 0, cacheScope: "private", _meta: server });
  }
  if (cx.method === "tools/list") {
    const tools = TOOLS.map((name) => ({ name, inputSchema: { type: "object" } }));
    return complete({ tools, ttlMs: 0, cacheScope: "private" });
  }
  if (cx.method !== "tools/call") throw new acp.McpProtocolError(-32601, `Method not found: ${cx.method}`);
  const { name, arguments: given = {}, _meta: meta, inputResponses } = cx.params;
  if (name === "echo") return text(given.text);
  if (name === "count") {
    for (let progress = 1; progress <= given.upto; progress++) {
      await cx.notify("notifications/progress", { progressToken: meta.progressToken, progress, message: `${progress}` });
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
    return text(`${given.upto}`);
  }
  if (name === "ask") {
    if (inputResponses) return text(JSON.stringify(inputResponses.one));
    const one = { method: "elicitation/create", params: { mode: "form", message: given.about, requestedSchema: form } };
    return { result: { resultType: "input_required", inputRequests: { one }, requestState: "asked" } };
  }
  if (name === "seen") return text(JSON.stringify({ begun }));
  if (name === "slow") {
    begun.push(name);
    await new Promise((resolve) => cx.signal.addEventListener("abort", resolve, { once: true }));
    tell("cancelled", { method: cx.method });
    throw cx.signal.reason;
  }
  throw new acp.McpProtocolError(-32602, `there is no ${name}`, { have: TOOLS });
}

let said = "";
const provider = new acp.McpOverAcpProvider();
const app = acp
  .client({ name: "rig-ts-mcp-client" })
  .onRequest(acp.methods.client.mcp.message, provider.handleRequest)
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    if (params.update.sessionUpdate === "agent_message_chunk") said += params.update.content.text;
  });
const child = spawn(program, rest, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => child.on("close", resolve));
const connection = app.connect(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));
const agent = connection.agent;
const hello = await agent.request("initialize", { protocolVersion: 1, clientCapabilities: {} });
tell("initialize", { result: hello });
const server = provider.registerServer(agent, { name: "toolbox", handler });
const { sessionId } = await agent.request("session/new", { cwd: "/", mcpServers: [server.declaration] });
for (const prompt of prompts) {
  said = "";
  await agent.request("session/prompt", { sessionId, prompt: [{ type: "text", text: prompt }] });
  tell("prompt", { text: said });
}
await agent.request("session/close", { sessionId });
connection.close();
child.stdin.end();
await ended;
