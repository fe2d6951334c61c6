// Requests to the gateway: JSON, and server-sent events read by fetch, since EventSource sends no token.

const TOKEN = "interlingua.operator";

// What a proxy puts in front of every path of the gateway's; this page is at HOME/ui/.
export const HOME = new URL("..", location.href).pathname.slice(0, -1);

// An error in the words of whoever was asked. said: all of it, as it came.
export class Failed extends Error {
  constructor(message, said) {
    super(message);
    this.said = said;
  }
}

export class Refused extends Failed {
  constructor(status, message, said) {
    super(message, said);
    this.status = status;
  }
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

function authorized(headers) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...headers, authorization: `Bearer ${token}` } : headers;
}

async function refusal(response) {
  const text = await response.text();
  let said = text;
  let found;
  try {
    found = JSON.parse(text);
    said = typeof found === "string" ? found : found.error ?? found.message ?? found.detail ?? text;
  } catch { /* no JSON: the text says it */ }
  return new Refused(response.status, String(said).slice(0, 2000) || response.statusText, found);
}

// Asks a protocol's door as a client with this token, and not as the operator.
export function caller(door, token, signal) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const call = async (method, path, body) => {
    const json = body !== undefined && !(body instanceof FormData);
    const response = await fetch(`${door}${path}`, { method, signal, body: json ? JSON.stringify(body) : body,
      headers: json ? { ...headers, "content-type": "application/json" } : headers });
    if (!response.ok) {
      const error = await refusal(response);
      error.message = `${response.status}: ${error.message}`;
      throw error;
    }
    return (response.headers.get("content-type") ?? "").includes("json") ? response.json() : null;
  };
  return { call, headers };
}

// Calls `stop` once the signal is aborted, which it may be already. Returns what puts an end to that.
export function whenAborted(signal, stop) {
  signal.aborted ? stop() : signal.addEventListener("abort", stop);
  return () => signal.removeEventListener("abort", stop);
}

export async function get(path, query = {}, signal) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const response = await fetch(`${HOME}${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`, {
    headers: authorized({ accept: "application/json" }),
    signal,
  });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

export async function post(path, body) {
  const response = await fetch(`${HOME}${path}`, {
    method: "POST",
    headers: authorized({ "content-type": "application/json" }),
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

// Yields {id, event, data} of a stream, as they come. `own`: of the operator's API, with his token.
export async function* events(path, { headers = {}, signal, own = true } = {}) {
  const accept = { accept: "text/event-stream", ...headers };
  const response = await fetch(own ? `${HOME}${path}` : path, { headers: own ? authorized(accept) : accept, signal });
  if (!response.ok) throw await refusal(response);
  yield* streamed(response);
}

export async function* streamed(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r\n|\n|\r/);
    // What is left over is the beginning of the next event: read it again with what comes.
    let from = 0;
    let found = { id: null, event: "message", data: [] };
    for (let at = 0; at < lines.length - 1; at += 1) {
      const line = lines[at];
      if (line === "") {
        if (found.data.length) yield { ...found, data: found.data.join("\n") };
        found = { id: null, event: "message", data: [] };
        from = at + 1;
        continue;
      }
      const colon = line.indexOf(":");
      if (colon < 1) continue;
      const text = line.slice(colon + 1).replace(/^ /, "");
      const name = line.slice(0, colon);
      if (name === "data") found.data.push(text);
      else if (name === "id" || name === "event") found[name] = text;
    }
    rest = lines.slice(from).join("\n");
  }
}
