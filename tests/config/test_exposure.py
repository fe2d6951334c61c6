"""A governed agent is not served to a network whose people nobody asks who they are."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway import registry
from gateway.app import App
from gateway.cli.check import check
from gateway.cli.listening import Certificate
from gateway.cli.serve import _Gateway, _shared, serve
from gateway.config import Config, load, loads
from gateway.config.exposure import cautions, exposed, in_clear
from gateway.contract import Adapter, InboundOptions
from gateway.transport.guard import local
from tests.config.conftest import ADAPTERS, _never
from tests.governance.support import OPERATOR, manifest, write
from tests.support.aio import run
from tests.support.certificates import authority


class AskingOptions(InboundOptions):
    """What asks.

    ask: whether it does.
    """

    ask: bool = True

    @property
    def authenticates(self) -> bool:
        """See `InboundOptions`."""
        return self.ask


HOUSE = {**ADAPTERS, "asking": Adapter(name="asking", title="Asking", serve=_never, serve_options=AskingOptions)}


def table(folder: Path, inbound: str, match: str = "{}", kind: str = "bridge") -> Config:
    """The config of a table with one governed agent, and one that is not."""
    write(folder / "OPERATOR.md", OPERATOR)
    manifest(folder / "coder", {"operator": "../OPERATOR.md"} if kind == "server" else None, kind=kind)
    file = folder / "routes.yaml"
    file.write_text(
        f"inbound: {inbound}\n"
        "routes:\n"
        "  - {name: free, target: {protocol: phone}}\n"
        f"  - name: coder\n    match: {match}\n    target: {{protocol: phone}}\n    manifest: coder/ACP.md\n"
    )
    phone = replace(ADAPTERS["phone"], editors=kind == "client")  # only such an agent is driven by a client
    return load(file, {**HOUSE, "phone": phone})


EXPOSED = "routes[1].manifest: its clients have to be authenticated on a network, and those of {} are not"


@pytest.mark.parametrize(
    ("inbound", "match", "open_doors"),
    [
        ("{both: , door: , asking: }", "{}", "both, door"),
        ("{both: , door: , asking: }", "{protocol: [asking, door]}", "door"),
        ("{both: , asking: }", "{protocol: asking}", ""),
        ("{asking: }", "{}", ""),
        ("{asking: {ask: false}}", "{}", "asking"),
        ("{}", "{}", ""),
    ],
)
def test_a_governed_agent_is_exposed_by_every_protocol_that_reaches_it_and_does_not_ask(
    inbound: str, match: str, open_doors: str, tmp_path: Path
) -> None:
    told = [str(mistake) for mistake in exposed(table(tmp_path, inbound, match))]
    assert len(told) == bool(open_doors)
    for line in told:
        assert line.startswith(f"{tmp_path / 'routes.yaml'}:7 {EXPOSED.format(open_doors)}")


@pytest.mark.parametrize("kind", ["client", "server", "bridge"])
def test_a_governed_agent_is_exposed_whatever_kind_its_manifest_says(kind: str, tmp_path: Path) -> None:
    (told,) = exposed(table(tmp_path, "{both: }", kind=kind))
    assert str(told).startswith(f"{tmp_path / 'routes.yaml'}:7 {EXPOSED.format('both')}")


def test_a_protocol_that_asks_nobody_beside_one_that_asks_is_a_caution(tmp_path: Path) -> None:
    config = table(tmp_path, "{asking: , door: }", "{protocol: asking}")
    (caution,) = cautions(config)
    assert str(caution).endswith(
        "inbound.door: anybody may use the agents here, for which clients of asking have to be authenticated"
    )
    assert not exposed(config) and not cautions(table(tmp_path, "{both: , door: }", "{protocol: asking}"))


@pytest.mark.parametrize(
    ("host", "near"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("::ffff:127.0.0.1", True)),
        *(
            ("0.0.0.0", False),
            ("::ffff:10.0.0.1", False),
            ("::", False),
            ("10.0.0.1", False),
            ("", False),
            ("gateway.example", False),
        ),
    ],
)
def test_only_loopback_addresses_are_this_machines(host: str, near: bool) -> None:
    assert local(host) is near


def test_check_cautions_and_refuses_for_an_address_that_others_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = table(tmp_path, "{both: }")
    monkeypatch.setattr("gateway.cli.check.read", lambda *_: config)
    assert check(tmp_path / "routes.yaml") == 0
    assert f"caution: {exposed(config)[0]}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        check(tmp_path / "routes.yaml", "0.0.0.0")
    said = capsys.readouterr()
    assert left.value.code == 1 and str(exposed(config)[0]) in said.err and not said.out


def test_serve_starts_on_no_address_that_others_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = table(tmp_path, "{both: }")
    monkeypatch.setattr("gateway.cli.serve.read", lambda *_: config)
    with pytest.raises(SystemExit) as left:
        serve(tmp_path / "routes.yaml", "0.0.0.0", 0)
    assert left.value.code == 2 and str(exposed(config)[0]) in capsys.readouterr().err


@pytest.mark.parametrize(("address", "shared"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_what_counts_is_where_it_listens(address: str, shared: bool) -> None:
    with socket.create_server((address, 0)) as listener:
        assert _shared(listener) is shared


@pytest.mark.parametrize(
    ("address", "change", "taken"),
    [
        ("127.0.0.1", ("both", "both"), True),
        ("0.0.0.0", ("both", "both"), False),
        ("0.0.0.0", ("asking", "asking"), True),
        ("0.0.0.0", ("both", "asking"), False),
    ],
)
def test_a_reload_that_would_expose_an_agent_is_refused(
    address: str, change: tuple[str, str], taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others reach the gateway; its old routes stay. What counts is what is served, which a reload leaves."""
    served, config = (table(tmp_path, f"{{{name}: }}") for name in change)
    monkeypatch.setattr("gateway.cli.serve._reread", lambda _: config)
    reloaded: list[Config] = []

    async def reload(_: object, config: Config) -> None:
        reloaded.append(config)

    monkeypatch.setattr(App, "reload", reload)
    monkeypatch.setattr(App, "__init__", lambda *_, **__: None)

    async def main() -> None:
        with socket.create_server((address, 0)) as listener:
            await _Gateway(tmp_path / "routes.yaml", served, listener, address, tls=None, greet=False)._reload("a test")

    run(main())
    assert reloaded == [config] * taken


