"""Who lives at a target: all of them as routes of their own, and those that a template makes."""

from __future__ import annotations

import asyncio
import gc
import itertools
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.agent_communication.options import AgentCommunicationTarget
from adapters.agent_communication.outbound import AgentCommunicationOutbound
from adapters.agent_communication.wire import PROTOCOL
from gateway.contract import Discovering, Outbound, Supervised
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentError, AgentFailed, AgentGone, NotFound, Unsupported
from gateway.core.types import JsonObject
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_communication.outbound_rig import Asked, FakeServer, echo, entry, outbound, running
from tests.support.rpc import settled as turns

# --- all that live there --------------------------------------------------------------------------------------------


async def test_each_agent_there_is_an_outbound_of_its_own_over_the_same_connections() -> None:
    server = FakeServer({"one": echo, "two": echo})
    half = outbound(server, agents="*")
    assert isinstance(half, Discovering) and half.discovers
    found = await half.discover()
    assert list(found) == ["one", "two"]
    for name, child in found.items():
        assert isinstance(child, Supervised) and not isinstance(child, Discovering)
        assert (await child.describe()).name == name
        ctx = running(name)
        await child.run(ctx)
        assert ctx.output == {"text": "hello "}
    assert [params["name"] for params in server.named("agents/run")] == ["one", "two"]
    assert len(server.pools) == 1
    with pytest.raises(Unsupported):
        await half.describe()


def test_a_route_to_one_agent_discovers_none() -> None:
    assert not outbound(FakeServer({"one": echo})).discovers


async def test_an_agent_that_was_found_before_is_the_same_one_and_closing_it_closes_nothing() -> None:
    server = FakeServer({"one": echo})
    half = outbound(server, agents="*")
    [one] = (await half.discover()).values()
    await one.aclose()
    server.agents["two"] = echo
    found = await half.discover()
    assert found["one"] is one and list(found) == ["one", "two"]
    await one.run(ctx := running("one"))
    assert isinstance(ctx.end, e.RunFinished)
    del server.agents["one"]
    assert list(await half.discover()) == ["two"]
    server.agents["one"] = echo
    assert (await half.discover())["one"] is one
    await half.aclose()
    assert all(pool.closed for pool in server.pools)


async def test_agents_that_come_and_go_are_not_kept_for_ever() -> None:
    server = FakeServer()
    half = outbound(server, agents="*")
    for number in range(100):
        server.agents = {f"agent-{number}": echo}
        await half.discover()
    gc.collect()
    assert len(half._all) <= 1


async def test_a_changed_list_is_told() -> None:
    changes: list[str] = []
    server = FakeServer({"one": echo})
    half = outbound(server, agents="*")
    half.on_change(lambda: changes.append("changed"))
    await half.discover()
    server.pools[0].tell("notifications/agents/list_changed")
    server.pools[0].tell("notifications/message", {"level": "info", "data": "x"})
    server.pools[0].tell("notifications/tools/list_changed")
    assert changes == ["changed"]
    await half.aclose()


async def test_what_changed_while_nobody_was_there_to_tell_is_found_out() -> None:
    changed = asyncio.Event()
    server = FakeServer({"one": echo})
    half = outbound(server, agents="*")
    half.on_change(changed.set)
    await half.discover()
    async with asyncio.timeout(30):
        while not server.pools[0].sessions[0].leases:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not changed.is_set()
        server.gone()
        await changed.wait()
    await half.aclose()
    assert all(session.leases == 0 for session in server.pools[0].sessions)


async def test_a_remote_target_is_asked_again_now_and_then() -> None:
    changed = asyncio.Event()
    half = outbound(FakeServer({"one": echo}), agents="*", command=[], url="http://127.0.0.1:1/mcp", idle=0.01)
    half.on_change(changed.set)
    await asyncio.wait_for(changed.wait(), 30)
    await half.aclose()


async def test_one_that_has_gone_from_the_list_is_not_found() -> None:
    server = FakeServer({"one": echo, "two": echo})
    one = (await outbound(server, agents="*").discover())["one"]
    await one.describe()
    del server.agents["one"]
    with pytest.raises(NotFound, match="no agent one; there are: two"):
        await one.describe()


