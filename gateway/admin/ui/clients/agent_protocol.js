// A client of the Agent Protocol: a task, its files, and one step after the other. See try.js for what a client is.

import { Failed, caller, whenAborted } from "../api.js";

export async function connect({ door, agent, token, signal }) {
  const tasks = `/${encodeURIComponent(agent.name)}/ap/v1/agent/tasks`;
  const { call, headers } = caller(door, token, signal);
  let task = null;

  async function send({ input, text, files, cancel, out }) {
    const gone = new Promise((_, reject) => {
      whenAborted(cancel, () => reject(new Failed("This protocol has no cancel. The client listens no more, and the run goes on: the page of its run can cancel it.")));
    });
    gone.catch(() => {});
    let given = text === null ? { input: "", additional_input: input } : { input: text };
    if (task === null) {
      task = `${tasks}/${(await call("POST", tasks, given)).task_id}`;
      given = {};
    }
    for (const file of files) {
      const body = new FormData();
      body.append("file", file, file.name);
      await call("POST", `${task}/artifacts`, body);
    }
    if (cancel.aborted) throw new Failed("Cancelled before the task's next step.");
    for (let last = false, asked = null; !last;) {
      const step = await Promise.race([call("POST", `${task}/steps`, given), gone]);
      const { interrupt, error, ...beside } = step.additional_output ?? {};
      if (step.output) out.text(`${asked || out.said ? "\n\n" : ""}${step.output}`);
      for (const [name, value] of Object.entries(beside)) out.event(name.replaceAll("_", " "), value);
      for (const file of step.artifacts ?? []) out.file(file.file_name, `${door}${task}/artifacts/${file.artifact_id}`, headers);
      if (error) throw new Failed(`${error.code}: ${error.message}`, error);
      asked = interrupt;
      given = {};
      if (asked && !step.is_last) {
        const answer = await Promise.race([out.ask({ message: asked.message, schema: asked.answer_schema, payload: asked.payload }), gone]);
        if (answer.outcome !== "answered") return gone;
        const { value } = answer;
        given = typeof value === "object" && value !== null && !Array.isArray(value) ? { additional_input: value }
          : { input: typeof value === "string" ? value : JSON.stringify(value) };
      }
      last = step.is_last;
    }
  }

  return { send, close() {} };
}