# --- tokens that cross a network unencrypted --------------------------------------------------------------------------

CLEAR = """\
inbound:
  agent_connect: {authentication: {clients: [{name: ana, token: a-long-secret-of-hers}]}}
  agent_protocol: {}
  agent_context: {announce: [{url: "ws://far.example", token: x}], access: {clients: [{name: planner, token: y-y-y-y}]}}
routes:
  - {name: near, target: {protocol: agent_connect, url: "http://127.0.0.1:1", auth: {bearer: x}}}
  - {name: sealed, target: {protocol: agent_connect, url: "https://far.example", auth: {bearer: x}}}
  - {name: open, target: {protocol: agent_connect, url: "http://far.example"}}
  - {name: far, target: {protocol: agent_connect, url: "http://far.example", auth: {bearer: x}}}
  - {name: socket, target: {protocol: agent_client, url: "ws://10.0.0.1:1", auth: {api_key: x}}}
telemetry:
  otlp: http://collector:4318
  headers: {x-api-key: x}
  monitors: {tokens: [a-secret]}
"""
INBOUND = ["2 inbound.agent_connect", "4 inbound.agent_context", "14 telemetry.monitors.tokens"]
ANNOUNCED = "4 inbound.agent_context.announce[0].token"
OUTBOUND = ["9 routes[3].target.auth", "10 routes[4].target.auth", ANNOUNCED, "13 telemetry.headers"]


def test_tokens_that_would_cross_a_network_unencrypted_are_named_with_line_and_key() -> None:
    def told(text: str, *, inbound: bool) -> list[str]:
        return [str(mistake).split(": ")[0].split(":")[1] for mistake in in_clear(loads(text), inbound=inbound)]

    assert told(CLEAR, inbound=True) == [*INBOUND, *OUTBOUND]
    assert told(CLEAR, inbound=False) == OUTBOUND
    assert told(f"{CLEAR}public_url: https://agents.example\n", inbound=True) == OUTBOUND
    assert told(f"{CLEAR}public_url: http://agents.example\n", inbound=True) == [*INBOUND, *OUTBOUND]


def test_check_warns_of_clear_text_where_others_reach_the_port_and_no_certificate_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(CLEAR)
    _, pair = authority(tmp_path, "known")
    message = f"caution: {file}:2 inbound.agent_connect: its clients' tokens would cross the network unencrypted"
    for host, tls, warned in (("0.0.0.0", None, True), ("127.0.0.1", None, False), ("0.0.0.0", pair, False)):
        assert check(file, host, Certificate(tls, tls) if tls else None) == 0
        said = capsys.readouterr().out
        assert (message in said, f"caution: {file}:9 routes[3].target.auth: is sent to far.example" in said) == (
            warned,
            True,
        )


