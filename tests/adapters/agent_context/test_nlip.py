"""Payloads in the form of NLIP (ECMA-430), as its SDK encodes them, from clients and from agents."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.agent_context.codec import nlip
from gateway.core.types import RunQuery
from tests.adapters.agent_context.inbound_rig import rig
from tests.adapters.agent_context.inbound_talker import AGENT, Talker, refused

TOKEN = {"format": "token", "subformat": "conversation", "content": "c-1"}
PICTURE = {"format": "binary", "subformat": "image/png", "content": "iVBORw=="}


def text(said: str, *below: Any) -> dict[str, Any]:
    message = {"format": "text", "subformat": "english", "content": said}
    return {**message, "submessages": [*below]} if below else message


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        (text("hello"), {"messages": [{"text": "hello"}]}),
        (
            {
                "messagetype": None,
                "format": "text",
                "subformat": "english",
                "content": "look",
                "label": None,
                "submessages": [
                    {"format": "structured", "subformat": "JSON", "content": {"a": 1}, "label": None},
                    {"format": "token", "subformat": "conversation", "content": "c", "label": None},
                    {"format": "text", "subformat": "english", "content": "more", "label": None},
                ],
            },
            {"messages": [{"text": "look"}, {"text": "more"}], "input": {"a": 1}, "context": {"sessionId": "c"}},
        ),
        ({**text("hello"), "format": "TEXT", "messagetype": None}, {"messages": [{"text": "hello"}]}),
        (text("hello", TOKEN), {"messages": [{"text": "hello"}], "context": {"sessionId": "c-1"}}),
        (text("look", PICTURE), {"messages": [{"text": "look"}], "submessages": [PICTURE]}),
        (
            {"format": "structured", "subformat": "JSON", "content": '{"count": 3}', "control": False},
            {"input": {"count": 3}},
        ),
        ({"format": "structured", "subformat": "json", "content": {"count": 3}}, {"input": {"count": 3}}),
        (
            text("in", {"format": "token", "subformat": "authorization", "content": "secret"}),
            {"messages": [{"text": "in"}]},
        ),
        ({**text("switch"), "control": True}, {**text("switch"), "control": True}),
        ({**text("hello"), "messagetype": "control"}, {**text("hello"), "messagetype": "control"}),
        ({"format": "text", "text": "hello"}, {"format": "text", "text": "hello"}),
        ({**text("hello"), "tool": "x"}, {**text("hello"), "tool": "x"}),
        ({**text("hello"), "submessages": [1]}, {**text("hello"), "submessages": [1]}),
    ],
)
def test_a_message_is_read_and_what_is_none_stays_as_it_is(message: Any, payload: Any) -> None:
    assert nlip.plain(message) == payload


def test_nothing_of_a_payload_is_lost_in_a_message() -> None:
    payload = {
        "messages": [{"text": "a", "role": "user"}],
        "input": [1],
        "dataset": "d",
        "artifacts": [{"name": "n.txt", "url": "http://x/n"}],
        "submessages": [PICTURE],
        "context": {"sessionId": "s"},
        "requirements": {"capabilities": ["x"]},
    }
    message = nlip.of(payload)
    assert nlip.spoken(message) and message["content"] == "a"
    said = [(each["subformat"], each["content"]) for each in message["submessages"]]
    assert said[0] == ("json", "[1]") and '"dataset":"d"' in said[1][1] and '"role":"user"' in said[1][1]
    assert said[2:] == [("uri", "http://x/n"), ("image/png", "iVBORw=="), ("conversation", "s")]
    assert message["requirements"] == {"capabilities": ["x"]}


@pytest.mark.parametrize(
    "answer",
    [text("true"), {"format": "structured", "subformat": "json", "content": {"ok": True}}, {"answer": {"ok": True}}],
    ids=["in words", "as a document", "in the draft's form"],
)
async def test_a_client_that_speaks_it_keeps_its_conversation_over_a_question(answer: Any) -> None:
    async with rig() as there, there.http() as client:
        asked = await refused(send(client, "asker", text("hello")))
        told = await send(client, "asker", answer, meta={"interlingua/resume": asked.data["resume"]})
        assert told["content"] == "Let me see. answered {'ok': True}"
        (token,) = told["submessages"]
        await refused(send(client, "asker", text("again", token)))
        one, two = await there.engine.runs.list(RunQuery(agent="asker"))
        assert one.thread == two.thread is not None


async def send(client: Talker, target: str, payload: Any, **more: Any) -> Any:
    found = await client.ask("agent/message", target=target, content={"type": "request", "payload": payload}, **more)
    return found["content"]["payload"]


async def test_a_client_that_speaks_it_is_answered_in_it_and_keeps_its_conversation() -> None:
    async with rig() as there, there.socket() as client:
        first = await send(client, "echo", text("hello my friend"))
        assert (first["format"], first["content"]) == ("text", "hello my friend ")
        (token,) = first["submessages"]
        assert (token["format"], token["subformat"]) == ("token", "conversation")
        again = await send(client, "echo", text("again", token))
        assert again["submessages"] == [token]
        one, two = await there.engine.runs.list(RunQuery(agent="echo"))
        assert one.thread == two.thread is not None
        assert one.request.input == {"message": "again"}

        counted = await send(client, "strict", {"format": "structured", "subformat": "json", "content": {"count": 1}})
        assert {"format": "structured", "subformat": "json", "content": '{"count":2}'} in counted["submessages"]
        plain = await send(client, "echo", {"messages": [{"text": "hello"}]})
        assert plain == {"messages": [{"text": "hello "}]}, "who does not speak it is not answered in it"

        both = text("look", {"format": "structured", "subformat": "JSON", "content": {"a": 1}})
        found = await client.ask("agent/message", target="echo", content={"type": "request", "payload": both})
        assert found["content"]["payload"]["content"] == "look "
        assert found["_meta"]["interlingua/lost"] == {"payload_rest": 1}

        task = {"id": "t", "type": "x", "payload": text("a task")}
        done = await client.ask("agent/delegate", task=task, target="echo")
        assert done["task"]["result"] == {"messages": [{"text": "a task "}]}


async def test_an_agent_that_says_it_speaks_it_is_sent_it_and_every_other_is_not() -> None:
    async with rig() as there, there.socket(hello=AGENT) as agent, there.socket() as client:
        seen: list[Any] = []

        async def work(params: Any) -> Any:
            seen.append(params["content"]["payload"])
            answer = text("done", {"format": "structured", "subformat": "json", "content": '{"a": 1}'}, TOKEN)
            return {"status": "completed", "content": {"type": "response", "payload": answer}}

        agent.on["agent/message"] = work
        said = {"tools": [], "models": [], "specializations": [], "protocols": ["ACP-0.1"]}
        await agent.register("old", capabilities=said)
        await agent.register("new", capabilities={**said, "protocols": ["ACP-0.1", "NLIP-1.0"]})

        found = await send(client, "new", {"messages": [{"text": "hello"}], "context": {"sessionId": "s"}})
        assert seen.pop() == {
            **text("hello", {"format": "token", "subformat": "conversation", "content": "s"}),
            "context": {"sessionId": "s"},
        }
        assert found["messages"] == [{"text": "done"}] and found["output"]["structured"] == {"a": 1}

        await send(client, "new", text("hello", PICTURE, TOKEN))
        assert seen.pop() == text("hello", PICTURE, TOKEN), "word for word"
        found = await send(client, "old", text("hello", TOKEN))
        assert seen.pop() == {"messages": [{"text": "hello"}], "context": {"sessionId": "c-1"}}
        assert found["content"] == "done"
