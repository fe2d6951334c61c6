"""The recorded conversation of the real SDKs, played back to the outbound half."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from pathlib import Path
from urllib.parse import urlsplit

from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.outbound import AgentProtocolOutbound
from gateway.core import events as e
from tests.adapters.agent_protocol.support import AGENT
from tests.adapters.agent_protocol.test_outbound import plans, texts
from tests.support import raw_http
from tests.support.context import context

CAPTURE = Path(__file__).parents[2] / "peers" / "captures" / "e2b-py-client_py-server.txt"
TASK = "83b110e8-561c-4c07-ad8d-9dd932f53744"
_BLOCK = re.compile(r"^-- \[\d+ [\d.]+\] (>>>|<<<) \w+ (?:\d+ bytes|EOF)\n", re.MULTILINE)

Recorded = dict[tuple[str, str], deque[tuple[str, str, bytes]]]


def recorded() -> Recorded:
    """Status, content type and body of every answer, in order, by method and path."""
    _, *parts = _BLOCK.split(CAPTURE.read_text(encoding="utf-8"))
    found: Recorded = defaultdict(deque)
    asked, head = ("", ""), ""
    for direction, text in zip(parts[::2], parts[1::2], strict=True):
        if direction == ">>>" and text.strip():
            method, target, _ = text.split(" ", 2)
            asked = (method, urlsplit(target).path)
        elif text.startswith("HTTP/1.1"):
            head = text
        elif direction == "<<<" and text.strip():
            kind = re.search(r"content-type: (\S+)", head)
            found[asked].append((head.split()[1], kind[1] if kind else "", text.removesuffix("\n").encode()))
    return found


async def test_a_run_against_what_was_recorded_says_what_the_agent_said() -> None:
    answers = recorded()

    async def handle(exchange: raw_http.Exchange) -> None:
        queue = answers.get((exchange.method, urlsplit(exchange.target).path))
        if not queue:
            await exchange.answer(b'{"message":"not recorded"}', "404 X", Content_Type="application/json")
            return
        status, kind, body = queue.popleft() if len(queue) > 1 else queue[0]
        await exchange.answer(body, f"{status} X", Content_Type=kind)

    async with raw_http.serving(handle) as server:
        outbound = AgentProtocolOutbound(AgentProtocolTarget(protocol="agent_protocol", url=server.url))
        try:
            await outbound.describe()
            made = context(AGENT, "Write 'Hello world!' to hi.txt.")
            await outbound.run(made)
        finally:
            await outbound.aclose()
    assert texts(made) == ["out 1: 1", "out 2: 2", "out 3: 3"]
    names = ["Write 'Hello world!' to hi.txt.", "Next 1", "Next 2"]
    assert plans(made) == [[(name, "completed") for name in names]]
    assert isinstance(made.end, e.RunFinished)
    assert made.run.upstream is not None
    assert made.run.upstream["task_id"] == TASK
    assert made.run.upstream["artifacts"] == ["914543b6-be21-4064-958a-95314360ed33"]
    assert made.losses == {"artifact_unavailable": 1}  # it was never downloaded, so it is not in the recording


def test_the_recording_holds_the_quirks_that_are_dealt_with() -> None:
    answers = recorded()
    steps = answers["POST", f"/ap/v1/agent/tasks/{TASK}/steps"]
    assert (steps[-1][0], steps[-1][2]) == ("500", b"Internal Server Error")
    assert answers["GET", f"/ap/v1/agent/tasks/{TASK}/artifacts"][0][2].startswith(b"[")
    assert b'"total_pages":0' in answers["GET", f"/ap/v1/agent/tasks/{TASK}/steps"][0][2]
    assert answers["GET", f"/ap/v1/agent/tasks/{TASK}/steps/nope"][0][0] == "200"
