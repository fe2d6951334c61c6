// A client of the Agent Communication Protocol (BeeAI): MCP with agents/run and its deltas. See try.js for what a client is.

import { withFiles } from "../files.js";
import { Session, elicited } from "./mcp.js";

// What a delta makes of the output so far (the protocol's "Delta Algorithm"); undefined where there is none yet.
function combine(output, delta) {
  if (delta === null || delta === undefined) return output;
  if (output === undefined || output === null) return settled(delta);
  if (Array.isArray(output) && Array.isArray(delta)) {
    if (!output.length || !delta.length) return delta.length ? settled(delta) : output;
    return [...output.slice(0, -1), combine(output.at(-1), delta[0]), ...delta.slice(1).map(settled)];
  }
  if (typeof output !== typeof delta) throw new Error("a delta does not fit the output");
  if (typeof output === "object") {
    return Object.fromEntries([...Object.entries(output), ...Object.entries(delta).map(([key, part]) => [key, combine(output[key], part)])]
      .filter(([, value]) => value !== undefined));
  }
  return typeof output === "boolean" ? output : output + delta;
}

// A value that begins with a delta: without the null at the head of each list, which joins nothing.
function settled(delta) {
  if (Array.isArray(delta)) return (delta[0] === null ? delta.slice(1) : delta).map(settled);
  if (typeof delta !== "object" || delta === null) return delta;
  return Object.fromEntries(Object.entries(delta).map(([key, part]) => [key, settled(part)]));
}

export async function connect({ door, agent, token, signal }) {
  const session = await Session.open(`${door}/mcp/${encodeURIComponent(agent.name)}`, { token, signal });
  let tokens = 0;

  async function send({ input, files, cancel, out }) {
    let output;
    const told = (method, params) => {
      const event = params?._meta?.["interlingua/event"];
      if (method === "notifications/agents/run/progress") {
        output = combine(output, params.delta);
        if (output !== undefined && !event) out.output(output);
        if (event) out.event(event.event.replaceAll("_", " "), event);
      } else if (method === "notifications/message" && !params.data?.event) out.event(params.level, params.data);
    };
    const ask = (method, params, withdrawn) => (method === "elicitation/create" ? elicited(params, out, withdrawn) : undefined);
    const run = { name: agent.name, input: await withFiles(input, files), _meta: { progressToken: tokens += 1 } };
    const result = await session.call("agents/run", run, { told, ask, cancel });
    out.output(result.output);
    return result._meta?.["interlingua/stopReason"];
  }

  return { send, close: () => session.close() };
}
