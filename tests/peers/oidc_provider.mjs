// A provider of OpenID Connect made with the certified library `oidc-provider` 9.13.3:
// `node oidc_provider.mjs --modules FOLDER --port N`, where FOLDER holds its `node_modules`.
//
// Clients `robot` and `visitor` (secret `secret`) get JWTs (RFC 9068) by client credentials for any `resource`, which is
// their audience: `sub` is the client, `groups` are [lead]. Those for a resource that ends in `/short` live a second.
// `POST /control/rotate` makes a new key, signs with that from now on and publishes the old ones as well;
// `POST /control/drop` publishes none but the newest any more; `GET /control/asked` is how often the keys were asked
// for. Rotating makes the provider anew, so that it forgets its tokens.
//
// What it does of its own accord: the keys have the `kid` that they are given; a JWT's `typ` is `at+jwt`; the issuer
// is the address without a slash at its end, and `aud` a text.

import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";

const { values } = parseArgs({ options: { modules: { type: "string" }, port: { type: "string" } } });
const { Provider } = await import(createRequire(join(values.modules, "x.js")).resolve("oidc-provider"));
const issuer = `http://127.0.0.1:${values.port}`;
let keys = [];
let made = 0;
let asked = 0;
let provider;

function rotate() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  made += 1;
  keys = [{ ...privateKey.export({ format: "jwk" }), kid: `key-${made}`, use: "sig", alg: "RS256" }, ...keys];
}

function serve() {
  const client = { client_secret: "secret", grant_types: ["client_credentials"], redirect_uris: [], response_types: [] };
  provider = new Provider(issuer, {
    clients: ["robot", "visitor"].map((client_id) => ({ client_id, ...client })),
    cookies: { keys: ["x"] },
    jwks: { keys },
    extraTokenClaims: () => ({ groups: ["lead"] }),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({
          scope: "",
          audience: resource,
          accessTokenTTL: resource.endsWith("/short") ? 1 : 600,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
}

rotate();
serve();
createServer((request, response) => {
  if (request.url === "/jwks") asked += 1;
  if (!request.url.startsWith("/control/")) return provider.callback()(request, response);
  if (request.url === "/control/rotate") rotate();
  if (request.url === "/control/drop") keys = keys.slice(0, 1);
  if (request.method === "POST") serve();
  response.end(JSON.stringify({ asked, newest: keys[0].kid }));
}).listen(Number(values.port), "127.0.0.1", () => console.log("ready"));
