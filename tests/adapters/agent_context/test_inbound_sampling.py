"""`sampling/createMessage`: another client samples, else a route that stands for a model does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.adapters.agent_context.inbound_rig import rig
from tests.adapters.agent_context.inbound_talker import AGENT, Refused, refused, response, text_of

WISHES = {"intelligencePriority": 0.8, "speedPriority": 0.6, "costPriority": 0.4}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "sampled"}, "model": "m", "stopReason": "endTurn"}


def asked(text: str = "Analyze", **more: Any) -> dict[str, Any]:
    """The params of section 4.3."""
    messages = [{"role": "user", "content": {"type": "text", "text": text}}]
    return {"messages": messages, "maxTokens": 1000, "temperature": 0.7, **more}


def models(**traits: dict[str, float]) -> dict[str, dict[str, Any]]:
    """Routes that stand for models."""
    return {name: {"model": each} for name, each in traits.items()}


async def sampled(params: dict[str, Any]) -> Any:
    """A client's answer."""
    return SAMPLED


async def test_another_client_that_offers_it_samples_word_for_word() -> None:
    async with rig() as there, there.socket(hello={"sampling": {}}) as model, there.socket() as client:
        seen: list[dict[str, Any]] = []

        async def sample(params: dict[str, Any]) -> Any:
            seen.append(params)
            return SAMPLED

        model.on["sampling/createMessage"] = sample
        meta = {"correlationId": "s", "progressToken": 3}
        found = await client.ask("sampling/createMessage", **asked(modelPreferences=WISHES), meta=meta)
        assert {**found, "_meta": None} == {**SAMPLED, "_meta": None}
        assert {key: value for key, value in seen[0].items() if key != "_meta"} == asked(modelPreferences=WISHES)

        async def declined(params: dict[str, Any]) -> Any:
            raise Refused({"code": -1, "message": "User rejected sampling request"})

        model.on["sampling/createMessage"] = declined
        error = await refused(client.ask("sampling/createMessage", **asked(), meta=meta))
        assert (error.code, error.data["correlationId"]) == (-1, "s")


async def test_nobody_samples_for_itself_and_where_nobody_does_it_is_mcps_error() -> None:
    async with rig() as there, there.socket(hello={"sampling": {}}) as client:
        client.on["sampling/createMessage"] = sampled
        error = await refused(client.ask("sampling/createMessage", **asked(), meta={"correlationId": "n"}))
        assert (error.code, error.message) == (-32601, "nobody here offers sampling")
        assert error.data["correlationId"] == "n"


@pytest.mark.parametrize(
    ("wishes", "model"),
    [
        ({"costPriority": 1, "speedPriority": 0, "intelligencePriority": 0}, "echo"),
        ({"costPriority": 0, "speedPriority": 0, "intelligencePriority": 1}, "filer"),
        ({"hints": [{"name": "nothing"}, {"name": "FIL"}], "costPriority": 1}, "filer"),
        ({"costPriority": 0.1, "speedPriority": 1, "intelligencePriority": 0.1}, "echo"),
    ],
)
async def test_a_route_that_stands_for_a_model_samples_chosen_by_preference(wishes: dict[str, Any], model: str) -> None:
    cheap, clever = ({"cost": 0.1, "speed": 0.9, "intelligence": 0.3}, {"cost": 0.9, "speed": 0.2, "intelligence": 1.0})
    async with rig(routes=models(echo=cheap, filer=clever)) as there, there.socket() as client:
        found = await client.ask("sampling/createMessage", **asked("one two", modelPreferences=wishes))
        assert (found["role"], found["model"], found["stopReason"]) == ("assistant", model, "endTurn")
        assert found["content"]["text"] == ("one two " if model == "echo" else "see the file")


async def test_a_conversation_is_one_text_with_its_pictures_as_files_and_what_is_neither_is_refused() -> None:
    async with rig(routes=models(echo={}, failer={"intelligence": 1.0})) as there, there.socket() as client:
        messages = [
            {"role": "user", "content": {"type": "text", "text": "a"}},
            {"role": "assistant", "content": {"type": "text", "text": "b"}},
        ]
        found = await client.ask(
            "sampling/createMessage", messages=messages, maxTokens=5, systemPrompt="be brief",
            modelPreferences={"hints": [{"name": "echo"}]},
        )  # fmt: skip
        assert found["content"]["text"].split() == ["System:", "be", "brief", "User:", "a", "Assistant:", "b"]
        found = await client.ask("sampling/createMessage", **asked(), modelPreferences={"intelligencePriority": 1})
        assert found["model"] == "echo"  # the best has failed
        picture = {"type": "image", "data": "AA==", "mimeType": "image/png"}
        seen = {"role": "user", "content": [{"type": "text", "text": "look"}, picture]}
        found = await client.ask("sampling/createMessage", messages=[seen], maxTokens=5)
        (file,) = await there.engine.files.list(run=found["_meta"]["interlingua/run"])
        assert (found["content"]["text"], file.name, file.size) == ("look ", "image.png", 1)
        for wrong in ({"type": "tool_use"}, {**picture, "data": "no!"}):
            asking = client.ask("sampling/createMessage", messages=[{"role": "user", "content": wrong}], maxTokens=5)
            error = await refused(asking)
            assert (error.code, error.data["path"]) == (-32001, "/messages/0/content")
        for wrong in ({}, {"messages": []}, {"messages": None, "maxTokens": 1}, {"messages": [{}], "maxTokens": 1}):
            assert (await refused(client.ask("sampling/createMessage", **wrong))).code == -32001


async def test_an_agent_at_work_samples_by_the_client_it_works_for() -> None:
    async with (
        rig() as there,
        there.socket(hello={"sampling": {}}) as stranger,
        there.socket(hello=AGENT) as painter,
        there.socket(hello={"sampling": {}}) as client,
    ):
        stranger.on["sampling/createMessage"] = _strange
        client.on["sampling/createMessage"] = sampled
        await painter.register("painter", "paint")

        async def work(params: dict[str, Any]) -> Any:
            meta = {"correlationId": params["_meta"]["correlationId"]}
            return response((await painter.ask("sampling/createMessage", **asked(), meta=meta))["content"]["text"])

        painter.on["agent/message"] = work
        assert text_of(await client.message("painter")) == "sampled"
        arguments = {"message": "x", "capabilities": ["paint"]}
        found = await client.ask("tools/call", name="taskAssign", arguments=arguments)
        assert found["content"][0]["text"] == "sampled"


async def _strange(params: dict[str, Any]) -> Any:
    return {**SAMPLED, "content": {"type": "text", "text": "strange"}}
