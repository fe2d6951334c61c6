// A server made with the official TypeScript SDK `@i-am-bee/acp-sdk` 0.0.6: `node agent_communication_agent.mjs --sdk
// FOLDER [--http PORT] [--told FILE]`, where FOLDER holds the SDK's `node_modules`. On stdio, or over HTTP+SSE (`/sse`,
// `/messages`), ready when the port answers. Agents and options are those of `agent_communication_agent.py`, without
// `defaults`.
//
// The template `maker` makes an agent, `{name, greeting}`, that says its greeting before the prompt and can be
// destroyed; `notifications/agents/list_changed` then goes to every client of the server, and what one client made the
// others see (on stdio there is but one).
//
// What the SDK does of its own accord: it answers an unknown agent or template with -32602 (naming the template
// `undefined`), an agent that can't be destroyed likewise, an unknown method with -32601, and whatever else is thrown,
// params of a wrong shape among it, with -32603 and the thrown message. It checks neither inputs nor outputs against
// the agents' schemas, and insists on no `initialize`. A request that was cancelled it never answers, and that a client
// has gone it tells nobody. It answers a proposed version that it knows (2024-11-05, 2024-10-07) with the same, any
// other with 2024-11-05. The messages' address has `?sessionId=`, a body may have 4 MB, and a batch is 400. On stdio, a
// line that is no message it drops, and the end of its input it does not notice.

import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { parse, sdkOf } from "./agent_communication_sdk.mjs";

const EXTRA = {
  provider: "https://example.com/rig",
  framework: "none",
  tags: ["rig", "test"],
  ui: { type: "hands-off", userGreeting: "Hello!" },
};
const later = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const options = parse(process.argv.slice(2), []).options;
const { zod, AcpServer, SSEServerTransport, StdioServerTransport } = await sdkOf(options.sdk);
const { z } = zod;

const prompt = z.object({ prompt: z.string() });
const text = z.object({ text: z.string(), logs: z.array(z.object({ message: z.string() })) });
const total = z.object({ total: z.number().int(), half: z.number() });
const line = z.object({ text: z.string() });
const nested = z.object({
  answer: z.object({ title: z.string(), lines: z.array(line) }),
  usage: z.record(z.number()),
});

function tell(what) {
  console.error(what);
  if (options.told) appendFileSync(options.told, `${what}\n`);
}

/** Registers an agent; `run` gets the input, a function that sends a delta, and the SDK's own arguments. */
function add(acp, name, description, input, output, run, extra) {
  const callback = async (request, given) => {
    const progressToken = request.params._meta?.progressToken;
    const delta = async (value) => {
      if (progressToken !== undefined) await acp.server.sendAgentRunProgress({ progressToken, delta: value });
    };
    return await run(request.params.input, delta, given, progressToken);
  };
  acp.agent(name, description, input, output, callback, extra);
}

/** The agents that say what they were given, each in deltas of another shape. */
function addSpeakers(acp) {
  add(acp, "echo", "Says what it is told", prompt, text, ({ prompt }) => ({ text: prompt, logs: [] }), EXTRA);
  const stream = async ({ prompt }, delta) => {
    const output = { text: "", logs: [] };
    for (const word of prompt.split(" ")) {
      await delta({ text: `${word} `, logs: [null, { message: word }] });
      output.text += `${word} `;
      output.logs.push({ message: word });
    }
    return output;
  };
  add(acp, "stream", "Says it word by word", prompt, text, stream, EXTRA);
  const count = async ({ upto }, delta) => {
    for (let n = 0; n < upto; n++) await delta({ total: 1, half: 0.5 });
    return { total: upto, half: upto / 2 };
  };
  add(acp, "count", "Counts", z.object({ upto: z.number().int() }), total, count);
  const objects = async ({ prompt }, delta) => {
    const words = prompt.split(" ");
    for (const word of words) {
      await delta({ answer: { title: `${word} `, lines: [null, { text: word }] }, usage: { tokens: 1 } });
      await delta({ answer: { lines: [{ text: "!" }] } });
    }
    const lines = words.map((word) => ({ text: `${word}!` }));
    return { answer: { title: words.map((word) => `${word} `).join(""), lines }, usage: { tokens: words.length } };
  };
  add(acp, "nested", "Objects in objects", prompt, nested, objects);
}

