// What the client and the agent of `@agentclientprotocol/sdk` share: the SDK itself, from the environment that
// `--sdk FOLDER` names (its `node_modules`), and the wire as it was.

import { appendFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

/** Imports `name` as a program that lived in the folder would. */
export async function load(folder, name) {
  const require = createRequire(`${folder}/package.json`);
  return await import(pathToFileURL(require.resolve(name)).href);
}

/** The same stream; each message is kept in the file, if one is named, with the side it goes to. */
export function recorded(stream, file, outgoing, incoming) {
  if (!file) return stream;
  const keep = (to) =>
    new TransformStream({
      transform(message, controller) {
        appendFileSync(file, JSON.stringify({ to, message }) + "\n");
        controller.enqueue(message);
      },
    });
  const out = keep(outgoing);
  out.readable.pipeTo(stream.writable).catch(() => {});
  return { readable: stream.readable.pipeThrough(keep(incoming)), writable: out.writable };
}

/** The arguments as `[name, value]` in order, up to `--`, and what comes after it. `flags` take no value. */
export function parse(argv, flags) {
  const end = argv.indexOf("--");
  const given = end < 0 ? argv : argv.slice(0, end);
  const steps = [];
  for (let n = 0; n < given.length; n++) {
    const name = given[n].replace(/^--/, "");
    steps.push(flags.includes(name) ? [name, ""] : [name, given[++n]]);
  }
  return { steps, command: end < 0 ? [] : argv.slice(end + 1) };
}
