// What the client and the server of `@i-am-bee/acp-sdk` share: the SDK from the environment that `--sdk FOLDER` names
// (its `node_modules`), and the command line.

import { pathToFileURL } from "node:url";

/** The parts of the SDK that its users import, and its `zod`. */
export async function sdkOf(folder) {
  const from = (path) => import(pathToFileURL(`${folder}/node_modules/${path}`).href);
  const sdk = (path) => from(`@i-am-bee/acp-sdk/dist/esm/${path}.js`);
  const parts = ["server/acp", "server/sse", "server/stdio", "client/index", "client/sse", "client/stdio"];
  const found = await Promise.all([...parts, "client/websocket"].map(sdk));
  return { zod: await from("zod/index.js"), types: await sdk("types"), ...Object.assign({}, ...found) };
}

const THROUGHOUT = ["sdk", "http", "sse", "ws", "told", "wire", "bare"];

/** The options, the steps in order, and what comes after `--`. Those in `flags` take no value. */
export function parse(argv, flags) {
  const end = argv.indexOf("--");
  const given = end < 0 ? argv : argv.slice(0, end);
  const options = { header: [] };
  const steps = [];
  for (let n = 0; n < given.length; n++) {
    const name = given[n].replace(/^--/, "");
    const value = flags.includes(name) ? "" : given[++n];
    if (THROUGHOUT.includes(name)) options[name] = value;
    else if (name === "header") options.header.push(value);
    else steps.push([name, value]);
  }
  return { options, steps, command: end < 0 ? [] : argv.slice(end + 1) };
}
