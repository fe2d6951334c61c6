// An agent made with the official TypeScript SDK `@agentclientprotocol/sdk` 2.4.0 that takes MCP servers over the
// connection, with the SDK's own caller: `--sdk FOLDER`, on stdio. Its prompts are JSON: `{"calls": [[METHOD, PARAMS],
// ...]}` are requests to its session's first server; it says `{"results": [OUTCOME, ...], "heard": [...]}`, where what
// the SDK raised is `{"raised": {"code", "message"}}`. `{"answer": {...}}` instead of a request calls the last one again
// with these answers to all that it was asked; `{"abort": [METHOD, PARAMS]}` gives the call of a tool up as soon as the
// server's tool `seen` has it among what was begun.

import { Readable, Writable } from "node:stream";
import { load } from "./agent_client_sdk.mjs";

const acp = await load(process.argv[process.argv.indexOf("--sdk") + 1], "@agentclientprotocol/sdk/unstable");
const mcp = new acp.McpOverAcpCaller({
  clientInfo: { name: "rig-ts-mcp-agent", version: "1" },
  clientCapabilities: { elicitation: { form: {} } },
});
const sessions = new Map();

async function call(client, server, method, params, heard, signal) {
  const onNotification = (each) => heard.push([each.method, each.params]);
  try {
    return await mcp.request(client, server.serverId, method, params, { onNotification, signal });
  } catch (error) {
    return { raised: { code: error.code, message: error.message } };
  }
}

async function prompted({ params, client }) {
  const [server] = sessions.get(params.sessionId);
  const results = [];
  const heard = [];
  let last;
  for (const each of JSON.parse(params.prompt[0].text).calls) {
    if (Array.isArray(each)) {
      last = each;
      results.push(await call(client, server, each[0], each[1], heard));
    } else if (each.abort) {
      const control = new AbortController();
      const aborted = call(client, server, each.abort[0], each.abort[1], heard, control.signal);
      let begun = [];
      while (!begun.includes(each.abort[1].name)) {
        const seen = await call(client, server, "tools/call", { name: "seen", arguments: {} }, heard);
        begun = JSON.parse(seen.result.content[0].text).begun;
      }
      control.abort(new Error("enough"));
      results.push(await aborted);
    } else {
      const { inputRequests, requestState } = results.at(-1).result;
      const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, each.answer]));
      results.push(await call(client, server, last[0], { ...last[1], inputResponses, requestState }, heard));
    }
  }
  const content = { type: "text", text: JSON.stringify({ results, heard }) };
  const update = { sessionUpdate: "agent_message_chunk", content };
  await client.notify("session/update", { sessionId: params.sessionId, update });
  return { stopReason: "end_turn" };
}

const { agent: of } = acp.methods;
const connection = acp
  .agent({ name: "rig-ts-mcp-agent" })
  .onRequest(of.initialize, () => ({
    protocolVersion: 1,
    agentCapabilities: { mcpCapabilities: { acp: true }, sessionCapabilities: { close: {} } },
    authMethods: [],
  }))
  .onRequest(of.session.new, ({ params }) => {
    const sessionId = `s${sessions.size}`;
    sessions.set(sessionId, params.mcpServers);
    return { sessionId };
  })
  .onRequest(of.session.close, () => ({}))
  .onRequest(of.session.prompt, prompted)
  .onNotification(of.mcp.message, mcp.handleNotification)
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
await connection.closed;
