"""What every inbound half owes its clients, through a gateway process: ids, limits, errors, watching, leaving."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx2
import pytest

from gateway import registry
from tests.contract.speakers import LEAVING, SPEAKERS, Speaker, pieces
from tests.matrix.agents import routes
from tests.matrix.clients import CLIENTS
from tests.support.processes import Gateway, free_port

LIMIT = 3000
SLOW = "agent_connect-slow"
UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INBOUND = sorted(SPEAKERS)
CONVERSING = {"agent_client", "agent_communication", "agent_context"}
"""Protocols of two-way connections, which have no ids of runs and no requests to repeat: their own suites tell these
stories (tests/adapters/NAME).
"""
every = pytest.mark.parametrize("inbound", INBOUND)
HOSTILE = ["nope", "%2e%2e%2fetc", "a%2Fb", "%00", "%ff", "%F0%9F%92%A9", "x" * 2000, "' or 1=1 --", "*", "{}"]


@pytest.fixture(scope="module")
def gateway(urls: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    dead = f"  - {{name: dead, target: {{protocol: agent_connect, url: http://127.0.0.1:{free_port()}}}}}\n"
    text = f"{routes(**urls)}{dead}limits: {{body: {LIMIT}}}\n"
    with Gateway(text, tmp_path_factory.mktemp("contract")) as running:
        yield running


@pytest.fixture(scope="module")
def speakers(gateway: Gateway) -> Iterator[dict[str, Speaker]]:
    """One client of each protocol, all of the same agent."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(kind(gateway.url, "example-echo")) for name, kind in SPEAKERS.items()}


@contextmanager
def another(gateway: Gateway, inbound: str, agent: str) -> Iterator[Speaker]:
    with SPEAKERS[inbound](gateway.url, agent) as speaker:
        yield speaker


def refused(speaker: Speaker, answer: httpx2.Response, *statuses: int) -> str:
    """The words of a refusal, which has the status and the shape that it should have."""
    asked = f"{answer.request.method} {answer.request.url}"
    assert answer.status_code in statuses, (asked, answer.status_code, answer.text)
    assert answer.headers["content-type"].startswith("application/json"), (asked, answer.headers)
    text = speaker.complaint(answer)
    assert text and "Traceback" not in text
    return text


def test_there_is_a_speaker_for_every_inbound_half() -> None:
    served = {name for name, adapter in registry.scan().items() if adapter.serve}
    assert set(INBOUND) | CONVERSING == served == set(CLIENTS)
    assert {inbound for inbound, _, _ in LEAVING} == set(INBOUND)


@every
def test_an_agent_that_nobody_has_is_not_found_by_name(gateway: Gateway, inbound: str) -> None:
    with another(gateway, inbound, "nobody") as speaker:
        assert "nobody" in refused(speaker, speaker.ask(*speaker.whole("x")), 404)


@every
def test_what_nothing_has_the_id_of_is_not_found(speakers: dict[str, Speaker], inbound: str) -> None:
    speaker = speakers[inbound]
    asked = speaker.unknown()
    assert asked
    for method, path, body in asked:
        refused(speaker, speaker.ask(method, path, body), 404)


@every
@pytest.mark.parametrize("ident", HOSTILE, ids=lambda text: text[:12])
def test_an_id_that_is_none_is_refused_and_goes_nowhere(speakers: dict[str, Speaker], inbound: str, ident: str) -> None:
    speaker = speakers[inbound]
    for method, path, body in speaker.unknown():
        before, _, after = path.rpartition(UUID.findall(path)[-1])
        refused(speaker, speaker.ask(method, f"{before}{ident}{after}", body), 404, 405, 422)


@every
@pytest.mark.parametrize("body", [b"{", b"[]", b"null and void", b'{"input": ', b"\xff\xfe", b'"text"', b"[" * 2000])
def test_a_body_that_is_not_the_protocols_is_refused(speakers: dict[str, Speaker], inbound: str, body: bytes) -> None:
    speaker = speakers[inbound]
    method, path, _ = speaker.whole("x")
    refused(speaker, speaker.post(method, path, body), 400, 422)


@every
@pytest.mark.parametrize("value", [5, None, [], {"a": 1}, True, "text"], ids=str)
def test_values_of_wrong_types_are_refused_or_taken_but_break_nothing(
    speakers: dict[str, Speaker], inbound: str, value: object
) -> None:
    speaker = speakers[inbound]
    method, path, body = speaker.whole("x")
    for key in [*body, "additional_input", "metadata", "config", "thread", "stream_mode"]:
        answer = speaker.ask(method, path, {**body, key: value})
        if answer.status_code != 200:
            refused(speaker, answer, 404, 422)


@every
@pytest.mark.parametrize("announced", [True, False], ids=["announced", "chunked"])
def test_a_body_over_the_limit_is_too_large(speakers: dict[str, Speaker], inbound: str, announced: bool) -> None:
    speaker = speakers[inbound]
    method, path, body = speaker.whole("x" * LIMIT)
    data = json.dumps(body).encode()
    refused(speaker, speaker.post(method, path, data if announced else pieces(data)), 413)
    assert speaker.ask(*speaker.whole("x" * (LIMIT - 200))).status_code == 200


@every
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_what_the_protocol_has_no_operation_for_is_refused_in_its_words(
    speakers: dict[str, Speaker], inbound: str, method: str
) -> None:
    speaker = speakers[inbound]
    refused(speaker, speaker.ask(method, "/no/such/path/in/it"), 404, 405)
    if method in ("PUT", "PATCH"):
        refused(speaker, speaker.ask(method, speaker.whole("x")[1]), 404, 405, 422)


@every
def test_an_agent_that_is_down_is_told_as_that(gateway: Gateway, inbound: str) -> None:
    with another(gateway, inbound, "dead") as speaker:
        method, path, body = speaker.whole("x")
        answer = speaker.ask(method, path, body)
        if inbound == "agent_protocol":  # a task is only a place for runs
            assert answer.status_code == 200
            answer = speaker.ask("POST", f"{path}/{answer.json()['task_id']}/steps", {})
        refused(speaker, answer, 502, 503, 504)


@every
def test_two_who_watch_one_run_see_the_same(gateway: Gateway, inbound: str) -> None:
    with another(gateway, inbound, SLOW) as first, another(gateway, inbound, SLOW) as second:
        run = first.start("1 seconds")
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(lambda watcher: watcher.watch(run), (first, second))
        late = second.watch(run)
    assert one.text.endswith("tick 10 done")
    for seen in (other, late):
        assert (seen.text, seen.status) == (one.text, one.status)
        assert seen.numbered.keys() & one.numbered.keys()
        assert all(one.numbered.get(number, said) == said for number, said in seen.numbered.items())


@pytest.mark.parametrize(("inbound", "on_disconnect", "end"), LEAVING)
def test_a_client_that_leaves_in_the_middle_leaves_the_run_as_its_protocol_says(
    gateway: Gateway, inbound: str, on_disconnect: str, end: str
) -> None:
    text = "100 seconds" if end == "cancelled" else "2 seconds"
    with another(gateway, inbound, SLOW) as speaker:
        assert speaker.became(speaker.leave(text, on_disconnect)) == end


def test_nothing_of_all_this_was_a_fault_of_ours(gateway: Gateway) -> None:
    assert "Traceback" not in gateway.process.stderr()
