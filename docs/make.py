"""Makes what of the documentation can be made from the code: `python docs/make.py` writes it, a test says if it is old.

`configuration.md`, the schemas of routes.yaml and of the chart's values wholly, and in other pages the parts between
`<!-- made: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

DOCS = Path(__file__).parent
LONG = 64
"""Characters of an example beyond which the whole file is looked at instead."""
sys.path.insert(0, str(DOCS.parent))

from gateway import registry, tracing  # noqa: E402
from gateway.config import schema  # noqa: E402
from gateway.core import errors  # noqa: E402

EXAMPLE = """\
inbound:
  agent_client:
    path: /agent-client
    limits: {runs: 5000, requests: 2000, connections: 5000}
    max_message: 67108864
    max_body: 67108864
    max_connections: 1000
    max_sessions: 1000
    idle: 300
    socket_idle: 7200
    keep_alive: 15
    origins: [https://ide.example.com]
    v2: true
    authentication: &people  # the same at the other doors
      clients:
        - name: ana
          token: "${ANA_TOKEN:-a-long-secret-of-hers}"
          roles: [lead]
          agents: ["*"]
          tools: ["*"]
          oversees: true
          limits: {runs: 20, requests: 50, connections: 20, sessions: 20}
      jwt:
        key: "${ISSUER_KEY:-a-secret-that-nobody-will-ever-guess}"
        algorithms: [HS256]
        issuer: https://login.example.com
        audience: interlingua
        leeway: 30
        roles: groups
        agents: ["*"]
        tools: ["*"]
        limits: {runs: 5, requests: 10, connections: 5, sessions: 5}
      grace: 60
  agent_communication:
    path: /agent-communication
    limits: {runs: 5000, requests: 2000, connections: 5000}
    max_message: 67108864
    max_body: 67108864
    max_sessions: 1000
    max_calls: 1000
    idle: 300
    socket_idle: 7200
    keep_alive: 15
    max_stream: 3600
    replay: 1048576
    origins: [https://chat.example.com]
    page_size: 100
    authentication: *people
  agent_connect:
    path: /agent-connect
    limits: {runs: 5000, requests: 2000, connections: 5000}
    max_body: 16777216
    keep_alive: 15
    max_stream: 3600
    authentication: *people
  agent_context:
    path: /agent-context
    limits: {runs: 5000, requests: 2000, connections: 5000}
    max_message: 67108864
    max_body: 67108864
    max_sessions: 1000
    max_calls: 1000
    idle: 300
    socket_idle: 7200
    keep_alive: 15
    max_stream: 3600
    replay: 1048576
    origins: [https://agents.example.com]
    access:
      clients:
        - name: painters
          token: "${PAINTERS_TOKEN:-secret}"
          public_key: 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
          may: [register, message, delegate, read]
          agents: [painter-*]
          roles: [painter]
          limits: {runs: 20, requests: 50, connections: 20, sessions: 20}
      jwt:
        key: "${ISSUER_KEY:-a-secret-that-nobody-will-ever-guess}"
        algorithms: [HS256]
        issuer: https://login.example.com
        audience: interlingua
        leeway: 30
        may: [message, delegate, read, evaluate]
        agents: ["*"]
        roles: groups
        limits: {runs: 5, requests: 10, connections: 5, sessions: 5}
      anonymous: [read]
    heartbeat: 30
    missed: 3
    forget: 604800
    coordinator: anybody
    per_agent: 4
    attempts: 3
    patience: 300
    approve: [painter-*]
    weights: {quality: 3, cost: 2, load: 2, speed: 1, security: 2}
    conduct: {window: 60, requests: 1000, refusals: 50, failures: 50, suspend: 300}
    announce:
      - url: https://directory.example.com/agent-context
        token: "${DIRECTORY_TOKEN:-secret}"
        agents: ["mail*"]
        heartbeat: 30
    agent_timeout: 600
    endpoints: [10.0.0.0/8]
    page_size: 100
  agent_protocol:
    path: /agent-protocol
    limits: {runs: 5000, requests: 2000, connections: 5000}
    on_disconnect: continue
    max_body: 4194304
    max_upload: 64000000
    authentication: *people
  example:
    path: /example
    limits: {runs: 5000, requests: 2000, connections: 5000}
    max_body: 1048576
    max_stream: 3600
    authentication: *people

routes:
  - name: mailcomposer
    match: {protocol: [agent_connect], metadata: {team: mail}}
    target:
      protocol: agent_protocol
      url: http://127.0.0.1:9001
      agent: mail-composer
      auth: {bearer: "${MAIL_TOKEN:-secret}"}
      base_path: auto
      drive: all
      max_steps: 100
      step_timeout: 600
      poll_interval: 0.5
      request_timeout: 30
      max_artifact: 104857600
    breaker: {failures: 5, first: 1s, longest: 30s}
    retries: 2
    timeout: 10m
    text: {input: /message, output: /message}
    memory: {mode: auto, turns: 50, bytes: 64KiB, messages: /messages, template: "Earlier:\\n\\n$history\\n\\nNow:"}
    labels: {tools: [smtp], models: [], specializations: [mail]}
    delegation: {approve: false, quality: 8, cost: 0.001, speed: 60, security: 9}
    model: {cost: 0.3, speed: 0.6, intelligence: 0.7}
    version: 1.2.0
    description: Writes mails.
    lossy: refuse
    limits: {runs: 100, starts: 20}
    backpressure: false
    record: wire
    manifest: examples/governed/mailcomposer/ACP.md

  - name: reporter
    target:
      protocol: agent_connect
      url: https://agents.example.com/connect
      agent: org.example.reporter
      auth: {api_key: "${REPORTER_KEY:-secret}"}
      api_key_header: x-api-key
      stream: auto
      poll_interval: 1
      poll_timeout: 30
      idle_timeout: 30
      reconnect_timeout: 15
      request_timeout: 30

  - name: writer
    targets:
      - {protocol: agent_protocol, url: "http://10.0.0.1:9001", weight: 3}
      - {protocol: agent_protocol, url: "http://10.0.0.2:9001", weight: 3}
      - protocol: agent_connect
        url: https://agents.example.com/connect
        agent: writer
        weight: 0
        auth:
          oauth2:
            token_url: https://login.example.com/token
            client_id: gateway
            client_secret: "${WRITER_SECRET:-secret}"
            scope: runs
            audience: writer
            resource: https://agents.example.com
            send: header

  - name: parrot
    target:
      protocol: example
      url: http://127.0.0.1:9003
      agent: parrot
      auth: {}
      request_timeout: 60
      idle_timeout: 60
      remembers: true
      files: ["image/*"]

  - name: coder
    target:
      protocol: agent_client
      command: [npx, -y, "@example/coder", --acp]
      env: {CODER_MODEL: large}
      cwd: /srv/projects
      v2: true
      workspace: {root: /srv/projects, write: true, terminals: false, max_file: 16777216}
      permissions: {deny: [delete], forward: [edit, execute], allow: [read, search], default: forward}
      start_timeout: 30
      request_timeout: 30
      idle: 300
      warm: 2
      stop_timeout: 3
      max_message: 67108864

  - name: library
    target:
      protocol: agent_communication
      command: [python3, agents/library.py]
      env: {LIBRARY_HOME: /srv/library}
      cwd: /srv/library
      agents: "*"
      start_timeout: 30
      request_timeout: 30
      idle: 300
      warm: 1
      stop_timeout: 3
      max_message: 67108864

  - name: poet
    target:
      protocol: agent_communication
      url: https://agents.example.com/mcp
      transport: auto
      auth: {api_key: "${POET_KEY:-secret}"}
      api_key_header: x-api-key
      sessions: 100
      template: poet
      created: 8

  - name: echo
    target: {protocol: agent_communication, url: https://agents.example.com/mcp, agent: echo}

  - name: painter
    target:
      protocol: agent_context
      url: https://agents.example.com/agent-context
      transport: auto
      auth: {api_key: "${PAINTER_KEY:-secret}"}
      api_key_header: x-api-key
      sessions: 100
      agent: painter
      call: auto

  - name: studio
    target:
      protocol: agent_context
      command: [python3, agents/studio.py]
      env: {STUDIO_HOME: /srv/studio}
      cwd: /srv/studio
      agents: "*"
      start_timeout: 30
      request_timeout: 30
      idle: 300
      warm: 1
      stop_timeout: 3
      max_message: 67108864

  - name: remote-coder
    target:
      protocol: agent_client
      url: wss://agents.example.com/acp
      agent: coder
      auth: {bearer: "${CODER_TOKEN:-secret}"}
      api_key_header: x-api-key

store:
  url: sqlite:///interlingua.db
  retention: {age: 7d, size: 10GB}
  fsync: true
  artifact_limit: 64MB
webhooks: {allow: [10.0.0.0/8]}
public_url: https://agents.example.com
hosts: [agents.internal.example]
limits:
  body: 8MB
  shutdown: 10s
  silence: 20s
  client: {runs: 1000, requests: 1000, connections: 500, sessions: 500}
  door: {runs: 10000, requests: 5000, connections: 10000}
  route: {runs: 1000, starts: 100}
  queue: 100
telemetry:
  otlp: http://127.0.0.1:4318
  headers: {authorization: "Bearer ${OTLP_TOKEN:-secret}"}
  service_name: interlingua
  traces: https://traces.example/trace/{trace}
  monitors: {tokens: ["${SCRAPE_TOKEN:-secret}"], networks: [10.42.0.0/16]}
audit: {key: keys/audit.pem}
operators:
  clients: [{name: olga, token: "${OLGA_TOKEN:-a-long-secret-of-hers}", roles: [lead]}]
  jwt:
    key: "${ISSUER_KEY:-a-secret-that-nobody-will-ever-guess}"
    algorithms: [HS256]
    issuer: https://login.example.com
    audience: interlingua-operators
    leeway: 30
    roles: groups
"""
"""Every key there is, once: each row's example is taken from here, and a test loads it."""
DIGEST = {"token_sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}
KEY_FILE = {"key_file": "certificates/issuer.pem", "discovery": "https://login.example.com", "keep": 3600}
OTHERWISE = {
    "operators.clients": DIGEST,
    "operators.jwt": KEY_FILE,
    "inbound.agent_client.authentication.clients": DIGEST,
    "inbound.agent_client.authentication.jwt": KEY_FILE,
    "inbound.agent_context.access.clients": DIGEST,
    "inbound.agent_context.access.jwt": KEY_FILE,
}
"""Keys that may not stand beside one that the example has."""

TLS = {"ca": "certificates/agents.pem", "cert": "certificates/gateway.pem", "key": "certificates/gateway-key.pem"}
"""Files that the example, which a test loads, cannot name."""

HEAD = """\
# routes.yaml

<!-- made by docs/make.py from the configuration models: change those, and run `python docs/make.py` -->

One file says which agents there are and how the gateway behaves. `interlingua check routes.yaml` names every mistake
with its file, line and key, and a wrong file stops the start. `interlingua schema` prints its JSON Schema, which is
also [here](schemas/routes.schema.json); editors complete from it if the file begins with

```yaml
# yaml-language-server: $schema=docs/schemas/routes.schema.json
```

- `${VAR}` and `${VAR:-default}` are filled in from the environment, in any value.
- A *duration* is `500ms`, `60s`, `5m`, `1h30m`, `7d`, or a number of seconds; a *size* is `64MB`, `1GiB`, or a
  number of bytes.
- `SIGHUP` or a change of the file reloads the routes without dropping a run; the other sections take effect at the
  next start. A bad file is refused, and the old routes stay.
- Behind `https:` and `wss:` the gateway speaks to who is vouched for by an authority that this machine knows. Others,
  as a cluster's own, are named by the environment variable `SSL_CERT_FILE` (or `SSL_CERT_DIR`) of the gateway, or by a
  target's `tls`. `check` and `serve` warn about an `auth` that goes to another machine by `http:` or `ws:`.
- The port's own certificate is no key of this file but two options of `serve`, `--tls-cert` and `--tls-key`
  ([deployment](deployment.md#tls)).
- A key that is not here is a mistake.

Everything at once:
"""


def configuration() -> str:
    """The page `configuration.md`."""
    found = schema(registry.scan())
    example = yaml.safe_load(EXAMPLE)
    out = [HEAD, f"```yaml\n{EXAMPLE}```\n"]
    for heading, intro, node, values in _sections(found, example):
        out.append(f"{heading}\n")
        if intro:
            out.append(f"{intro}\n")
        out.append(_table(found, node, values))
    return "\n".join(out)


def _sections(found: dict[str, Any], example: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], Any]]:
    """(heading, introduction, schema, example) of every mapping in the file, in reading order."""
    defs = found["$defs"]
    yield "## Sections", "", found, example
    shown: set[str] = set()
    for name, section in found["properties"]["inbound"]["properties"].items():
        intro = f"{section['description']} Left out: not served, unless `inbound` is left out as a whole."
        values = example["inbound"][name]
        yield f"## inbound.{name}", intro, _of(found, section), values
        yield from _inside(found, _of(found, section), values, f"inbound.{name}", shown)
    several = next(r["targets"] for r in example["routes"] if "targets" in r)
    first = {**example["routes"][0], "targets": several}
    places = [*several, *(r["target"] for r in example["routes"] if "target" in r)]
    yield "## routes", "A list: the first route of a name whose `match` fits takes the request.", defs["Route"], first
    for key in ("match", "breaker", "text", "memory", "delegation", "model", "limits"):
        yield f"## routes.{key}", "", _of(found, defs["Route"]["properties"][key]), first[key]
    for option in defs["Route"]["properties"]["target"]["oneOf"]:
        target = _of(found, option)
        protocol = target["properties"]["protocol"]["const"]
        given = {"weight": several[0]["weight"], "tls": TLS} | {
            key: value for one in places if one["protocol"] == protocol for key, value in one.items()
        }
        yield f"## routes.target, protocol: {protocol}", f"{target['title']}.", target, given
        for key, value in target["properties"].items():
            if key not in ("auth", "tls") and "properties" in (part := _of(found, value)):
                yield f"### routes.target.{key}, protocol: {protocol}", "", part, given[key]
    auth = {key: value for one in places for key, value in one.get("auth", {}).items()}
    yield "## routes.target.auth", "At most one of bearer and oauth2; api_key beside either.", defs["Auth"], auth
    yield "### routes.target.auth.oauth2", _paragraph(defs["OAuth2"]), defs["OAuth2"], {**auth["oauth2"], "tls": TLS}
    yield "## routes.target.tls", _paragraph(defs["TlsOptions"]), defs["TlsOptions"], TLS
    limits = [key if key == "limits" else f"limits.{key}" for key in ("limits", "client", "door", "route")]
    for key in ("store", "store.retention", "webhooks", *limits, "telemetry", "telemetry.monitors"):
        node, values = found, example
        for step in key.split("."):
            node, values = _of(found, node["properties"][step]), values[step]
        yield f"## {key}", "", node, values
    operators = _of(found, found["properties"]["operators"])
    yield "## operators", _paragraph(operators), operators, example["operators"]
    yield from _inside(found, operators, example["operators"], "operators", shown)


def _inside(
    found: dict[str, Any], node: dict[str, Any], values: Any, name: str, shown: set[str]
) -> Iterator[tuple[str, str, dict[str, Any], Any]]:
    """The same of the mappings in one; of those of a list by its first. What several have in common stands at the
    first of them: `shown` are those that were.
    """
    for key, value in node["properties"].items():
        given, part = values.get(key), _of(found, value)
        if isinstance(given, list):
            lists = [option["items"] for option in (value, *value.get("anyOf", ())) if "items" in option]
            given, part = given[0], _of(found, lists[0])
        if isinstance(given, dict) and "properties" in part and str(part) not in shown:
            shown.add(str(part))
            at = f"{name}.{key}"
            intro = _paragraph(part)
            yield f"### {at}", intro, part, {**OTHERWISE.get(at, {}), **given}
            yield from _inside(found, part, given, at, shown)


def _table(found: dict[str, Any], node: dict[str, Any], example: dict[str, Any]) -> str:
    rows = ["| key | type | default | example | meaning |", "|---|---|---|---|---|"]
    for key, value in node["properties"].items():
        if key not in example:
            raise SystemExit(f"docs/make.py: EXAMPLE has no {key!r} beside {sorted(example)}")
        needed = key in node.get("required", ())
        text = str(value["description"])
        cells = (
            f"`{key}`",
            _type(found, value),
            "required" if needed else _default(found, value),
            _shown(example[key]),
            _sentence(text).replace("|", "\\|"),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _paragraph(node: dict[str, Any]) -> str:
    """The first of a description, in one line."""
    return " ".join(str(node.get("description", "")).partition("\n\n")[0].split())


def _sentence(text: str) -> str:
    """With a capital, unless it begins with what is to be written as it stands, such as a URL."""
    first = text.partition(" ")[0].rstrip(",.;")
    return text[:1].upper() + text[1:] if first.isalpha() else text


def _of(found: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """The mapping that a property refers to."""
    for option in (node, *node.get("anyOf", ())):
        if "$ref" in option:
            return dict(found["$defs"][option["$ref"].rpartition("/")[2]])
    return node


def _type(found: dict[str, Any], node: dict[str, Any]) -> str:
    if isinstance(node.get("type"), list):
        kinds = [kind if kind == "null" else _type(found, {**node, "type": kind}) for kind in node["type"]]
        return " or ".join(kinds)
    if node.get("examples") == ["60s", "5m"]:
        return "duration"
    if node.get("examples") == ["64MB", "1GiB"]:
        return "size"
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{choice}`" for choice in node["enum"])
    if "oneOf" in node or "properties" in node or node.get("type") == "object":
        return "mapping"
    if "anyOf" in node:
        inner = [_type(found, option) for option in node["anyOf"] if not str(option.get("$ref")).endswith("Variable")]
        known = "duration" if "duration" in inner else "size" if "size" in inner else None
        kinds = [known, *(["null"] if "null" in inner else [])] if known else inner
        return " or ".join(dict.fromkeys(kind for kind in kinds if kind))
    if "$ref" in node:
        return _type(found, _of(found, node))
    if node.get("type") == "array":
        return f"list of {_type(found, node['items'])}s" if "type" in node["items"] else "list"
    return {"uri": "URL", "ipvanynetwork": "CIDR"}.get(node.get("format", ""), str(node["type"]))


def _default(found: dict[str, Any], node: dict[str, Any]) -> str:
    value = node.get("default")
    if value is None or value in ([], {}):
        return ""
    kind = _type(found, node)
    if "mapping" in kind:
        return "see below" if any(item not in (None, [], {}) for item in value.values()) else ""
    if "duration" in kind:
        for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
            if value % length == 0:
                return f"`{value / length:g}{unit}`"
        return f"`{value:g}s`"
    if "size" in kind and value % 1_000_000 == 0:
        return f"`{value // 1_000_000}MB`"
    return _shown(int(value) if isinstance(value, float) and value.is_integer() else value)


def _shown(value: Any) -> str:
    """A value as it is written in the file, on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).removesuffix("...\n").strip()
    return f"`{text}`" if len(text) <= LONG else "above"


# --- parts of other pages --------------------------------------------------------------------------------------------


def classes(root: type[errors.InterlinguaError] = errors.InterlinguaError) -> Iterator[type[errors.InterlinguaError]]:
    """The error tree, a class before those below it, as they stand in the file."""
    yield root
    for below in root.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from classes(below)


def error_table() -> str:
    """Every class of the tree with each protocol's code for it."""
    tables = {}
    for name in registry.scan():
        tables[name] = importlib.import_module(f"adapters.{name}.codec").ERRORS
    rows = [f"| class | code | again? | {' | '.join(tables)} | what |", f"|---|---|---|{'---|' * len(tables)}---|"]
    for cls in classes():
        codes = [str(errors.lookup(table, _bare(cls))) for table in tables.values()]
        what = (inspect.getdoc(cls) or "").splitlines()[0].replace("|", "\\|")
        again = "yes" if cls.retryable else ""
        rows.append(f"| `{cls.__name__}` | `{cls.code}` | {again} | {' | '.join(codes)} | {what} |")
    return "\n".join(rows)


def _bare(cls: type[errors.InterlinguaError]) -> errors.InterlinguaError:
    return cls("")


def metric_table() -> str:
    """Every metric of `/metrics`."""
    rows = ["| metric | kind | labels | what |", "|---|---|---|---|"]
    for metric in tracing.metrics.families:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(rows)


PARTS = {"errors": error_table, "metrics": metric_table}


def pages() -> dict[Path, str]:
    """Every page that is made, with what it should say."""
    published = json.dumps(schema(registry.scan()), indent=2, ensure_ascii=False) + "\n"  # as `interlingua schema`
    made = {DOCS / "configuration.md": configuration(), DOCS / "schemas" / "routes.schema.json": published}
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"^<!-- made: (\w+) -->$", text, re.MULTILINE):
            begin, end = f"<!-- made: {name} -->\n", "<!-- end -->\n"
            before, _, rest = text.partition(begin)
            _, _, after = rest.partition(end)
            text = made[path] = f"{before}{begin}{PARTS[name]()}\n{end}{after}"
    return {**made, **helm().pages()}


def helm() -> ModuleType:
    """What makes the pages of the chart: helm/make.py."""
    spec = importlib.util.spec_from_file_location("helm_make", DOCS.parent / "helm" / "make.py")
    assert spec and spec.loader
    module = sys.modules["helm_make"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Write what differs."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