/** The agents that tell their client more than deltas, or ask it something. */
function addUsersOfTheClient(acp) {
  const ask = async ({ prompt }) => {
    const messages = [{ role: "user", content: { type: "text", text: prompt } }];
    const sampling = await acp.server.createMessage({ messages, maxTokens: 100 }).catch((error) => error.message);
    const roots = await acp.server.listRoots().catch((error) => error.message);
    return { text: JSON.stringify({ sampling, roots }), logs: [] };
  };
  add(acp, "ask", "Asks its client", prompt, text, ask);
}

/** The agents that end badly, late or never. */
function addTroubles(acp) {
  const fail = async (_input, delta) => {
    await delta({ text: "so far " });
    throw new Error("boom");
  };
  add(acp, "fail", "Raises", prompt, text, fail);
  const slow = async (_input, delta, { signal }) => {
    for (let n = 0; !signal.aborted; n++) {
      await delta({ text: `${n} ` });
      await later(50);
    }
    tell("slow cancelled");
    return { text: "", logs: [] };
  };
  add(acp, "slow", "Counts until it is cancelled", prompt, text, slow, EXTRA);
  const big = async ({ chunks, size }, delta) => {
    const chunk = "x".repeat(size);
    for (let n = 0; n < chunks; n++) await delta({ text: chunk });
    return { text: chunk.repeat(chunks), logs: [] };
  };
  add(acp, "big", "Says much", z.object({ chunks: z.number().int(), size: z.number().int() }), text, big);
  const die = async (_input, delta) => {
    await delta({ text: "bye " });
    await acp.server.ping(); // whose answer says that what was sent before has come
    process.exit(3);
  };
  add(acp, "die", "Ends the process", prompt, text, die);
}

const servers = new Set();
const made = {};

/** The template. The SDK keeps agents by connection; those made are put into all, which it has no method for. */
function addTemplate(acp) {
  servers.add(acp);
  Object.assign(acp._registeredAgents, made);
  const changed = () => Promise.all([...servers].map((one) => one.server.sendAgentListChanged().catch(() => {})));
  const config = z.object({ name: z.string().optional(), greeting: z.string() });
  const create = async ({ params }) => {
    const { name = `made-${Object.keys(made).length + 1}`, greeting } = params.config;
    const agent = {
      name,
      description: "Greets",
      inputSchema: prompt,
      outputSchema: text,
      ...EXTRA,
      runCallback: async ({ params: asked }) => ({ text: `${greeting} ${asked.input.prompt}`, logs: [] }),
      destroyCallback: async () => {
        delete made[name];
        for (const one of servers) delete one._registeredAgents[name];
        tell(`${name} destroyed`);
        setImmediate(changed);
      },
    };
    made[name] = agent;
    for (const one of servers) one._registeredAgents[name] = agent;
    setImmediate(changed);
    return agent;
  };
  acp.agentTemplate("maker", "Makes agents", config, prompt, text, create, EXTRA);
}

function build() {
  const info = { name: "rig-ts-agents", version: "0.1" };
  const capabilities = { agents: { listChanged: true }, logging: {} };
  const acp = new AcpServer(info, { capabilities, instructions: "Agents to test with." });
  for (const part of [addSpeakers, addUsersOfTheClient, addTroubles, addTemplate]) part(acp);
  return acp;
}

if (options.http) {
  const transports = new Map();
  const handle = async (request, response) => {
    const url = new URL(request.url, "http://localhost");
    if (request.method === "GET" && url.pathname === "/sse") {
      const transport = new SSEServerTransport("/messages", response);
      const acp = build();
      transports.set(transport.sessionId, transport);
      acp.server.onclose = () => {
        transports.delete(transport.sessionId);
        servers.delete(acp);
      };
      await acp.connect(transport);
      return;
    }
    const transport = transports.get(url.searchParams.get("sessionId"));
    if (request.method === "POST" && url.pathname === "/messages" && transport) {
      await transport.handlePostMessage(request, response);
    } else {
      response.writeHead(404).end("Not found");
    }
  };
  createServer((request, response) => {
    handle(request, response).catch((error) => console.error(error));
  }).listen(Number(options.http), "127.0.0.1");
} else {
  await build().connect(new StdioServerTransport());
}
