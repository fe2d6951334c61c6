// A client of the Agent Connect Protocol: a run, its stream, its questions. See try.js for what a client is.

import { Failed, caller, events, whenAborted } from "../api.js";
import { withFiles } from "../files.js";

export async function connect({ door, agent, token, signal }) {
  const { call, headers } = caller(door, token, signal);
  const { specs } = await call("GET", `/agents/${encodeURIComponent(agent.name)}/descriptor`);
  const kinds = new Map((specs.interrupts ?? []).map((one) => [one.interrupt_type, one]));
  const mode = specs.capabilities?.streaming?.custom ? ["values", "custom"] : "values";
  let runs = "/runs"; // or those of a thread, with an agent that has a memory or is given one

  async function send({ input, files, cancel, out }) {
    if (agent.converses && runs === "/runs") runs = `/threads/${(await call("POST", "/threads", {})).thread_id}/runs`;
    const creation = { agent_id: agent.name, input: await withFiles(input, files), stream_mode: mode };
    const { run_id: run } = await call("POST", runs, creation);
    const listenNoMore = whenAborted(cancel, () => call("POST", `${runs}/${run}/cancel`).catch((error) => out.wrong(error)));
    try {
      const seen = { last: "0" };
      for (let asked = await followed(run, seen, out); asked; asked = await followed(run, seen, out)) {
        const answer = await out.ask(question(asked));
        if (answer.outcome === "answered") await call("POST", `${runs}/${run}`, answer.value);
      }
    } finally {
      listenNoMore();
    }
  }

  // Follows the run until it ends or asks; what it asks. seen: where its log has been read to.
  async function followed(run, seen, out) {
    const from = { ...headers, "last-event-id": seen.last };
    for await (const { id, data } of events(`${door}${runs}/${run}/stream`, { headers: from, signal, own: false })) {
      seen.last = id ?? seen.last;
      const said = JSON.parse(data);
      if (said.type === "values") out.output(said.values);
      else if (said.type === "custom") out.event(said.update?.type ?? "custom", said.update);
      else if (said.type === "interrupt") return said.interrupt;
      else if (said.errcode !== undefined || said.type === "error") throw new Failed(`${said.errcode}: ${said.description}`, said);
    }
    return null;
  }

  // What is asked: its kind is the payload's only key, and the descriptor says what its answer looks like.
  function question(asked) {
    const [kind, payload] = Object.entries(asked)[0] ?? ["input", {}];
    const schema = payload?.requestedSchema ?? kinds.get(kind)?.resume_payload ?? {};
    const [name] = Object.keys(schema.properties ?? {});
    const options = Array.isArray(payload?.options) ? payload.options.filter((one) => one && name in one) : [];
    const chosen = options.length && { oneOf: options.map((one) => ({ const: one[name], title: one.name })) };
    return { message: payload?.message ?? payload?.toolCall?.title ?? kind, payload,
      schema: chosen ? { ...schema, properties: { ...schema.properties, [name]: chosen } } : schema };
  }

  return { send, close() {} };
}
