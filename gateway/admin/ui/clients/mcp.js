// A session of the Model Context Protocol (2025-11-25) over Streamable HTTP, for the protocols that extend it.

import { Failed, Refused, streamed, whenAborted } from "../api.js";

export class Session {
  // Opens it. capabilities: what the client declares beside forms.
  static async open(path, { token, signal, capabilities = {} }) {
    const session = new Session(path, token, signal);
    const params = { protocolVersion: "2025-11-25", capabilities: { elicitation: { form: {} }, ...capabilities },
      clientInfo: { name: "interlingua-console", version: "1" } };
    const { protocolVersion } = await session.call("initialize", params, {});
    session.headers["mcp-protocol-version"] = protocolVersion;
    await session.notify("notifications/initialized");
    return session;
  }

  constructor(path, token, signal) {
    this.path = path;
    this.signal = signal;
    this.headers = { "content-type": "application/json", accept: "application/json, text/event-stream", ...(token ? { authorization: `Bearer ${token}` } : {}) };
    this.numbers = 0;
    this.asked = new Map(); // what withdraws the server's questions, by the id of their request
    signal.addEventListener("abort", () => this.close());
  }

  async post(message) {
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    const response = await fetch(this.path, { method: "POST", headers: this.headers, body, signal: this.signal });
    if (response.headers.has("mcp-session-id")) this.headers["mcp-session-id"] = response.headers.get("mcp-session-id");
    if (response.ok) return response;
    const text = await response.text();
    let error;
    try {
      ({ error } = JSON.parse(text));
    } catch { /* no JSON: the text says it */ }
    throw error ? new Failed(`${error.code}: ${error.message}`, error) : new Refused(response.status, `${response.status}: ${text}`);
  }

  notify(method, params) {
    return this.post({ method, params });
  }

  // Sends a request and returns its result. told: hears notifications; ask: answers requests of the server;
  // cancel: a signal that cancels it.
  async call(method, params, { told = () => {}, ask, cancel = new AbortController().signal }) {
    const id = this.numbers += 1;
    const posted = this.post({ id, method, params });
    const listenNoMore = whenAborted(cancel, () => this.notify("notifications/cancelled", { requestId: id, reason: "cancelled by the user" }).catch(() => {}));
    try {
      const response = await posted;
      const stream = response.headers.get("content-type")?.startsWith("text/event-stream");
      for await (const message of stream ? parsed(streamed(response)) : [await response.json()]) {
        if (message.method && message.id !== undefined) this.serve(message, ask);
        else if (message.method === "notifications/cancelled") this.asked.get(message.params.requestId)?.abort();
        else if (message.method) told(message.method, message.params);
        else if (message.error) throw new Failed(`${message.error.code}: ${message.error.message}`, message.error);
        else if (message.id === id) return message.result;
      }
      throw new Failed("the answer ends before its result");
    } finally {
      listenNoMore();
    }
  }

  async serve({ id, method, params }, ask) {
    const withdrawn = new AbortController();
    this.asked.set(id, withdrawn);
    const answer = await ask?.(method, params, withdrawn.signal);
    this.asked.delete(id);
    const said = answer === undefined ? { error: { code: -32601, message: `this client has no ${method}` } } : { result: answer };
    await this.post({ id, ...said }).catch(() => {});
  }

  close() {
    if (!this.headers["mcp-session-id"]) return;
    fetch(this.path, { method: "DELETE", headers: this.headers, keepalive: true }).catch(() => {});
    delete this.headers["mcp-session-id"];
  }
}

async function* parsed(events) {
  for await (const { data } of events) if (data) yield JSON.parse(data);
}

// The answer to MCP's own question, a form.
export async function elicited({ message, requestedSchema }, out, withdrawn) {
  const { outcome, value } = await out.ask({ message, schema: requestedSchema, declines: true }, withdrawn);
  if (outcome === "answered") return { action: "accept", content: value };
  return { action: outcome === "declined" ? "decline" : "cancel" };
}
