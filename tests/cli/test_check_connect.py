"""`check --connect`: the agents are asked what they are, and what a route says otherwise is a mistake."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.conftest import interlingua
from tests.support.peers import oidc_provider
from tests.support.processes import ROOT, free_port
from tests.support.serving import Quiet, in_a_thread

ROUTES = """\
routes:
  - name: mails
    target: {{protocol: agent_connect, url: "{mails}"}}
    text: {{input: /nowhere, output: /message}}
  - name: reports
    target: {{protocol: agent_protocol, url: "{reports}"}}
    text: {{input: /prompt, output: /reply}}
  - name: gone
    target: {{protocol: agent_connect, url: "http://127.0.0.1:{nobody}"}}
"""


def table(agents: dict[str, str], directory: Path) -> Path:
    file = directory / "routes.yaml"
    reports, mails = agents["REPORTER_URL"], agents["MAILCOMPOSER_URL"]
    file.write_text(ROUTES.format(mails=mails, reports=reports, nobody=free_port()))
    return file


def test_a_pointer_that_leads_nowhere_in_what_the_agent_publishes_is_a_mistake(
    agents: dict[str, str], tmp_path: Path
) -> None:
    file = table(agents, tmp_path)
    assert interlingua("check", str(file)).returncode == 0, "without the agents nothing is wrong with the file"
    done = interlingua("check", str(file), "--connect")
    assert done.returncode == 1
    mistake, gone = [line for line in done.stderr.splitlines() if str(file) in line]
    assert f"{file}:4 routes[0].text.input: the agent's input schema has no text at '/nowhere'" in mistake
    assert "'/message'" in mistake
    assert "routes[2].target: the agent cannot be described" in gone
    assert "could not be described" not in done.stderr, "that is told once"


def test_such_a_pointer_is_a_warning_when_the_agent_is_described(agents: dict[str, str], tmp_path: Path) -> None:
    done = interlingua("agents", "--routes", str(table(agents, tmp_path)))
    assert "route mails: text.input: the agent's input schema has no text at '/nowhere'" in done.stderr
    assert "reports: text" not in done.stderr


def test_an_agent_that_publishes_nothing_takes_its_text_where_the_route_says(
    agents: dict[str, str], tmp_path: Path
) -> None:
    done = interlingua("run", "reports", "the tides", "--routes", str(table(agents, tmp_path)))
    assert done.returncode == 0 and "the tides" in done.stdout, done.stderr


def test_a_server_that_stands_for_all_its_agents_and_does_not_start_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    command = json.dumps([sys.executable, "-c", "import sys; sys.exit('no model is configured')"])
    file.write_text(
        f"routes:\n  - name: tools\n    target: {{protocol: agent_context, command: {command}, agents: '*'}}\n"
    )
    done = interlingua("check", str(file), "--connect")
    assert done.returncode == 1
    assert f"{file}:3 routes[0].target: the agent cannot be described: tools exited with 1: no model" in done.stderr


ISSUERS = """\
inbound:
  agent_connect: {{authentication: {{jwt: {{discovery: "{good}", algorithms: [RS256], audience: x}}}}}}
  agent_protocol: {{authentication: {{jwt: {{discovery: "{good}", algorithms: [ES256], audience: x}}}}}}
  agent_context: {{access: {{jwt: {{discovery: "{good}/other", algorithms: [RS256], audience: x}}}}}}
