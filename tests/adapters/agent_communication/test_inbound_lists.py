"""What there is: agents, templates and tools, in pages, for all clients or for those of one agent."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.types import AgentCapabilities, InterruptSpec
from gateway.mcp.versions import ALL, V2024_11_05, V2025_06_18, V2025_11_25
from tests.adapters.agent_communication.inbound_rig import NATIVE, YES_NO, Refused, Rig, native, rig, scripted
from tests.support import scripted as support
from tests.support.scripted import echo, use

CONFIG: dict[str, Any] = {"type": "object", "properties": {"tone": {"type": "string"}}, "required": ["tone"]}


def many(count: int) -> list[Any]:
    return [scripted(echo, f"a{number}", capabilities=AgentCapabilities()) for number in range(count)]


async def pages(made: Rig, method: str, key: str) -> list[list[str]]:
    """The names of a list, page by page."""
    told: list[list[str]] = []
    cursor: dict[str, Any] = {}
    while True:
        result = await made.call(method, **cursor)
        told.append([each["name"] for each in result[key]])
        if "nextCursor" not in result:
            return told
        cursor = {"cursor": result["nextCursor"]}
        assert len(told) < 20


@pytest.mark.parametrize(("method", "key"), [("agents/list", "agents"), ("tools/list", "tools")])
@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2]), (5, [2, 2, 1])])
async def test_a_list_comes_in_pages_that_leave_nothing_out(
    method: str, key: str, count: int, sizes: list[int]
) -> None:
    async with rig(*many(count), page_size=2) as made:
        told = await pages(made, method, key)
        assert [len(page) for page in told] == sizes
        assert [name for page in told for name in page] == [f"a{number}" for number in range(count)]


async def test_a_list_that_changes_between_two_pages_goes_on_after_the_last_that_was_told() -> None:
    async with rig(*many(5), page_size=2) as made:
        first = await made.call("agents/list")
        use(made.engine, *[each for each in many(5) if each[0].name != "a0"])
        second = await made.call("agents/list", cursor=first["nextCursor"])
        assert [each["name"] for each in second["agents"]] == ["a2", "a3"]


async def test_a_list_whose_last_told_agent_has_gone_goes_on_in_its_place() -> None:
    async with rig(*many(5), page_size=2) as made:
        first = await made.call("agents/list")
        use(made.engine, *[each for each in many(5) if each[0].name != "a1"])
        second = await made.call("agents/list", cursor=first["nextCursor"])
        assert [each["name"] for each in second["agents"]] == ["a3", "a4"]


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "bnVsbA", "WyJhZ2VudHMiLCAwLCAiYTAiXQ", "é"])
async def test_a_cursor_that_was_never_given_is_refused(cursor: str) -> None:
    async with rig(*many(3), page_size=2) as made:
        with pytest.raises(Refused) as refused:
            await made.call("agents/list", cursor=cursor)
        assert (refused.value.code, refused.value.data["path"]) == (-32602, "/cursor")


async def test_a_cursor_of_another_list_is_refused() -> None:
    async with rig(*many(3), page_size=2) as made:
        cursor = (await made.call("agents/list"))["nextCursor"]
        with pytest.raises(Refused) as refused:
            await made.call("tools/list", cursor=cursor)
        assert refused.value.code == -32602


async def test_an_agent_of_the_same_protocol_is_listed_with_every_key_it_has() -> None:
    async with rig(native(echo, "near")) as made:
        (entry,) = (await made.call("agents/list"))["agents"]
        assert entry["name"] == "near"
        assert {key: entry[key] for key in ("provider", "ui", "tags")} == {
            "provider": "me",
            "ui": {"type": "hands-off"},
            "tags": ["x"],
        }
        assert entry["inputSchema"] == NATIVE.input_schema


@pytest.mark.parametrize("version", ALL)
async def test_tools_have_an_output_schema_where_the_revision_knows_it(version: str) -> None:
    async with rig(*many(1)) as made:
        (tool,) = (await made.call("tools/list", made.session(version)))["tools"]
        assert ("outputSchema" in tool) == (version >= V2025_06_18)
        assert tool["inputSchema"]["type"] == "object"


async def test_the_tool_that_answers_is_listed_once_some_agent_has_questions() -> None:
    asks = InterruptSpec(kind="approval", payload_schema={}, answer_schema=YES_NO)
    mute = scripted(echo, "mute", capabilities=AgentCapabilities())
    async with rig(mute, scripted(echo, "asks", interrupts=(asks,)), page_size=1) as made:
        assert await pages(made, "tools/list", "tools") == [["mute"], ["asks", "interlingua_answer"]]
        session = made.session(agent="mute")
        assert [tool["name"] for tool in (await made.call("tools/list", session))["tools"]] == ["mute"]


async def test_an_agent_with_the_name_of_the_answering_tool_keeps_it() -> None:
    async with rig(scripted(echo, "interlingua_answer")) as made:
        assert await pages(made, "tools/list", "tools") == [["interlingua_answer"]]
        result = await made.call("tools/call", name="interlingua_answer", arguments={"message": "one two"})
        assert result["content"][0]["text"] == "one two "


async def test_a_session_of_one_agent_sees_and_calls_only_that() -> None:
    async with rig(scripted(echo, "one"), scripted(echo, "two", config_schema=CONFIG)) as made:
        session = made.session(agent="one")
        assert [each["name"] for each in (await made.call("agents/list", session))["agents"]] == ["one"]
        assert (await made.call("agents/templates/list", session))["agentTemplates"] == []
        assert (await made.run("one", session=session))["output"] == {"message": "hi "}
        for method, params in [
            ("agents/run", {"name": "two", "input": {"message": "hi"}}),
            ("tools/call", {"name": "two", "arguments": {"message": "hi"}}),
        ]:
            with pytest.raises(Refused, match=r"there are one$") as refused:
                await made.call(method, session, **params)
            assert refused.value.code == -32602
        with pytest.raises(Refused) as refused:
            await made.call("agents/create", session, templateName="one", config={})
        assert refused.value.code == -32601


async def test_an_agent_is_called_by_its_uuid_too() -> None:
    async with rig(*many(1)) as made:
        agent = await made.engine.agents.get("a0", "agent_communication")
        assert (await made.run(agent.id))["output"] == {"message": "hi "}


async def test_a_template_becomes_an_agent_that_runs_with_its_configuration_until_it_is_destroyed() -> None:
    async def toned(context: Any) -> None:
        context.emit(e.PartDelta(part="text", delta=context.run.request.config["tone"]), e.RunFinished())

    async with rig(scripted(toned, "maker", config_schema=CONFIG), *many(1)) as made:
        (template,) = (await made.call("agents/templates/list"))["agentTemplates"]
        assert (template["name"], template["configSchema"]) == ("maker", CONFIG)
        agent = (await made.call("agents/create", templateName="maker", config={"tone": "low"}))["agent"]
        assert agent["name"] in [each["name"] for each in (await made.call("agents/list"))["agents"]]
        assert (await made.run(agent["name"]))["output"] == {"message": "low"}
        assert await made.call("agents/destroy", name=agent["name"]) == {}
        with pytest.raises(Refused) as refused:
            await made.run(agent["name"])
        assert refused.value.code == -32602


@pytest.mark.parametrize(
    ("method", "params", "code", "path"),
    [
        ("agents/create", {"templateName": "nobody", "config": {}}, -32602, None),
        ("agents/create", {"templateName": "maker", "config": {}}, -32602, "/config"),
        ("agents/create", {"templateName": "maker", "config": 1}, -32602, "/config"),
        ("agents/create", {"config": {}}, -32602, "/templateName"),
        ("agents/create", {"templateName": "a0", "config": {}}, -32601, None),
        ("agents/destroy", {"name": "a0"}, -32601, None),
        ("agents/destroy", {"name": "nobody"}, -32602, None),
        ("agents/destroy", {}, -32602, "/name"),
    ],
)
async def test_what_cannot_be_created_or_destroyed_is_refused_with_its_place(
    method: str, params: dict[str, Any], code: int, path: str | None
) -> None:
    async with rig(scripted(echo, "maker", config_schema=CONFIG), *many(1)) as made:
        with pytest.raises(Refused) as refused:
            await made.call(method, **params)
        assert refused.value.code == code
        assert path is None or refused.value.data["path"] == path


@pytest.mark.parametrize("version", ALL)
async def test_the_gateway_introduces_itself_in_words_of_the_revision(version: str) -> None:
    async with rig(*many(1)) as made:
        said = made.service.identity(made.session(version))
        assert said.capabilities["agents"] == {"listChanged": True, "templates": True}
        assert said.capabilities["tools"] == {"listChanged": True}
        assert said.capabilities["logging"] == {}
        assert said.info["name"] == "interlingua"
        assert ("title" in said.info) == (version >= V2025_06_18)
        bound = made.service.identity(made.session(version, agent="a0"))
        assert bound.capabilities["agents"]["templates"] is False


async def test_what_a_list_holds_follows_the_route_table() -> None:
    async with rig(*many(1)) as made:
        use(made.engine, (support.route("b"), support.Scripted(echo)))
        for version in (V2024_11_05, V2025_11_25):
            listed = await made.call("agents/list", made.session(version))
            assert [each["name"] for each in listed["agents"]] == ["b"]