async def test_a_target_that_is_down_is_gone_and_back_when_it_is_back() -> None:
    server = FakeServer({"one": echo})
    half = outbound(server, agents="*")
    assert half.reachable is None
    server.up = False
    with pytest.raises(AgentGone):
        await half.discover()
    server.up = True
    [one] = (await half.discover()).values()
    assert half.reachable is True and isinstance(one, Supervised) and one.reachable is True
    server.gone()
    assert half.reachable is False


@pytest.mark.parametrize("given", [{"agent": "a", "agents": "*"}, {"agent": "a", "template": "t"}, {"agents": "all"}])
def test_options_that_contradict_each_other_are_refused(given: JsonObject) -> None:
    with pytest.raises(ValidationError):
        AgentCommunicationTarget.model_validate({"protocol": PROTOCOL, "command": ["x"], **given})


# --- what a template makes ------------------------------------------------------------------------------------------


class Maker(FakeServer):
    """A server with the template `maker`; what it makes says the configuration's `word`."""

    def __init__(self) -> None:
        config = {"type": "object", "properties": {"word": {"type": "string"}}}
        super().__init__(templates=[entry("maker", configSchema=config)])
        self.creating = self.create
        self.numbers = itertools.count(1)
        self.fail = False
        self.waiting: asyncio.Event | None = None

    async def create(self, params: JsonObject) -> JsonObject:
        name = f"made-{next(self.numbers)}"

        async def says(asked: Asked) -> JsonObject:
            if self.waiting is not None:
                await self.waiting.wait()
            if self.fail:
                raise RpcError(0, "no")
            return {"output": {"text": f"{name} {params['config'].get('word')}"}}

        self.agents[name] = says
        return {"agent": entry(name)}


async def said(half: Outbound, word: str | None = None) -> Any:
    ctx = running("maker", config={"word": word} if word else {})
    await half.run(ctx)
    assert isinstance(ctx.end, e.RunFinished), ctx.end
    assert not ctx.losses
    return ctx.output["text"]


async def test_a_template_is_an_agent_that_takes_a_configuration() -> None:
    agent = await outbound(Maker(), template="maker").describe()
    assert agent.config_schema["properties"] == {"word": {"type": "string"}}
    plain = Maker()
    plain.templates = [entry("maker")]
    assert (await outbound(plain, template="maker").describe()).config_schema == {"type": "object"}


async def test_runs_with_the_same_configuration_share_an_agent_and_others_do_not() -> None:
    server = Maker()
    half = outbound(server, template="maker")
    assert [await said(half, word) for word in ("a", "a", "b", "a")] == ["made-1 a", "made-1 a", "made-2 b", "made-1 a"]
    created = [{"templateName": "maker", "config": {"word": word}} for word in "ab"]
    assert server.named("agents/create") == created
    assert not server.named("agents/destroy")
    assert all("config" not in params for params in server.named("agents/run"))
    await half.aclose()
    assert {params["name"] for params in server.named("agents/destroy")} == {"made-1", "made-2"}
    assert all(pool.closed for pool in server.pools)


async def test_a_run_without_configuration_has_an_agent_too() -> None:
    assert await said(outbound(Maker(), template="maker")) == "made-1 None"


async def test_runs_at_the_same_time_have_an_agent_each() -> None:
    server = Maker()
    server.waiting = asyncio.Event()
    half = outbound(server, template="maker")
    both = [asyncio.create_task(said(half, "a")) for _ in range(2)]
    while len(server.named("agents/run")) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    server.waiting.set()
    assert sorted(await asyncio.gather(*both)) == ["made-1 a", "made-2 a"]
    await half.aclose()


async def test_no_more_are_kept_than_allowed_and_the_longest_unused_goes_first() -> None:
    server = Maker()
    half = outbound(server, template="maker", created=2)
    for word in ("a", "b", "a", "c"):
        await said(half, word)
    await settled(server, 1)
    assert server.named("agents/destroy") == [{"name": "made-2"}]  # b
    assert await said(half, "a") == "made-1 a"
    await half.aclose()


async def test_one_that_nobody_uses_for_long_is_destroyed() -> None:
    server = Maker()
    half = outbound(server, template="maker", idle=0.01)
    await said(half, "a")
    await settled(server, 1)
    assert await said(half, "a") == "made-2 a"
    await half.aclose()


