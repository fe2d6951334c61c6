// A client made with the official TypeScript SDK `@agentclientprotocol/sdk` 2.4.0 that asks for all that the agent of
// `agent_client_newest_agent.mjs` can do, in the same models: `--sdk FOLDER [--also CAPABILITIES] -- COMMAND ARG...`. It
// prints one JSON object a line, in the order they came: `{"op", "params"}` of a notification, `{"op", "result"}` or
// `{"op", "code"}` of a request.

import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { load, parse } from "./agent_client_sdk.mjs";

const { steps, command } = parse(process.argv.slice(2), []);
const { sdk, also = "{}" } = Object.fromEntries(steps);
const acp = await load(sdk, "@agentclientprotocol/sdk/unstable");
const tell = (op, said) => console.log(JSON.stringify({ op, ...said }));
const { agent: of, client: here } = acp.methods;
const app = acp
  .client({ name: "rig-ts-newest-client" })
  .onNotification(here.session.update, ({ params }) => tell("session/update", { params }))
  .onNotification(here.auth.statusUpdate, ({ params }) => tell("auth/status_update", { params }));

const [program, ...rest] = command;
const child = spawn(program, rest, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => child.on("close", resolve));
const connection = app.connect(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));

async function ask(op, params) {
  try {
    const result = await connection.agent.request(op, params);
    tell(op, { result });
    return result;
  } catch (error) {
    tell(op, { code: error.code });
    return {};
  }
}

await ask(of.initialize, {
  protocolVersion: 1,
  clientCapabilities: { session: { notices: {}, compaction: {} }, plan: {}, elicitation: { url: {} }, ...JSON.parse(also) },
  clientInfo: { name: "rig-ts-newest-client", version: "1" },
});
await ask(of.auth.status, {});
const systemPrompt = { mode: "append", content: [{ type: "text", text: "be brief" }] };
const { sessionId } = await ask(of.session.new, { cwd: "/", mcpServers: [], systemPrompt });
await ask(of.session.setTitle, { sessionId, title: "Named" });
await ask(of.session.status, { sessionId });
await ask(of.session.prompt, { sessionId, prompt: [{ type: "text", text: "go" }] });
await ask(of.session.archive, { sessionId });
await ask(of.session.list, {});
await ask(of.session.list, { archived: "only" });
await ask(of.session.unarchive, { sessionId });
await ask(of.session.status, { sessionId: "nobody" });
await ask(of.session.close, { sessionId });
connection.close();
child.stdin.end();
await ended;
