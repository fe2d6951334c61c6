// An agent made with the official TypeScript SDK `@agentclientprotocol/sdk` 2.4.0 that says what releases before the autumn
// of 2026 do not know, in the SDK's own models of version 1 with what is not stable yet: `--sdk FOLDER`, on stdio. It can
// be asked to archive and name a session, how one is, and how its login is, which it offers to clients that open pages. In
// each turn it says all of UPDATES, to a client that shows subagents those of CHILD as well, and last, as JSON, the
// capabilities it was told and its sessions.

import { Readable, Writable } from "node:stream";
import { load } from "./agent_client_sdk.mjs";

const acp = await load(process.argv[process.argv.indexOf("--sdk") + 1], "@agentclientprotocol/sdk/unstable");
const text = (said) => ({ type: "text", text: said });

const UPDATES = [
  { sessionUpdate: "notice", severity: "warning", title: "Quota is low", description: "9 % left" },
  { sessionUpdate: "compaction_update", compactionId: "c1", status: "in_progress" },
  { sessionUpdate: "compaction_summary_chunk", compactionId: "c1", content: text("so far: ") },
  { sessionUpdate: "compaction_update", compactionId: "c1", status: "completed", summary: [text("so far: nothing")] },
  { sessionUpdate: "tool_call", toolCallId: "t1", title: "Reads", name: "read_file", kind: "read", status: "pending" },
  { sessionUpdate: "tool_call_update", toolCallId: "t1", name: "read_all", status: "completed" },
  { sessionUpdate: "plan_update", plan: { type: "markdown", planId: "p1", content: "# A plan" } },
  { sessionUpdate: "plan_removed", planId: "p1" },
];
const CHILD = [
  ["parent", { sessionUpdate: "subagent_update", sessionId: "child", state: { state: "running" } }],
  ["child", { sessionUpdate: "agent_message_chunk", messageId: "m1", content: text("found") }],
  ["parent", { sessionUpdate: "session_message", messageId: "m2", senderSessionId: "child", content: [text("found")] }],
  ["parent", { sessionUpdate: "subagent_update", sessionId: "child", state: { state: "idle" } }],
];
const sessions = new Map();
let declared = {};

function known({ params }) {
  if (!sessions.has(params.sessionId)) throw acp.RequestError.resourceNotFound(params.sessionId);
  return sessions.get(params.sessionId);
}

async function prompted({ params: { sessionId }, client }) {
  const tell = (update, id = sessionId) => client.notify("session/update", { sessionId: id, update });
  for (const update of UPDATES) await tell(update);
  for (const [whose, update] of declared.subagents ? CHILD : []) await tell(update, whose === "child" ? "child" : sessionId);
  await client.notify("auth/status_update", { state: "authenticated", accounts: [] });
  const content = text(JSON.stringify({ declared, sessions: [...sessions.values()] }));
  await tell({ sessionUpdate: "agent_message_chunk", messageId: "m3", content });
  return { stopReason: "end_turn", usage: { totalTokens: 3, inputTokens: 2, outputTokens: 1 } };
}

const { agent: of } = acp.methods;
const connection = acp
  .agent({ name: "rig-ts-newest-agent" })
  .onRequest(of.initialize, ({ params }) => {
    declared = params.clientCapabilities;
    const kinds = ["list", "close", "archive", "status", "title"].map((name) => [name, {}]);
    return {
      protocolVersion: 1,
      agentCapabilities: {
        auth: { status: {} },
        sessionCapabilities: { ...Object.fromEntries(kinds), systemPrompt: { append: {}, override: {} } },
      },
      authMethods: declared.elicitation?.url ? [{ id: "page", name: "On a page" }] : [],
    };
  })
  .onRequest(of.session.new, ({ params: { systemPrompt, cwd } }) => {
    const sessionId = `s${sessions.size}`;
    sessions.set(sessionId, { systemPrompt, cwd, archived: false });
    return { sessionId };
  })
  .onRequest(of.session.archive, (asked) => void (known(asked).archived = true) ?? {})
  .onRequest(of.session.unarchive, (asked) => void (known(asked).archived = false) ?? {})
  .onRequest(of.session.status, (asked) => known(asked) && { status: "open" })
  .onRequest(of.session.setTitle, (asked) => ({ title: (known(asked).title = asked.params.title) }))
  .onRequest(of.session.list, ({ params }) => ({
    sessions: [...sessions]
      .filter(([, one]) => one.archived === (params.archived === "only"))
      .map(([sessionId, { cwd, title, archived }]) => ({ sessionId, cwd, title, archived })),
  }))
  .onRequest(of.session.close, () => ({}))
  .onRequest(of.auth.status, () => ({ state: "not_required", accounts: [] }))
  .onRequest(of.session.prompt, prompted)
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
await connection.closed;
