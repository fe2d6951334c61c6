"""A gateway with a certificate: real SDKs at every door, over https and wss, by an authority that they were told of."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.e2e.doors import way
from tests.support import agent_client, agent_communication, processes
from tests.support.certificates import authority
from tests.support.peers import agent_connect_conversations, agent_protocol_client
from tests.support.processes import Gateway, Process

ROUTES = """\
routes:
  - name: writer
    target: {{protocol: agent_protocol, url: "{agent_protocol}"}}
    text: {{input: /message, output: /message}}
"""


def trusting(known: Path) -> dict[str, str]:
    """The environment of a client that knows one authority."""
    return {"SSL_CERT_FILE": str(known), "NODE_EXTRA_CA_CERTS": str(known)}


@pytest.fixture(scope="module")
def gateway(agent_protocol_server: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Its certificate was given by an authority between, and all children of the tests trust the one behind that."""
    folder = tmp_path_factory.mktemp("doors")
    known, pair = authority(folder, "known", between=True)
    text = ROUTES.format(agent_protocol=agent_protocol_server.url)
    args = ["--tls-cert", str(pair), "--tls-key", str(pair)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "authorities", lambda: trusting(known))
        with Gateway(text, folder, args=args, authority=known) as running:
            yield running


def test_the_gateway_says_where_it_is_with_https(gateway: Gateway) -> None:
    gateway.process.wait_until(lambda: "Try:" in gateway.process.stdout(), "announced")
    said = gateway.process.stdout()
    assert f"Interlingua is up at {gateway.url}\n" in said and "http://" not in said and "ws://" not in said
    assert "valid until" in gateway.process.stderr()


def test_agent_connect_runs_streams_and_gets_files(gateway: Gateway, tmp_path: Path) -> None:
    run = ["--name", "writer", "--input", '{"message": "the tides"}']
    waited, streamed = agent_connect_conversations(
        f"{gateway.url}/agent-connect", ["wait", *run], ["stream", *run, "--stream-mode", "values"]
    )
    (answer,) = agent_client.results(waited, "create_and_wait_for_stateless_run_output")
    assert answer["run"]["status"] == "success"
    assert [line for line in streamed if "event" in line]
    (file,) = answer["output"]["values"]["artifacts"]
    assert file["url"].startswith(f"{gateway.url}/artifacts/")
    context = ssl.create_default_context(cafile=processes.authorities()["SSL_CERT_FILE"])
    assert httpx2.get(file["url"], verify=context, trust_env=False, timeout=60).status_code == 200


def test_agent_protocol_makes_a_task_and_steps(gateway: Gateway) -> None:
    lines = agent_protocol_client("steps", f"{gateway.url}/agent-protocol/writer", "--input", "the tides")
    assert agent_client.results(lines, "execute_agent_task_step")[-1]["is_last"], lines


@pytest.mark.parametrize("door", ["ws", "http", "pipe"])
def test_agent_client_prompts(gateway: Gateway, door: str) -> None:
    lines = agent_client.agent_client_client("py", "--say", "the tides", **way(gateway, door, "writer"))
    assert agent_client.text(lines), lines


@pytest.mark.parametrize(("kind", "door"), [("mcp-2", "mcp"), ("mcp-1", "mcp"), ("py", "sse"), ("ts", "ws")])
def test_mcp_clients_call(gateway: Gateway, kind: agent_communication.Client, door: str) -> None:
    step = "--tool" if kind.startswith("mcp") else "--run"
    url = f"{gateway.url}/agent-communication/{door}"
    url = url.replace("https", "wss") if door == "ws" else url
    lines = agent_communication.client(kind, step, 'writer {"message": "the tides"}', url=url)
    op = "tools/call" if step == "--tool" else "agents/run"
    assert agent_communication.results(lines, op), lines


def test_agent_context_lists_the_agents(gateway: Gateway) -> None:
    lines = agent_communication.client("mcp-2", "--do", "tools", url=f"{gateway.url}/agent-context")
    assert agent_communication.results(lines, "tools/list"), lines


def test_the_command_line_reaches_it_by_ssl_cert_file(gateway: Gateway, tmp_path: Path) -> None:
    told = interlingua("agents", "--gateway", gateway.url)
    assert (told.returncode, "writer" in told.stdout) == (0, True), told.stderr
    ran = interlingua("run", "writer", "the tides", "--gateway", gateway.url, "--files", str(tmp_path / "made"))
    assert ran.returncode == 0 and list((tmp_path / "made").iterdir()), ran.stderr


def test_a_gateway_that_nobody_vouches_for_is_not_spoken_to(gateway: Gateway, tmp_path: Path) -> None:
    strange, _ = authority(tmp_path, "strange")
    for command in (["agents"], ["run", "writer", "hello"], ["stdio", "writer"]):
        done = interlingua(*command, "--gateway", gateway.url, env=trusting(strange))
        assert done.returncode == 1 and "no TLS connection could be made to" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