async def test_one_that_failed_is_not_used_again() -> None:
    server = Maker()
    half = outbound(server, template="maker")
    await said(half, "a")
    server.fail = True
    ctx = running("maker", config={"word": "a"})
    await half.run(ctx)
    assert isinstance(ctx.end, e.RunFailed)
    server.fail = False
    assert await said(half, "a") == "made-2 a"
    await half.aclose()


async def test_those_of_a_server_that_died_are_made_again() -> None:
    server = Maker()
    half = outbound(server, template="maker")
    await said(half, "a")
    server.gone()
    server.agents.clear()
    assert await said(half, "a") == "made-2 a"
    assert not server.named("agents/destroy")
    await half.aclose()


async def test_a_cancelled_run_leaves_no_agent_behind() -> None:
    server = Maker()
    server.waiting = asyncio.Event()
    half = outbound(server, template="maker")
    ctx = running("maker")
    going = asyncio.create_task(half.run(ctx))
    while not server.named("agents/run"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    ctx.cancel_now()
    await half.cancel(ctx)
    await going
    await settled(server, 1)
    assert isinstance(ctx.end, e.RunCancelled)
    await half.aclose()
    assert all(session.leases == 0 for pool in server.pools for session in pool.sessions)


async def test_an_agent_that_is_made_while_its_run_is_cancelled_serves_the_next_one() -> None:
    server, made = Maker(), asyncio.Event()

    async def slowly(params: JsonObject) -> JsonObject:
        await made.wait()
        return await server.create(params)

    server.creating = slowly
    half = outbound(server, template="maker")
    ctx = running("maker", config={"word": "a"})
    going = asyncio.create_task(half.run(ctx))
    while not server.named("agents/create"):  # noqa: ASYNC110
        await asyncio.sleep(0)
    ctx.cancel_now()
    await half.cancel(ctx)
    await going
    assert isinstance(ctx.end, e.RunCancelled)
    made.set()
    await turns()
    assert await said(half, "a") == "made-1 a"
    await half.aclose()
    assert [params["name"] for params in server.named("agents/destroy")] == ["made-1"]
    assert len(server.named("agents/create")) == 1


async def test_a_server_that_takes_the_configuration_for_the_template_is_called_defective() -> None:
    async def spoilt(params: JsonObject) -> JsonObject:
        raise RpcError(0, "6 validation errors for AgentTemplate\nname\n  Field required")

    server = Maker()
    server.creating = spoilt
    told = r"cannot make an agent of any template: its SDK has a defect.*6 validation errors for AgentTemplate\)$"
    with pytest.raises(AgentFailed, match=told):
        await outbound(server, template="maker").run(running("maker"))


@pytest.mark.parametrize("answer", [{}, {"agent": None}, {"agent": {"name": 3}}])
async def test_an_answer_that_names_no_agent_is_a_broken_server(answer: JsonObject) -> None:
    async def nameless(params: JsonObject) -> JsonObject:
        return answer

    server = Maker()
    server.creating = nameless
    with pytest.raises(AgentBroken):
        await outbound(server, template="maker").run(running("maker"))
    assert all(session.leases == 0 for pool in server.pools for session in pool.sessions)


async def test_a_template_that_is_refused_is_the_agents_failure_in_the_servers_words() -> None:
    async def refuses(params: JsonObject) -> JsonObject:
        raise RpcError(-32602, "word is missing")

    server = Maker()
    server.creating = refuses
    with pytest.raises(AgentFailed, match="of template maker: word is missing"):
        await outbound(server, template="maker").run(running("maker"))


async def test_a_template_that_is_not_there_and_a_server_without_any() -> None:
    with pytest.raises(NotFound, match="no agent template other; there are: maker"):
        await outbound(Maker(), template="other").describe()
    server = Maker()
    server.capabilities = {"agents": {}}
    with pytest.raises(AgentError, match="no agent templates"):
        await outbound(server, template="maker").describe()


async def settled(server: FakeServer, destroyed: int) -> None:
    """Wait until so many agents were destroyed."""
    async with asyncio.timeout(30):
        while len(server.named("agents/destroy")) < destroyed:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_the_half_is_what_the_gateway_takes_it_for() -> None:
    half: Outbound = AgentCommunicationOutbound(
        AgentCommunicationTarget.model_validate({"protocol": PROTOCOL, "url": "http://127.0.0.1:1/mcp"})
    )
    assert isinstance(half, Supervised)
