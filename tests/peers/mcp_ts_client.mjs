// A client made with the official TypeScript SDKs of MCP: `@modelcontextprotocol/sdk` 1.32.2 (line 1) and
// `@modelcontextprotocol/client` 2.4.0 (line 2), which are inside of most programs that call tools. `node
// mcp_ts_client.mjs --sdk FOLDER --line 1|2 WAY...` holds the same conversation with each server and prints one JSON
// object a line. A WAY is JSON: `{"url"}` (`/sse`: HTTP+SSE, `ws:`: WebSocket, else Streamable HTTP) or `{"command"}`;
// with `"latest": true` line 2 asks for 2026-07-28 first, as it does not of its own accord; with `"watch": true` the
// client only follows the list of tools until that has changed.
//
// The conversation: tools are listed; `echo`, `nobody` and, with nothing that it wants, `asker` are called, then
// `asker` again, whose question is answered as ANSWER; `slow` is called and cancelled when it has said something; and
// `echo` once more. Lines: `{"op": "way"}` first, `{"op": "connected", "version", "server"}`, `{"op": "tools", "tools"}`,
// `{"op": NAME, "result"}` or `{"op": NAME, "error"}` of a call, `{"op": "progress", "of": NAME, "message"}`, `{"op":
// "asked", "params"}`, `{"op": "changed", "tools"}`, `{"op": "stray", "told"}` for what the SDK complains of.
//
// What the SDKs do of their own accord: both list tools with their output schemas and check `structuredContent` against
// them; a result without it, or one that does not fit, is an error to their user. Both hand an answer to their user
// before notifications that came right before it: what was told last is then in `onerror`, as for an unknown token.
// Line 1 proposes 2025-11-25 and tells progress of a call only with its own token, the request's id, 0 among them.
// Line 2 works off `input_required` by itself, and has no `ping` in 2026-07-28.

import { pathToFileURL } from "node:url";

const ANSWER = { approved: true, reason: "blue" };
const [, folder, , line, ...ways] = process.argv.slice(2);
const from = (path) => import(pathToFileURL(`${folder}/node_modules/@modelcontextprotocol/${path}`).href);
const tell = (op, said = {}) => console.log(JSON.stringify({ op, ...said }));

async function sdkOf() {
  if (line === "2") {
    const [sdk, stdio] = await Promise.all(["client/dist/index.mjs", "client/dist/stdio.mjs"].map(from));
    return { ...sdk, ...stdio, elicit: "elicitation/create", call: (client, ...how) => client.callTool(...how) };
  }
  const parts = ["client/index", "client/sse", "client/stdio", "client/streamableHttp", "client/websocket", "types"];
  const sdk = Object.assign({}, ...(await Promise.all(parts.map((part) => from(`sdk/dist/esm/${part}.js`)))));
  const call = (client, asked, options) => client.callTool(asked, undefined, options);
  return { ...sdk, elicit: sdk.ElicitRequestSchema, call };
}

const sdk = await sdkOf();

function transport({ url, command }) {
  if (command) return new sdk.StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env });
  if (url.startsWith("ws")) return new sdk.WebSocketClientTransport(new URL(url));
  if (url.endsWith("/sse")) return new sdk.SSEClientTransport(new URL(url));
  return new sdk.StreamableHTTPClientTransport(new URL(url));
}

async function connected(way, options) {
  const capabilities = { elicitation: { form: {} } };
  const versionNegotiation = way.latest ? { mode: "auto" } : undefined;
  const client = new sdk.Client({ name: "rig-ts-mcp", version: "1" }, { capabilities, versionNegotiation, ...options });
  client.onerror = (error) => tell("stray", { told: String(error).slice(0, 300) });
  client.setRequestHandler(sdk.elicit, async ({ params }) => {
    tell("asked", { params });
    return { action: "accept", content: ANSWER };
  });
  await client.connect(transport(way));
  const version = client.getNegotiatedProtocolVersion?.() ?? client.transport._protocolVersion ?? null;
  tell("connected", { version, server: client.getServerVersion() });
  return client;
}

async function called(client, name, arguments_, cancelled = false) {
  const cancelling = new AbortController();
  const onprogress = ({ message }) => {
    tell("progress", { of: name, message });
    if (cancelled) cancelling.abort("enough");
  };
  try {
    const result = await sdk.call(client, { name, arguments: arguments_ }, { onprogress, signal: cancelling.signal });
    tell(name, { result });
  } catch (error) {
    tell(name, { error: { code: error?.code ?? null, message: String(error?.message ?? error) } });
  }
}

async function conversation(way) {
  const client = await connected(way, {});
  tell("tools", { tools: (await client.listTools()).tools });
  const hello = { message: "hello" };
  for (const [name, asked, ...how] of [["echo", hello], ["nobody", hello], ["asker", {}], ["asker", hello]]) {
    await called(client, name, asked, ...how);
  }
  await called(client, "slow", hello, true);
  await called(client, "echo", { message: "again" });
  await client.close();
}

async function watch(way) {
  let seen;
  const changed = new Promise((resolve) => (seen = resolve));
  const onChanged = (error, tools) => {
    tell("changed", { tools: tools?.map(({ name }) => name), error: error && String(error) });
    seen();
  };
  const client = await connected(way, { listChanged: { tools: { onChanged } } });
  tell("tools", { tools: (await client.listTools()).tools.map(({ name }) => name) });
  await changed;
  await client.close();
}

for (const way of ways.map((one) => JSON.parse(one))) {
  tell("way");
  await (way.watch ? watch : conversation)(way);
}
process.exit(0);