def test_check_and_serve_warn_of_a_port_for_other_machines_where_nobody_is_asked(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "routes.yaml"
    monkeypatch.setattr("gateway.cli.serve.loop.run", lambda it, signals: it.close())
    told = "whoever reaches the port from another machine may use every agent"
    asking = "{clients: [{name: ana, token: a-long-secret-of-hers}]}"
    for host, inbound, warned in (
        ("0.0.0.0", "{agent_connect: , agent_client: }", True),
        ("0.0.0.0", f"{{agent_connect: {{authentication: {asking}}}}}", False),
        ("127.0.0.1", "{agent_connect: }", False),
    ):
        file.write_text(f"\ninbound: {inbound}\n")
        caplog.clear()
        assert check(file, host) == serve(file, host, 0) == 0
        assert (f"caution: {file}:2 inbound: {told}" in capsys.readouterr().out) == warned
        assert (f"{file}:2 inbound: {told}" in caplog.text) == warned


def test_a_secret_that_would_be_sent_to_an_issuer_unencrypted_is_named() -> None:
    oauth2 = {"token_url": "http://login.example/token", "client_id": "a", "client_secret": "b"}
    place = {"protocol": "agent_connect", "url": "https://far.example", "auth": {"oauth2": oauth2}}
    found = in_clear(loads(json.dumps({"routes": [{"name": "a", "targets": [place]}]})), inbound=False)
    (told,) = map(str, found)
    assert "routes[0].targets[0].auth.oauth2: its secret is sent to login.example unencrypted" in told


def test_commands_that_this_machine_cannot_start_are_cautions_of_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.sh").write_text("#!/bin/sh\n")
    (tmp_path / "agent.py").write_text("")
    commands = {
        "fine": f"command: ['{sys.executable}', agent.py]",
        "typo": "command: [no-such-program]",
        "script": f"command: ['{sys.executable}', agents/agent.py]",
        "plain": "command: [./plain.sh]",
        "here": "command: [./agent.sh]",
        "folder": f"command: ['{sys.executable}', agent.py], cwd: nowhere",
        "unbuffered": f"command: ['{sys.executable}', -u, agent2.py]",
        "package": "command: [./npx, agent.js]",
        "own": "command: [./agent-that-is-on-no-path]",
    }
    for program in ("npx", "agent-that-is-on-no-path"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    routes = [f"  - {{name: {name}, target: {{protocol: agent_client, {it}}}}}" for name, it in commands.items()]
    file = tmp_path / "routes.yaml"
    file.write_text("\n".join(["routes:", *routes, ""]))
    assert check(file) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("caution: ")]
    assert told == [
        f"caution: {file}:3 routes[1].target.command: no-such-program was not found on the PATH",
        f"caution: {file}:4 routes[2].target.command: agents/agent.py was not found in {tmp_path}",
        f"caution: {file}:5 routes[3].target.command: ./plain.sh is not executable in {tmp_path}",
        f"caution: {file}:6 routes[4].target.command: ./agent.sh was not found in {tmp_path}",
        f"caution: {file}:7 routes[5].target.cwd: there is no folder {tmp_path / 'nowhere'}",
        f"caution: {file}:8 routes[6].target.command: agent2.py was not found in {tmp_path}",
    ]


NOBODY = "nobody may do anything here: name `clients`, what the bearers of a `jwt` may do, or what is for `anonymous`"


@pytest.mark.parametrize(
    ("access", "told"),
    [
        ("{}", [NOBODY]),
        ("{jwt: {key: '0123456789abcdef0123456789abcdef', audience: here, algorithms: [HS256]}}", [NOBODY]),
        ("{jwt: {key: '0123456789abcdef0123456789abcdef', audience: here, algorithms: [HS256], may: [read]}}", []),
        ("{clients: [{name: ann, token: '0123456789abcdef'}]}", []),
        ("{anonymous: [read]}", []),
    ],
)
def test_a_door_that_nobody_has_a_key_of_is_a_caution(access: str, told: list[str]) -> None:
    config = loads(f"inbound: {{agent_context: {{access: {access}}}}}", registry.scan())
    assert [(each.line, each.where, each.message) for each in cautions(config)] == [
        (1, "inbound.agent_context.access", message) for message in told
    ]


def test_a_client_or_operator_that_can_show_nothing_is_a_caution() -> None:
    table = """\
inbound:
  agent_connect:
    authentication:
      clients: [{name: bob}]
      jwt: {key: "0123456789abcdef0123456789abcdef", audience: here, algorithms: [HS256]}
  agent_protocol:
    authentication:
      clients:
        - {name: ana, token: sesame}
        - {name: bob}
  agent_context: {access: {clients: [{name: eve, public_key: 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=}]}}
operators: {clients: [{name: olga}]}
"""
    assert sorted((each.line, each.where, each.message) for each in cautions(loads(table, registry.scan()))) == [
        (
            10,
            "inbound.agent_protocol.authentication.clients[1]",
            "bob cannot come in: give it a token or token_sha256, or name a `jwt`",
        ),
        (12, "operators.clients[0]", "olga cannot come in: give it a token or token_sha256, or name a `jwt`"),
    ]
