"""Terminals of agents of version 2 as clients of version 1 are shown them: a text in the call that has the terminal."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec import updates_out_v1 as updates_out
from adapters.agent_client.codec.v2 import updates
from adapters.agent_client.codec.v2.memory import LIMIT, TERMINALS, SessionMemory, transcript
from adapters.agent_client.codec.v2.updates_in import V2SpokenSession
from gateway.core import delta
from gateway.core import events as e
from tests.adapters.agent_client.codec_cases import dumped, unhurried, valid
from tests.adapters.agent_client.codec_v2_cases import read, written
from tests.adapters.agent_client.test_codec_v2_for_v1 import Heard

SHOWS = {"type": "terminal", "terminalId": "t"}


def call(id: str = "c", **said: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id, **said}


def upsert(**said: Any) -> dict[str, Any]:
    return {"sessionUpdate": "terminal_update", "terminalId": "t", **said}


def based(data: bytes) -> str:
    return base64.b64encode(data).decode()


def prints(*pieces: bytes) -> list[dict[str, Any]]:
    return [{"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": based(piece)} for piece in pieces]


def heard(*updates: Any, known: SessionMemory | None = None) -> Heard:
    """What a client of version 1 is told; one of version 2 is told what was said, and not a word more."""
    events = read(updates, known)
    assert [json.loads(json.dumps(each)) for each in updates] == written(events)
    return Heard(events)


def shown(told: Heard, id: str = "c") -> list[str]:
    """What the client has of the call in the end."""
    content = [each["content"] for each in told.updates if each.get("toolCallId") == id and "content" in each][-1]
    return [item["content"]["text"] for item in content]


def test_it_stands_where_the_terminal_stands_among_the_other_content() -> None:
    text = {"type": "content", "content": {"type": "text", "text": "before"}}
    piece = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": {**SHOWS, "_meta": {"a": 1}}}
    told = heard(call(title="x", content=[text]), piece, *prints(b"hi"), call(status="completed"))
    assert shown(told) == ["before", "```console\nhi\n```"]
    assert told.updates[-2]["content"][1]["_meta"] == {"a": 1}
    assert not told.losses


def test_null_clears_what_is_left_out_stays_and_a_value_replaces() -> None:
    says = [upsert(command="a", cwd="/w", output={"data": based(b"old")}, exitStatus={"signal": "SIGTERM"})]
    told = heard(call(title="x", content=[SHOWS]), *says)
    assert shown(told) == ["```console\n/w $ a\nold\n[ended by SIGTERM]\n```"]
    says.append(upsert(_meta={"x": 1}))
    says.append(upsert(command=None, exitStatus=None, output={"data": based(b"new")}))
    says += prints(b" more")
    assert shown(heard(call(title="x", content=[SHOWS]), *says)) == ["```console\nnew more\n```"]
    says.append(upsert(output=None, cwd=None, exitStatus={}))
    assert shown(heard(call(title="x", content=[SHOWS]), *says)) == ["```console\n[ended]\n```"]
    assert shown(heard(call(title="x", content=[SHOWS]), upsert(output=None))) == []


def test_it_is_told_as_it_grows_ever_more_rarely_and_all_of_it_in_the_end() -> None:
    lines = [b"%05d %s\n" % (number, b"x" * 93) for number in range(250)]
    told = heard(call(title="x", status="in_progress", content=[SHOWS]), *prints(*lines))
    sizes = [len(json.dumps(each)) for each in told.updates]
    assert 20 < len(sizes) < 60 and sizes == sorted(sizes)
    assert shown(told) == [f"```console\n{b''.join(lines).decode().strip()}\n```"]
    assert not told.losses


def test_an_output_that_is_said_whole_each_time_is_told_as_rarely_and_what_changes_nothing_is_not() -> None:
    whole = [b"".join(b"%05d\n" % number for number in range(count)) for count in range(0, 800, 10)]
    told = heard(call(title="x", content=[SHOWS]), *(upsert(output={"data": based(each)}) for each in whole))
    assert 20 < len(told.updates) < 70 and "00789" in shown(told)[0]
    again = [upsert(output={"data": based(whole[-1])}), upsert(_meta={"a": 1}), upsert()]
    more = heard(call(title="x", content=[SHOWS]), *(upsert(output={"data": based(each)}) for each in whole), *again)
    assert more.updates == told.updates
    shorter = heard(call(title="x", content=[SHOWS]), *prints(b"ab"), upsert(output={"data": based(b"a")}))
    assert shown(shorter) == ["```console\na\n```"]


def test_of_a_long_output_the_newest_is_kept_and_what_is_not_is_counted_once() -> None:
    lines = [b"%05d %s\n" % (number, b"x" * 993) for number in range(200)]
    pieces = [b"".join(lines[at : at + 10]) for at in range(0, 200, 10)]
    told = heard(call(title="x", content=[SHOWS]), *prints(*pieces), upsert(exitStatus={"exitCode": 0}))
    text = shown(told)[0].split("\n")
    assert text[1] == f"[{sum(map(len, lines[:-65]))} bytes before this are left out]"
    assert text[2].startswith("00135") and text[-2] == "[exit code 0]" and len("\n".join(text)) < LIMIT
    assert told.losses == {"terminal": 1}


def test_what_no_call_shows_is_counted_when_the_run_ends() -> None:
    told = heard(*prints(b"a", b"b"), upsert(command="ls"), call(title="x", content=[{"type": "terminal"}]))
    assert told.losses == {"terminal": 2}, "one terminal, and one that has no id"
    replaced = heard(call(title="x", content=[SHOWS]), *prints(b"a"), call(content=[]), *prints(b"b"))
    assert shown(replaced) == [] and replaced.losses == {"terminal": 1}


def test_a_terminal_goes_on_when_its_call_has_ended_also_between_runs_and_in_the_next() -> None:
    known = SessionMemory()
    first = heard(call(title="x", content=[SHOWS]), call(status="completed"), *prints(b"1"), known=known)
    assert first.updates[-1] == {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": first_text("1")}
    [note] = V2SpokenSession(known).stray(dumped(prints(b"2")[0]))
    assert json.loads(updates_out.update(note.data)) == valid("SessionUpdate", {**call(), "content": first_text("12")})
    assert updates.told(note) == prints(b"2")[0]
    events = read(prints(b"3"), known)
    assert not any(isinstance(event, e.ToolCallStarted) for event in events), "it is no call of that run"
    assert shown(Heard(events)) == ["```console\n123\n```"] and written(events) == prints(b"3")
    read([upsert(exitStatus={})], known)
    assert not shown_at_all(read(prints(b"4"), known)), "it is over, and so is its call"


def first_text(text: str) -> list[Any]:
    return [{"type": "content", "content": {"type": "text", "text": f"```console\n{text}\n```"}}]


def shown_at_all(events: list[e.Event]) -> list[Any]:
    return Heard(events).updates


def test_only_so_many_terminals_are_remembered() -> None:
    known = SessionMemory()
    for number in range(3 * TERMINALS):
        known.told({**prints(b"x")[0], "terminalId": str(number)})
    assert known.unsaid() == TERMINALS and known.unsaid() == 0


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "red xlink"),
        (b"10%\r50%\r100%\ndone\r\n\r\n", "100%\ndone"),
        ("caf\u00e9 \u20ac".encode()[:-1], "caf\u00e9 "),
        (b"a\xffb\x00\x07\x08c\td", "a\ufffdbc\td"),
        (b"\x1b(Bx\x1b", "x"),
        (b"one\x1b]never ends\ntwo", "one\ntwo"),
        (b"```\nx", "```\nx"),
        (b"", ""),
    ],
)
def test_a_transcript_is_text_without_control_sequences(data: bytes, text: str) -> None:
    assert transcript(data) == text


@pytest.mark.parametrize("piece", [b"\x1b]", b"\x1b[", b"\r", b"a\r", b"\x1b[0", b"\x1bP\x1b", b"x", b"\xe2\x82"])
def test_no_output_takes_long_to_read(piece: bytes) -> None:
    begun = time.process_time()
    transcript(piece * (LIMIT // len(piece)))
    assert time.process_time() - begun < 2


@unhurried
@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"\x1b[31m", b"\r\n", "\u20ac".encode()]), max_size=8))
def test_however_output_is_cut_the_same_is_shown(pieces: list[bytes]) -> None:
    def last(*pieces: bytes) -> str:
        known = SessionMemory()
        known.told(call(title="x", content=[SHOWS]))
        for said in prints(*pieces):
            known.told(said)
        told, lost = known.told(upsert(exitStatus={}))
        assert told is not None and not lost
        text: str = told["content"][0]["content"]["text"]
        return text

    assert last(*pieces) == last(b"".join(pieces)) == delta.sound(last(*pieces))
    assert "\x1b" not in last(*pieces)


def test_data_that_is_none_is_nothing() -> None:
    bad = [{**prints(b"")[0], "data": data} for data in ("%%%", "a", 7, None)]
    assert shown(heard(call(title="x", content=[SHOWS]), *bad, *prints(b"ok"))) == ["```console\nok\n```"]


def test_what_terminals_that_never_end_have_said_is_not_kept_for_ever() -> None:
    known, last = SessionMemory(), f"{2 * TERMINALS - 1}"
    for number in range(2 * TERMINALS):
        known.told(call(f"{number}", status="completed", content=[{**SHOWS, "terminalId": f"{number}"}]))
        known.told(upsert(terminalId=f"{number}", command="sleep"))
        known.settle()
    assert sum(bool(each.items) for each in known._calls.values()) == TERMINALS
    told, _ = known.told(upsert(terminalId=last, exitStatus={"exitCode": 0}))
    assert told is not None and told["toolCallId"] == last
