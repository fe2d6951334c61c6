// A client of the Agent Client Protocol, version 1, over a WebSocket: what an editor does. See try.js for what a client is.

import { Failed, whenAborted } from "../api.js";
import { address, block } from "../files.js";

const FORM = "elicitation/create";

export async function connect({ door, agent, token, signal }) {
  const url = new URL(`${door}/${encodeURIComponent(agent.name)}`, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  const socket = new WebSocket(url);
  const waiting = new Map(); // requests that are not answered yet, by id
  const asked = new Map(); // what withdraws the agent's questions, by the id of their request
  let out = null; // where the turn that goes on is told
  let numbers = 0;

  const post = (message) => socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  const request = (method, params) => new Promise((resolve, reject) => {
    const id = numbers += 1;
    waiting.set(id, { resolve, reject });
    post({ id, method, params });
  });
  const ended = (error) => {
    for (const { reject } of waiting.values()) reject(error);
    waiting.clear();
  };

  async function serve({ id, method, params }) {
    try {
      if (method === "session/request_permission") post({ id, result: { outcome: await permission(id, params) } });
      else if (method === FORM) post({ id, result: await form(id, params) });
      else post({ id, error: { code: -32601, message: `this client has no ${method}` } });
    } finally {
      asked.delete(id);
    }
  }

  function ask(id, question) {
    const withdrawn = new AbortController();
    asked.set(id, withdrawn);
    return out ? out.ask(question, withdrawn.signal) : { outcome: "cancelled" };
  }

  async function permission(id, { options, toolCall }) {
    const schema = { title: "answer", oneOf: options.map((one) => ({ const: one.optionId, title: one.name })) };
    const { outcome, value } = await ask(id, { message: toolCall.title ?? "The agent asks for permission", schema, payload: { toolCall, options } });
    return outcome === "answered" ? { outcome: "selected", optionId: value } : { outcome: "cancelled" };
  }

  async function form(id, { message, requestedSchema }) {
    const { outcome, value } = await ask(id, { message, schema: requestedSchema, declines: true });
    if (outcome === "answered") return { action: "accept", content: value };
    return { action: outcome === "declined" ? "decline" : "cancel" };
  }

  function told({ method, params }) {
    if (method === "$/cancel_request") asked.get(params.requestId)?.abort();
    if (method !== "session/update" || !out) return;
    const { sessionUpdate: kind, content, ...update } = params.update;
    if (kind === "agent_message_chunk") {
      if (content.type === "text") out.text(content.text);
      else if (content.type === "resource_link") out.file(content.name, content.uri);
      else out.file(content.resource?.uri ?? content.type, address(content));
    } else if (kind === "agent_thought_chunk") out.event("thought", content.text ?? content);
    else if (kind !== "user_message_chunk") out.event(kind.replaceAll("_", " "), content ? { ...update, content } : update);
  }

  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.method && message.id !== undefined) serve(message);
    else if (message.method) told(message);
    else if (waiting.has(message.id)) {
      const { resolve, reject } = waiting.get(message.id);
      waiting.delete(message.id);
      message.error ? reject(new Failed(`${message.error.code}: ${message.error.message}`, message.error)) : resolve(message.result);
    }
  };
  socket.onclose = ({ code, reason }) => ended(new Failed(`The connection has ended: ${code} ${reason}`));
  signal.addEventListener("abort", () => socket.close());
  await new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onerror = () => reject(new Failed(`The gateway refuses the WebSocket ${url.pathname}; browsers are not told why`));
  });

  const capabilities = { fs: { readTextFile: false, writeTextFile: false }, terminal: false, elicitation: { form: {} } };
  const { authMethods } = await request("initialize", { protocolVersion: 1, clientCapabilities: capabilities, clientInfo: { name: "interlingua-console", version: "1" } });
  if (token && authMethods?.some((one) => one.id === "interlingua")) await request("authenticate", { methodId: "interlingua", _meta: { token } });
  const { sessionId } = await request("session/new", { cwd: "/", mcpServers: [] });

  async function send(turn) {
    out = turn.out;
    let listenNoMore = () => {};
    try {
      const prompt = [{ type: "text", text: turn.text ?? JSON.stringify(turn.input) }, ...await Promise.all(turn.files.map(block))];
      const answer = request("session/prompt", { sessionId, prompt });
      listenNoMore = whenAborted(turn.cancel, () => post({ method: "session/cancel", params: { sessionId } }));
      return (await answer).stopReason;
    } finally {
      listenNoMore();
      out = null;
    }
  }

  return { send, close: () => socket.close() };
}
