"""`run` with an Agent Context agent that acknowledges a message, and has no way to say the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import interlingua
from tests.support.serving import Quiet, in_a_thread

CAPABILITIES = {"agent": {"messages": True, "protocols": ["ACP-0.1"]}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": {"name": "curt", "version": "1"}}


@contextmanager
def curt(session: str) -> Iterator[str]:
    """An agent over HTTP without a stream of its own, which answers every message with `{}`; its address."""

    class Handler(Quiet):
        def do_POST(self) -> None:
            asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
            unknown = {"error": {"code": -32601, "message": "not here"}}
            said = {"initialize": {"result": HELLO}, "agent/message": {"result": {}}}.get(asked["method"], unknown)
            body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}) if "id" in asked else ""
            self.send_response(200 if body else 202)
            if session:
                self.send_header("mcp-session-id", session)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_GET(self) -> None:
            self.send_error(405)

    with in_a_thread(Handler) as url:
        yield url


@pytest.mark.parametrize("session", ["", "s1"])
def test_a_run_that_nothing_can_come_of_any_more_ends(session: str, tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    with curt(session) as url:
        file.write_text(f"routes: [{{name: curt, timeout: 30s, target: {{protocol: agent_context, url: '{url}'}}}}]\n")
        done = interlingua("run", "curt", "hello", "--routes", str(file))
    assert done.returncode == 1
    assert "the agent acknowledges the message, and has no connection to say more on" in done.stderr
