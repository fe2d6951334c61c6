// A client of the Agent Context Protocol: MCP with agent/message, both ways. See try.js for what a client is.

import { block } from "../files.js";
import { Session, elicited } from "./mcp.js";

export async function connect({ door, agent, token, signal }) {
  const session = await Session.open(`${door}/${encodeURIComponent(agent.name)}`, { token, signal, capabilities: { agent: { messages: true } } });
  const conversation = crypto.randomUUID?.() ?? String(Math.random()); // there is no randomUUID on a page without TLS

  async function send({ input, text, files, cancel, out }) {
    const told = (method, params) => {
      if (method !== "agent/message") return;
      const event = params._meta?.["interlingua/event"];
      for (const message of params.content.payload?.messages ?? []) if (message.text) out.text(message.text);
      if (event) out.event(event.event.replaceAll("_", " "), event);
    };
    const ask = async (method, params, withdrawn) => {
      if (method === "elicitation/create") return elicited(params, out, withdrawn);
      if (method !== "agent/message" || params.content.type !== "request") return undefined;
      const { messages = [], answerSchema, question } = params.content.payload;
      const message = messages.map((one) => one.text).join("\n");
      const { outcome, value } = await out.ask({ message, schema: answerSchema, payload: question, declines: true }, withdrawn);
      const payload = outcome === "answered" ? { answer: value } : { outcome };
      return { content: { type: "response", payload } };
    };
    const payload = { ...(text === null ? { input } : { messages: [{ text }] }), context: agent.converses ? { sessionId: conversation } : undefined,
      attachments: files.length ? await Promise.all(files.map(block)) : undefined };
    const message = { target: agent.name, content: { type: "request", payload }, _meta: { correlationId: `${conversation}-${session.numbers}` } };
    const result = await session.call("agent/message", message, { told, ask, cancel });
    const answered = result.content?.payload ?? {};
    for (const file of answered.artifacts ?? []) out.file(file.name, file.url);
    out.output(answered.output ?? (answered.messages ?? []).map((one) => one.text).join("\n"));
    return result._meta?.["interlingua/stopReason"];
  }

  return { send, close: () => session.close() };
}