operators: {{jwt: {{discovery: "http://127.0.0.1:{nobody}", algorithms: [RS256], audience: y}}}}
routes: []
"""


def test_issuers_are_asked_for_their_keys_and_one_that_has_none_to_use_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    with oidc_provider() as provider:
        file.write_text(ISSUERS.format(good=provider.url, nobody=free_port()))
        done = interlingua("check", str(file), "--connect")
    assert done.returncode == 1
    assert f"  inbound.agent_connect.authentication.jwt: {provider.url}, 1 key\n" in done.stdout
    away, *wrong = [line for line in done.stderr.splitlines() if str(file) in line]
    assert f"{file}:5 operators.jwt.discovery: the issuer cannot be asked: " in away
    assert wrong == [
        f"{file}:3 inbound.agent_protocol.authentication.jwt.discovery: it publishes no key for ES256",
        f"{file}:4 inbound.agent_context.access.jwt.discovery: "
        f"{provider.url}/other/.well-known/openid-configuration is answered 404",
    ]


def test_keys_that_would_come_unencrypted_are_a_caution(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    jwt = '{discovery: "http://login.example.com", algorithms: [RS256], audience: x}'
    file.write_text(f"inbound: {{agent_connect: {{authentication: {{jwt: {jwt}}}}}}}\n")
    done = interlingua("check", str(file))
    told = "whoever is between here and login.example.com may say whose tokens are valid: use https"
    assert f"caution: {file}:1 inbound.agent_connect.authentication.jwt.discovery: {told}" in done.stdout


def test_an_agent_of_another_protocol_is_told_as_such(agents: dict[str, str], tmp_path: Path) -> None:
    file, programs = tmp_path / "routes.yaml", ROOT / "examples" / "agents"
    targets = [
        f"protocol: agent_connect, url: '{agents['REPORTER_URL']}'",
        f"protocol: agent_protocol, url: '{agents['MAILCOMPOSER_URL']}'",
        f"protocol: agent_client, command: ['{sys.executable}', '{programs / 'librarian.py'}']",
        f"protocol: agent_communication, command: ['{sys.executable}', '{programs / 'gardener.py'}']",
    ]
    routes = [f"  - {{name: a{at}, target: {{{target}}}}}" for at, target in enumerate(targets)]
    file.write_text("\n".join(["routes:", *routes, ""]))
    done = interlingua("check", str(file), "--connect")
    told = [line.partition("cannot be described: ")[2] for line in done.stderr.splitlines()]
    assert told == [
        "there is no Agent Connect agent at this address (404 for POST /agents/search)",
        "there is no Agent Protocol agent at this address (404 for /ap/v1/agent/tasks and /agent/tasks)",
        "a2 speaks MCP (2024-11-05), not the Agent Client Protocol",
        "a3 answered initialize with the protocolVersion 1, which is none of MCP's",
    ], done.stderr


def test_why_no_connection_is_made_is_told(agents: dict[str, str], tmp_path: Path) -> None:
    file, there = tmp_path / "routes.yaml", agents["MAILCOMPOSER_URL"].removeprefix("http:")
    urls = [("agent_connect", f"http://127.0.0.1:{free_port()}"), ("agent_client", f"ws://127.0.0.1:{free_port()}")]
    urls += [("agent_connect", f"https:{there}"), ("agent_client", f"wss:{there}")]
    urls += [("agent_connect", "http://nobody.invalid"), ("agent_client", "ws://nobody.invalid")]
    routes = [f"  - {{name: a{at}, target: {{protocol: {it}, url: '{url}'}}}}" for at, (it, url) in enumerate(urls)]
    file.write_text("\n".join(["routes:", *routes, ""]))
    done = interlingua("check", str(file), "--connect")
    told = [line.rpartition(": ")[2] for line in done.stderr.splitlines()]
    assert told[:4] == ["connection refused"] * 2 + ["it does not speak TLS"] * 2, done.stderr
    assert [line[: line.index(".invalid")] for line in told[4:]] == ["the name of nobody"] * 2, done.stderr
    assert done.returncode == 1, "whoever asks the agents wants to hear of it"


def test_each_of_several_targets_is_asked(agents: dict[str, str], tmp_path: Path) -> None:
    file, mails = tmp_path / "routes.yaml", f"protocol: agent_connect, url: '{agents['MAILCOMPOSER_URL']}'"
    gone = f"protocol: agent_connect, url: 'http://127.0.0.1:{free_port()}'"
    program = ROOT / "examples" / "agents" / "librarian.py"
    other = f"protocol: agent_communication, agent: librarian, command: ['{sys.executable}', '{program}']"
    targets = "".join(f"      - {{{it}}}\n" for it in (mails, gone, other))
    file.write_text(f"routes:\n  - name: mails\n    targets:\n{targets}")
    done = interlingua("check", str(file), "--connect")
    assert done.returncode == 1
    away, unlike = [line for line in done.stderr.splitlines() if str(file) in line]
    assert away.startswith(f"{file}:5 routes[0].targets[1]: the agent cannot be described: no connection")
    assert away.endswith(": connection refused")
    assert unlike.startswith(f"{file}:6 routes[0].targets[2]: it would get no runs: ")


@contextmanager
def redirecting(to: str) -> Iterator[str]:
    """A server that redirects everything; its address without the scheme."""

    class Handler(Quiet):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(307)
            for name, value in (("location", to), ("content-length", "0"), ("connection", "close")):
                self.send_header(name, value)
            self.end_headers()

        do_POST = do_GET

    with in_a_thread(Handler) as url:
        yield url.removeprefix("http://")


def test_a_redirect_is_told_in_each_protocol_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    kinds = ("agent_connect http:", "agent_protocol http:", "agent_communication http:", "agent_context http:")
    kinds += ("agent_context ws:", "agent_client ws:", "agent_client http:")
    with redirecting("https://ana:hers@sso.example/login;jsessionid=s3?token=t4#u5") as there:
        targets = [kind.replace(" ", ", url: '").removesuffix("'") + f"//{there}'" for kind in kinds]
        routes = [f"  - {{name: a{at}, target: {{protocol: {it}}}}}" for at, it in enumerate(targets)]
        file.write_text("\n".join(["routes:", *routes, ""]))
        done = interlingua("check", str(file), "--connect")
    told = done.stderr.splitlines()
    assert len(told) == len(kinds), done.stderr
    for line in told:
        assert line.endswith(": it redirects to https://sso.example/login; the address must be given as it is"), line
