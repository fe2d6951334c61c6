"""Every inbound with every outbound that exists: the same stories through each pair."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import httpx2
import pytest

from gateway import registry
from tests.matrix.agents import ANSWERED, ANSWERS, MOVED, REASONS, ROUTES, message, routes
from tests.matrix.clients import CANCELS, CLIENTS, Client
from tests.matrix.ends import PATIENCE
from tests.support.processes import Gateway

FIRST = {
    "agent_client": b'{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}',
    "agent_communication": b'{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"capabilities": {}, '
    b'"protocolVersion": "2025-11-25", "clientInfo": {"name": "matrix", "version": "1"}}}',
    "agent_connect": b'{"agent_id": "nobody", "input": {"message": "x"}}',
    "agent_context": b'{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"capabilities": {}, '
    b'"protocolVersion": "ACP-0.1", "clientInfo": {"name": "matrix", "version": "1"}}}',
}
"""What a client would ask of an agent first."""
EARLIER = {"agent_protocol"}
"""Protocols whose clients say what is to be done before there is a run, when they make a task; their agents hear it
then, too."""
PAIRS = list(itertools.product(CLIENTS, ROUTES))


@pytest.fixture(scope="module")
def gateway(urls: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    text = routes(**{**urls, "agent_client": urls["agent_client"].replace("http", "ws")})
    with Gateway(text, tmp_path_factory.mktemp("matrix")) as running:
        yield running


def test_the_matrix_has_every_adapter_there_is() -> None:
    adapters = registry.scan()
    assert set(CLIENTS) == {name for name, adapter in adapters.items() if adapter.serve}
    assert set(ROUTES) == {name for name, adapter in adapters.items() if adapter.call}


Door = Callable[[str], Client]


@pytest.fixture
def door(gateway: Gateway) -> Iterator[Door]:
    """Makes clients of an inbound protocol, and closes them."""
    with contextlib.ExitStack() as stack:

        def client(inbound: str) -> Client:
            made = CLIENTS[inbound](gateway.url)
            stack.callback(made.http.close)
            return made

        yield client


@pytest.mark.parametrize(("inbound", "outbound"), PAIRS)
def test_a_run_gives_its_answer(door: Door, inbound: str, outbound: str) -> None:
    end = door(inbound).run(f"{outbound}-echo", message(outbound, "echo"))
    assert end.status == "success" and "hello my friend" in end.text


@pytest.mark.parametrize(("inbound", "route"), list(itertools.product(CLIENTS, MOVED)))
def test_the_text_of_an_agent_without_schemas_is_where_its_route_says(door: Door, inbound: str, route: str) -> None:
    end = door(inbound).run(f"{route}-echo", message(MOVED[route], "echo"))
    assert end.status == "success" and "hello my friend" in end.text, end


@pytest.mark.parametrize(("inbound", "outbound"), PAIRS)
def test_what_is_streamed_only_grows_and_ends_as_the_whole(door: Door, inbound: str, outbound: str) -> None:
    said = door(inbound).stream(f"{outbound}-echo", message(outbound, "echo"))
    assert said and "hello my friend" in said[-1]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(said))


@pytest.mark.parametrize(("inbound", "outbound"), PAIRS)
def test_a_failure_is_told_with_its_reason(door: Door, inbound: str, outbound: str) -> None:
    end = door(inbound).run(f"{outbound}-fail", message(outbound, "fail"))
    assert end.status == "error", end
    assert any(reason in end.text for reason in REASONS.get(outbound, ("it failed on purpose",)))


@pytest.mark.parametrize(("inbound", "outbound"), PAIRS)
def test_a_question_reaches_the_client_and_its_answer_the_agent(door: Door, inbound: str, outbound: str) -> None:
    speaker = door(inbound)
    asked = speaker.run(f"{outbound}-ask", message(outbound, "ask"))
    assert asked.status == "asks" and asked.text, asked
    end = speaker.answer(asked, ANSWERS[outbound])
    assert end.status == "success", end
    assert ANSWERED[outbound] in end.text.lower()


@pytest.mark.parametrize(("inbound", "outbound"), [pair for pair in PAIRS if pair[0] in CANCELS])
def test_a_run_can_be_cancelled(door: Door, inbound: str, outbound: str) -> None:
    speaker = door(inbound)
    run = speaker.begin(f"{outbound}-slow", message(outbound, "slow"))
    assert speaker.cancel(run).status == "cancelled"


@pytest.mark.parametrize("inbound", CLIENTS)
@pytest.mark.parametrize("body", [b"{", b"[]", b'{"input": ', b"\xff\xfe", b'"text"'])
def test_a_body_that_is_not_the_protocols_is_refused_in_its_own_words(door: Door, inbound: str, body: bytes) -> None:
    answer: httpx2.Response = door(inbound).refused("example-echo", body)
    assert answer.status_code in (400, 422, 501), answer.text
    assert answer.headers["content-type"].startswith("application/json") and answer.text


@pytest.mark.parametrize("inbound", CLIENTS)
def test_an_unknown_agent_is_not_found(door: Door, inbound: str) -> None:
    answer = door(inbound).refused("nobody", FIRST.get(inbound, b'{"input": "x"}'))
    assert answer.status_code == 404 and "nobody" in answer.text


@pytest.mark.parametrize("inbound", CLIENTS)
def test_a_path_that_does_not_exist_is_refused_in_the_protocols_own_words(door: Door, inbound: str) -> None:
    answer = door(inbound).http.delete("/no/such/path")
    assert answer.status_code in (404, 405)
    assert answer.headers["content-type"].startswith("application/json") and "no operation" in answer.text


@pytest.mark.parametrize(("inbound", "outbound"), PAIRS)
def test_what_both_sides_say_of_a_question_is_recorded_for_its_run_alone(
    gateway: Gateway, door: Door, inbound: str, outbound: str
) -> None:
    """Turned on at run time, with the agents' connections as they are."""
    agent = f"{outbound}-ask"
    with httpx2.Client(base_url=f"{gateway.url}/admin", timeout=PATIENCE, trust_env=False) as operator:
        for record in (False, True):
            asked = operator.post("/recording", json={"agent": agent, "record": record, "seconds": 60})
            assert asked.json()["agents"][agent] is record, asked.text
        speaker = door(inbound)
        end = speaker.answer(speaker.run(agent, message(outbound, "ask")), ANSWERS[outbound])
        assert end.status == "success", end
        run = operator.get("/runs", params={"agent": agent, "limit": 1}).json()["runs"][0]["id"]
        noted = operator.get(f"/runs/{run}/wire").json()["entries"]
    said = [one for one in noted if one["kind"] == "message"]

    def told(side: str, sent: bool) -> str:
        return "\n".join(
            f"{one['title']} {one.get('text')}" for one in said if (one["side"], one["sent"]) == (side, sent)
        )

    begun = [told("client", False)] if inbound not in EARLIER else []
    begun += [told("agent", True)] if inbound not in EARLIER or outbound != inbound else []
    for way in begun:
        assert message(outbound, "ask") in way, (way, said)
    answer = str(next(iter(ANSWERS[outbound].values())))
    assert answer.lower() in told("client", False).lower() and answer.lower() in told("agent", True).lower(), said
    for way in (told("agent", False), told("client", True)):
        assert ANSWERED[outbound].strip('"') in way.lower(), (way, said)
    assert any(one["kind"] == "events" for one in noted) and [one["n"] for one in noted] == [*range(1, len(noted) + 1)]
