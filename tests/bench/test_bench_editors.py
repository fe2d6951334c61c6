"""The benchmark of editors works: every figure is there, every chunk came. How fast is not asked here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from bench import sizes
from bench.agent_client import report as editors
from bench.agent_client.editor import asking
from bench.agent_client.measure import WAYS
from bench.chunks import Pieces
from bench.http import Failed
from bench.rounds import in_rounds
from bench.rpc.wires import Socket
from bench.stage import EDITORS_AGENT, ROOT
from bench.stamp import CHUNK, stamp
from tests.bench.conftest import Benchmark, ask, heard, tell
from tests.support.aio import run

TINY = sizes.TINY.editors
PACED = [f"paced_{count}" for count in TINY.sessions]
FLOODS = [f"flood_{count}" for count, _ in TINY.floods]


@pytest.fixture(scope="module")
def ran(benchmark: Benchmark) -> tuple[dict[str, Any], str]:
    return benchmark("agent_client")


def test_every_figure_is_measured_each_way(ran: tuple[dict[str, Any], str]) -> None:
    figures = ran[0]["figures"]["agent_client"]
    for way in WAYS:
        for name in PACED:
            assert figures[name][way]["p50"] > 0, (name, way)
            assert way == "direct" or isinstance(figures[name]["added_ms"][way], float)
        for name in FLOODS:  # on a slow machine nothing may have come in time, but then later
            assert isinstance(figures[name][way]["per_second"], float), (name, way)
            assert isinstance(figures[name][way]["messages_per_second"], float), (name, way)
            assert all(turns[way]["all"] > 0 for turns in figures[name]["rounds"]), (name, way)
    for way in editors.FIRSTS:
        assert 0 < figures["first"][way]["initialized"] < figures["first"][way]["made"] < figures["first"][way]["chunk"]
    assert figures["memory"]["busy_mb"] > 10


def test_every_chunk_of_every_session_came_each_way(ran: tuple[dict[str, Any], str]) -> None:
    for count in TINY.sessions:
        for turns in ran[0]["figures"]["agent_client"][f"paced_{count}"]["rounds"]:
            assert {way: turn["chunks"] for way, turn in turns.items()} == dict.fromkeys(WAYS, count * TINY.chunks)


def test_the_processes_between_editor_and_agent_are_the_ones_whose_time_is_told(
    ran: tuple[dict[str, Any], str],
) -> None:
    for name in (*PACED, *FLOODS):
        costs = ran[0]["figures"]["agent_client"][name]["costs"]
        assert costs["direct"]["cores"]["between"] is None
        if sys.platform == "linux":
            for way in WAYS[1:]:
                assert costs[way]["cpu_us"] > 0, (name, way)
            for way in WAYS[:-1]:
                assert costs[way]["cores"]["agent"] > 0, (name, way)


# --- the agent ---------------------------------------------------------------------------------------------------


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[bytes]]:
    """One with a session, `sess_000000000001`."""
    with subprocess.Popen(EDITORS_AGENT, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert ask(process, 0, "initialize")["result"]["protocolVersion"] == 1
            made = ask(process, 1, "session/new", cwd="/", mcpServers=[])["result"]
            assert made == {"sessionId": "sess_000000000001", "_meta": {"pid": process.pid}}
            yield process
        finally:
            process.kill()


def prompt(agent: subprocess.Popen[bytes], text: str) -> None:
    tell(agent, "session/prompt", 2, sessionId="sess_000000000001", prompt=[{"type": "text", "text": text}])


def chunk(message: dict[str, Any]) -> str:
    assert message["method"] == "session/update"
    assert message["params"]["sessionId"] == "sess_000000000001"
    update = message["params"]["update"]
    assert update["sessionUpdate"] == "agent_message_chunk"
    text: str = update["content"]["text"]
    return text


@pytest.mark.parametrize("pace", [0.0, 0.001])
def test_the_agent_says_as_many_chunks_as_it_is_asked_for_and_when(agent: subprocess.Popen[bytes], pace: float) -> None:
    before = stamp()
    prompt(agent, asking(3, pace))
    said = [chunk(heard(agent)).encode() for _ in range(3)]
    assert {len(one) for one in said} == {CHUNK}
    stamps = [before, *said, stamp()]
    assert stamps == sorted(stamps)
    assert heard(agent) == {"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "end_turn"}}


def test_the_agent_repeats_a_prompt_that_asks_for_no_chunks(agent: subprocess.Popen[bytes]) -> None:
    prompt(agent, 'Say "no"')
    assert chunk(heard(agent)) == 'Say "no"'
    assert heard(agent)["result"] == {"stopReason": "end_turn"}


def test_a_cancelled_prompt_is_answered_so_and_says_no_more(agent: subprocess.Popen[bytes]) -> None:
    prompt(agent, asking(1000, 3600.0))
    tell(agent, "session/cancel", sessionId="sess_000000000001")
    while (message := heard(agent)).get("id") != 2:
        chunk(message)
    assert message["result"] == {"stopReason": "cancelled"}
    assert ask(agent, 3, "nonsense")["error"]["code"] == -32601


# --- the editors -------------------------------------------------------------------------------------------------


def test_chunks_that_come_in_one_message_are_counted_one_by_one() -> None:
    reader = Pieces()
    text = b"".join(b"%019d " % ns for ns in (1_000_000, 2_000_000, 3_000_000))
    reader.piece(b"<" + text + b">", 1, 61, 5_000_000)
    assert reader.sent == [1_000_000, 2_000_000, 3_000_000]
    assert reader.latency == [4.0, 3.0, 2.0]
    assert (reader.snapshots, reader.bytes) == (1, 62)


def test_a_message_that_cuts_a_chunk_is_not_believed() -> None:
    with pytest.raises(Failed):
        Pieces().piece(stamp() + stamp(), 0, 21, 0)


class Wire:
    """What a socket writes to."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def frame(kind: int, data: bytes) -> bytes:
    size = len(data)
    if size < 126:
        return bytes((kind, size)) + data
    return bytes((kind, 126)) + size.to_bytes(2, "big") + data


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_messages_of_a_socket_are_read_whatever_pieces_they_come_in(step: int) -> None:
    async def work() -> tuple[list[bytes], bytes]:
        messages: list[bytes] = []
        wire, lost = Wire(), list[str]()
        socket = Socket(messages.extend, lost.append, "ws://127.0.0.1:1/agent-client/editor")
        socket.connection_made(wire)  # type: ignore[arg-type]
        hello, wire.written = wire.written, b""
        assert hello.startswith(b"GET /agent-client/editor HTTP/1.1\r\n")
        data = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
        data += frame(0x81, b"{}") + frame(0x89, b"ping") + frame(0x81, b"x" * 300) + frame(0x81, b"")
        for at in range(0, len(data), step):
            socket.data_received(data[at : at + step])
        assert not lost
        return messages, wire.written

    messages, written = run(work())
    assert messages == [b"{}", b"x" * 300, b""]
    assert written == b"\x8a\x84\0\0\0\0ping"


def test_each_way_is_first_in_some_round_and_no_round_is_begun_too_late() -> None:
    order: list[str] = []

    def turn(way: str) -> dict[str, Any]:
        order.append(way)
        return {}

    assert len(in_rounds("abc", 3, float("inf"), turn)) == 3
    assert "".join(order) == "abcbcacab"
    assert len(in_rounds("abc", 3, 0.0, turn)) == 1
