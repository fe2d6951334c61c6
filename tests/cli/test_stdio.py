"""`interlingua stdio`: nothing but the protocol on standard output, whatever standard input and output are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import interlingua
from tests.support.processes import ROOT, Gateway, free_port

HELLO = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}).encode()
LINES = b"\n".join((HELLO, b"no json at all", HELLO.replace(b'"id": 0', b'"id": "last"'), b""))


@pytest.fixture
def routes(tmp_path: Path) -> Path:
    file = tmp_path / "routes.yaml"
    file.write_text("routes: [{name: parrot, target: {protocol: example, url: 'http://127.0.0.1:9'}}]\n")
    return file


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "gateway", "stdio", *args]


def stdio(*args: str, stdin: bytes = b"", stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    argv = command(*args)
    return subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=stderr, cwd=ROOT, timeout=150, check=False)


def answers(said: bytes) -> dict[Any, Any]:
    """By id; each line must be JSON."""
    return {answer.get("id"): answer for answer in map(json.loads, said.splitlines())}


def test_it_answers_each_line_and_ends_with_its_input(routes: Path) -> None:
    done = stdio("parrot", "--routes", str(routes), "--log-level", "debug", stdin=LINES)
    assert done.returncode == 0, done.stderr
    said = answers(done.stdout)
    assert said[0]["result"]["agentInfo"]["name"] == "parrot"
    assert said[None]["error"]["code"] == -32700
    assert said["last"]["result"]["protocolVersion"] == 1
    assert b"DEBUG" in done.stderr, "the log goes to standard error"


def test_files_do_as_standard_input_and_output(routes: Path, tmp_path: Path) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_bytes(LINES)
    with source.open("rb") as stdin, sink.open("wb") as stdout:
        argv = command("parrot", "--routes", str(routes))
        done = subprocess.run(argv, stdin=stdin, stdout=stdout, cwd=ROOT, timeout=150, check=False)
    assert done.returncode == 0
    assert set(answers(sink.read_bytes())) == {0, None, "last"}


def test_both_outputs_in_one_pipe_do_too(routes: Path) -> None:
    done = stdio("parrot", "--routes", str(routes), stdin=LINES, stderr=subprocess.STDOUT)
    assert set(answers(done.stdout)) == {0, None, "last"}


def test_an_unknown_agent_is_named_with_those_there_are(routes: Path) -> None:
    done = interlingua("stdio", "nobody", "--routes", str(routes))
    assert done.returncode == 2 and not done.stdout
    assert "nobody" in done.stderr and "have parrot" in done.stderr


@pytest.mark.parametrize("protocol", ["agent_client", "agent_communication", "agent_context"])
def test_so_is_one_that_a_running_gateway_lacks_before_anything_is_open(protocol: str, gateway: Gateway) -> None:
    done = interlingua("stdio", "nobody", "--protocol", protocol, "--gateway", gateway.url, stdin=LINES)
    assert done.returncode == 2 and not done.stdout
    assert "no agent nobody; there are mailcomposer, reporter, gone" in done.stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--routes", "x.yaml", "--gateway", "http://127.0.0.1:9"), "not both"),
        (("--routes", "/no/such/routes.yaml"), "/no/such/routes.yaml"),
        (("--protocol", "example", "--gateway", "http://127.0.0.1:9"), "have agent_client"),
    ],
)
def test_a_wrong_use_is_told_in_a_line(args: tuple[str, ...], told: str) -> None:
    done = interlingua("stdio", *args)
    assert done.returncode == 2 and not done.stdout
    assert told in done.stderr and "Traceback" not in done.stderr


def test_a_gateway_that_is_not_there_is_told(routes: Path) -> None:
    done = interlingua("stdio", "parrot", "--gateway", f"http://127.0.0.1:{free_port()}", stdin=LINES)
    assert done.returncode == 1 and not done.stdout
    assert "could be made" in done.stderr or "refused" in done.stderr
    assert "Traceback" not in done.stderr
