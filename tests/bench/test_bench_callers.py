"""The benchmark of callers and of large documents works: every figure is there, every chunk came, every document was
whole. How fast is not asked here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bench import sizes
from bench.agent import Config, Input, Options, RunCreate, Stream
from bench.agent_communication.caller import Lengths
from bench.agent_communication.documents import CASES
from bench.agent_communication.measure import WAYS
from bench.agent_communication.routes import AGENT
from bench.agent_communication.wires import Events
from bench.stage import ROOT
from bench.stamp import CHUNK, stamp
from gateway.core.delta import ABSENT, combine
from tests.bench.conftest import Benchmark, ask, heard, tell
from tests.support.aio import run

TINY = sizes.TINY.callers
PACED = [f"paced_{count}" for count in TINY.calls]
RUSHES = [f"rush_{count}" for count, _ in TINY.rushes]


@pytest.fixture(scope="module")
def ran(benchmark: Benchmark) -> tuple[dict[str, Any], str]:
    return benchmark("agent_communication")


def test_every_figure_of_calls_is_measured_each_way(ran: tuple[dict[str, Any], str]) -> None:
    figures = ran[0]["figures"]["agent_communication"]
    for way in WAYS:
        for name in PACED:
            assert figures[name][way]["p50"] > 0, (name, way)
            assert way == "direct" or isinstance(figures[name]["added_ms"][way], float)
        for name in RUSHES:  # on a slow machine nothing may have come in time, but then later
            assert isinstance(figures[name][way]["per_second"], float), (name, way)
            assert isinstance(figures[name][way]["messages_per_second"], float), (name, way)
            assert all(turns[way]["all"] > 0 for turns in figures[name]["rounds"]), (name, way)


def test_every_chunk_of_every_call_came_each_way(ran: tuple[dict[str, Any], str]) -> None:
    for count in TINY.calls:
        for turns in ran[0]["figures"]["agent_communication"][f"paced_{count}"]["rounds"]:
            assert {way: turn["chunks"] for way, turn in turns.items()} == dict.fromkeys(WAYS, count * TINY.chunks)


def test_the_processes_between_client_and_agent_are_the_ones_whose_time_is_told(
    ran: tuple[dict[str, Any], str],
) -> None:
    for name in (*PACED, *RUSHES):
        costs = ran[0]["figures"]["agent_communication"][name]["costs"]
        assert costs["direct"]["cores"]["between"] is None
        if sys.platform == "linux":
            for way in WAYS:
                assert costs[way]["cores"]["agent"] > 0, (name, way)
                assert way == "direct" or costs[way]["cpu_us"] > 0, (name, way)


def test_every_document_came_whole_at_each_size_with_its_cost_a_byte(ran: tuple[dict[str, Any], str]) -> None:
    documents = ran[0]["figures"]["agent_communication"]["documents"]
    assert list(documents) == [case.name for case in CASES]
    for case in CASES:
        of = TINY.snapshots if case.name == "snapshots" else TINY.documents
        assert list(documents[case.name]["sizes"]) == [str(size) for size in of]
        for size in of:
            one = documents[case.name]["sizes"][str(size)]
            assert one["bytes"] >= size
            assert one["received"] >= size
            assert one["messages"] >= 1
            assert one["ns_document"] == pytest.approx(one["seconds"] / size * 1e9)
            assert one["ns_received"] == pytest.approx(one["seconds"] / one["received"] * 1e9)
            if sys.platform == "linux":
                assert one["cpu_ns_document"] > one["cpu_ns_received"] > 0
        assert all(len(grown) == len(of) - 1 for grown in documents[case.name]["growth"].values())


def test_snapshots_that_grow_by_20_bytes_send_more_than_those_that_grow_by_2_percent(
    ran: tuple[dict[str, Any], str],
) -> None:
    documents = ran[0]["figures"]["agent_communication"]["documents"]
    small, large = TINY.snapshots
    once, twice = (documents["snapshots"]["sizes"][str(size)]["received"] for size in (small, large))
    assert twice > 0.75 * once * (large / small) ** 2
    assert documents["steps"]["sizes"][str(TINY.documents[-1])]["received"] < 60 * TINY.documents[-1]


# --- the agents --------------------------------------------------------------------------------------------------


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(AGENT, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            answer = ask(process, 0, "initialize", protocolVersion="2025-11-25", capabilities={})
            assert answer["result"]["protocolVersion"] == "2025-11-25"
            tell(process, "notifications/initialized")
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["text", "list"])
@pytest.mark.parametrize(("pace", "burst"), [(0.0, 1), (0.0, 2), (0.001, 1)])
def test_the_deltas_of_an_agent_add_up_to_its_output(
    agent: subprocess.Popen[bytes], name: str, pace: float, burst: int
) -> None:
    given = {"chunks": 3, "pace": pace, "burst": burst}
    before = stamp()
    tell(agent, "agents/run", 1, name=name, input=given, _meta={"progressToken": "t1"})
    document: Any = ABSENT
    for _ in range(3):
        said = heard(agent)
        assert said["method"] == "notifications/agents/run/progress"
        assert said["params"]["progressToken"] == "t1"
        document = combine(document, said["params"]["delta"])
    assert heard(agent) == {"jsonrpc": "2.0", "id": 1, "result": {"output": document}}
    text = "".join(document.get("items", ())) or document["message"]
    stamps = [before, *(text[at : at + CHUNK].encode() for at in range(0, len(text), CHUNK)), stamp()]
    assert len(stamps) == 5
    assert stamps == sorted(stamps)


def test_an_agent_tells_nothing_on_the_way_to_who_asked_for_no_progress(agent: subprocess.Popen[bytes]) -> None:
    answer = ask(agent, 1, "agents/run", name="text", input={"chunks": 2, "who": True})
    assert answer["result"]["output"] == {"message": f"{agent.pid:019d} " * 2}


def test_a_cancelled_call_is_answered_so_and_says_no_more(agent: subprocess.Popen[bytes]) -> None:
    given = {"chunks": 1000, "pace": 3600.0}
    tell(agent, "agents/run", 1, name="text", input=given, _meta={"progressToken": "t1"})
    tell(agent, "notifications/cancelled", requestId=1)
    while (message := heard(agent)).get("id") != 1:
        pass
    assert message["error"]["code"] == -32800
    assert ask(agent, 2, "agents/run", name="nobody")["error"]["code"] == -32601


class Connection:
    """What a Stream of the Agent Connect agent writes to."""

    closed = full = False

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def begin(self, content_type: bytes, *, at_once: bool) -> None:
        assert not at_once
        assert content_type == b"text/event-stream"

    def chunk(self, data: bytes, *, last: bool) -> None:
        self.lengths += [len(json.loads(line[6:])["values"]["message"]) for line in _data(data)]
        self.closed = last


def _data(events: bytes) -> Sequence[bytes]:
    return [line for line in events.split(b"\n") if line.startswith(b"data: ")]


def test_snapshots_grow_by_a_share_of_what_is_there_and_end_with_what_was_asked_for() -> None:
    connection = Connection()

    async def work() -> None:
        options = Options(chunks=100, burst=1000, growth=0.5)
        Stream(connection, RunCreate(Input(), Config(options)))  # type: ignore[arg-type]

    run(work())
    assert [length // CHUNK for length in connection.lengths] == [1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 94, 100]
    assert connection.closed


# --- the clients -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_messages_of_a_stream_are_read_whatever_pieces_they_come_in(step: int) -> None:
    messages: list[bytes] = []
    events = Events(messages.extend)
    data = b'id: 1-0\ndata: \n\n: keep-alive\n\nid: 1-1\nevent: message\ndata: {"a":1}\n\ndata: {"b":2}\n\n'
    for at in range(0, len(data), step):
        events.feed(data[at : at + step])
    events.close()
    assert messages == [b'{"a":1}', b'{"b":2}']


def test_an_answer_that_is_no_stream_is_one_message() -> None:
    messages: list[bytes] = []
    events = Events(messages.extend)
    events.feed(b'{"id":')
    events.feed(b"1}")
    assert not messages
    events.close()
    assert messages == [b'{"id":1}']


def test_a_document_is_as_long_as_its_deltas_together() -> None:
    reader = Lengths()
    reader.piece(b"<abc>", 1, 4, 0)
    reader.piece(b"<>", 1, 1, 0)
    assert (reader.length, reader.snapshots, reader.bytes) == (3, 2, 7)
