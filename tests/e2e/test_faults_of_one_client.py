"""What one client's prompts do to an agent is not the other clients' trouble, nor theirs to know."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.support.processes import Gateway
from tests.support.serving import Quiet, in_a_thread

FRAGILE = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    said = {"initialize": {"protocolVersion": 1, "agentCapabilities": {}}, "session/new": {"sessionId": "s"}}
    if asked["method"] == "session/prompt" and "poison" in line:
        sys.exit("KeyError: of the prompt")
    if "id" in asked:
        result = said.get(asked["method"], {"stopReason": "end_turn"})
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@contextmanager
def answering(status: int, said: str) -> Iterator[str]:
    """An Agent Protocol agent that takes tasks and answers a step with this if its input is "poison"; with status 0
    nothing that says so."""
    over = threading.Event()

    class Handler(Quiet):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
            step = self.path.endswith("/steps") or not status
            bad = step and "poison" in json.dumps(asked)
            made = {"task_id": "t", "step_id": "s", "output": "well", "status": "completed", "is_last": True}
            if bad and not status:
                over.wait()
                return
            body = said if bad else json.dumps({**asked, **made, "artifacts": []})
            self._answer(status if bad else 200, "text/plain" if bad else "application/json", body)

        def do_GET(self) -> None:
            pages = {"total_items": 0, "total_pages": 0, "current_page": 1, "page_size": 1}
            self._answer(200, "application/json", json.dumps({"tasks": [], "pagination": pages}))

        def _answer(self, status: int, kind: str, body: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

    with in_a_thread(Handler) as url:
        try:
            yield url
        finally:
            over.set()


def served(target: dict[str, Any], folder: Path, **more: Any) -> Gateway:
    route = {"name": "agent", "target": target, "breaker": {"failures": 2, "first": 600}, **more}
    return Gateway(json.dumps({"routes": [route]}), folder)


def asked(gateway: Gateway, message: str) -> Any:
    body = {"agent_id": "agent", "input": {"message": message}}
    with httpx2.Client(base_url=f"{gateway.url}/agent-connect", timeout=60) as client:
        said = client.post("/runs/wait", json=body).json()
    return said["output"] if isinstance(said, dict) and "output" in said else said


def test_prompts_of_which_a_program_dies_do_not_take_it_from_the_others(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FRAGILE]
    with served({"protocol": "agent_client", "command": command}, tmp_path) as gateway:
        for _ in range(2):
            assert "exited with 1: KeyError: of the prompt" in asked(gateway, "poison")["description"]
        assert asked(gateway, "hello")["type"] == "result"


def test_prompts_that_a_server_never_answers_do_not_take_it_from_the_others(tmp_path: Path) -> None:
    target = {"protocol": "agent_protocol"}
    with answering(0, "") as url, served({**target, "url": url}, tmp_path, timeout="1s") as gateway:
        for _ in range(3):
            assert "1" in asked(gateway, "poison")["description"]
        assert asked(gateway, "hello")["type"] == "result"


def test_an_agent_that_takes_no_more_for_now_is_there(tmp_path: Path) -> None:
    with answering(429, "slow down") as url, served({"protocol": "agent_protocol", "url": url}, tmp_path) as gateway:
        for _ in range(2):
            assert "429 to a step: slow down" in asked(gateway, "poison")["description"]
        assert asked(gateway, "hello")["type"] == "result"


def test_clients_are_not_told_what_the_runs_of_others_failed_of(tmp_path: Path) -> None:
    said = "no service for 'the secret of ana'"
    with answering(502, said) as url, served({"protocol": "agent_protocol", "url": url}, tmp_path) as gateway:
        for _ in range(2):
            assert said in asked(gateway, "poison")["description"]
        refused = json.dumps(asked(gateway, "hello"))
        assert "agent agent is not there (its runs were lost); try again in" in refused
        assert "secret" not in refused
