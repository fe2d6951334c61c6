"""`ScopedGateway` as inbound halves use it: another client's work and agents are answered as if there were none.

The doors are tested with it in test_whose.py; here is every method, those too that only one protocol's door calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.access import Authenticator, Principal, ScopedGateway, Visit
from gateway.access.scoped_gateway import ScopedAgents, ScopedBackchannel, ScopedFiles, ScopedRuns, ScopedThreads
from gateway.contract import (
    Gateway,
    GatewayAgents,
    GatewayBackchannel,
    GatewayFiles,
    GatewayRuns,
    GatewayThreads,
    RunContext,
    next_batch,
)
from gateway.core import events as e
from gateway.core.errors import Conflict, NotFound, Unauthenticated
from gateway.core.types import (
    OWNER,
    Agent,
    Answer,
    Artifact,
    Identity,
    Interrupt,
    RunQuery,
    RunStatus,
    Thread,
    ThreadQuery,
    agent_id,
)
from gateway.runs import Engine
from tests.support.aio import Clock, later, on
from tests.support.scripted import AGENT, Scripted, echo, engine, request, route

PROTOCOL = "scripted"
ANA = Principal(Identity(id="ana"))
BOB = Principal(Identity(id="bob"), agents=("echo", "ask*"), tools=("re*",))
OLGA = Principal(Identity(id="olga"), oversees=True)
UNKNOWN = "00000000-0000-4000-8000-000000000000"
NOTHING = msgspec.Raw(b"{}")
PARTS: tuple[tuple[type, type], ...] = (
    (Gateway, ScopedGateway),
    (GatewayRuns, ScopedRuns),
    (GatewayThreads, ScopedThreads),
    (GatewayFiles, ScopedFiles),
    (GatewayAgents, ScopedAgents),
    (GatewayBackchannel, ScopedBackchannel),
)
METHODS = [
    (name, part, scoped)
    for part, scoped in PARTS
    for name, each in sorted(vars(part).items())
    if inspect.isfunction(each) and not name.startswith("_")
]

Call = Callable[[Gateway, str], Awaitable[Any]]


class Talking(Scripted):
    """An agent that can be asked beside runs. `heard`: what it was asked, described included."""

    def __init__(self, script: Callable[[RunContext], Awaitable[None]]) -> None:
        super().__init__(script)
        self.heard: list[str] = []

    async def describe(self) -> Agent:
        self.heard.append("describe")
        return AGENT

    async def relay(self, context: Any, method: str, params: msgspec.Raw) -> msgspec.Raw:
        self.heard.append(method)
        return params

    async def forward(self, context: Any, method: str, params: msgspec.Raw) -> None:
        self.heard.append(method)


async def asker(context: RunContext) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    answer = await context.ask(Interrupt(id="q1", kind="input", message="Is it?", answer_schema=schema))
    context.emit(e.PartDelta(part="text", delta=answer.by.id if answer.by else "nobody"), e.RunFinished())


@contextlib.asynccontextmanager
async def house() -> AsyncIterator[tuple[Engine, dict[str, Talking]]]:
    """`echo`, `asker`, and `secret`, which Bob may not use."""
    agents = {"echo": Talking(echo), "asker": Talking(asker), "secret": Talking(echo)}
    async with engine(*((route(name), agent) for name, agent in agents.items())) as running:
        yield running, agents


def scoped(running: Gateway, who: Principal) -> ScopedGateway:
    return ScopedGateway(running, Visit(Authenticator(None), who))


async def content(text: bytes = b"secret") -> AsyncIterator[bytes]:
    yield text


async def entered(context: contextlib.AbstractAsyncContextManager[Any]) -> None:
    async with context:
        pass


async def read(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


def uploaded(**where: str) -> Artifact:
    return Artifact(id="", name="a.txt", media_type="text/plain", size=0, created_at=0.0, **where)


OF_RUNS: dict[str, Call] = {
    "run": lambda gateway, id: gateway.runs.get(id),
    "events": lambda gateway, id: gateway.runs.events(id),
    "watch": lambda gateway, id: entered(gateway.runs.watch(id)),
    "artifacts": lambda gateway, id: gateway.files.list(run=id),
    "add_artifact": lambda gateway, id: gateway.files.add(uploaded(run=id), content()),
    "wait": lambda gateway, id: gateway.runs.wait(id, 0),
    "ended": lambda gateway, id: gateway.runs.ended(id, ()),
    "answer": lambda gateway, id: gateway.runs.answer(id, Answer(value={"ok": True})),
    "cancel": lambda gateway, id: gateway.runs.cancel(id),
    "delete_run": lambda gateway, id: gateway.runs.delete(id),
}
OF_THREADS: dict[str, Call] = {
    "thread": lambda gateway, id: gateway.threads.get(id),
    "start": lambda gateway, id: gateway.runs.start(request(agent="echo", protocol=PROTOCOL, thread=id)),
    "history": lambda gateway, id: gateway.threads.history(id),
    "join": lambda gateway, id: entered(gateway.backchannel.join(id)),
    "relay": lambda gateway, id: gateway.backchannel.relay("echo", PROTOCOL, "_x/ask", NOTHING, thread=id),
    "forward": lambda gateway, id: gateway.backchannel.forward("echo", PROTOCOL, "_x/tell", NOTHING, thread=id),
    "artifacts": lambda gateway, id: gateway.files.list(thread=id),
    "add_artifact": lambda gateway, id: gateway.files.add(uploaded(thread=id), content()),
    "update_thread": lambda gateway, id: gateway.threads.update(id, metadata={"mark": 1}),
    "patch": lambda gateway, id: gateway.threads.patch(id, metadata={"mark": 1}),
    "state": lambda gateway, id: gateway.threads.state(id),
    "states": lambda gateway, id: gateway.threads.states(id),
    "copy_thread": lambda gateway, id: gateway.threads.copy(id),
    "delete_thread": lambda gateway, id: gateway.threads.delete(id),
}
OF_AGENTS: dict[str, Call] = {
    "agent": lambda gateway, name: gateway.agents.get(name, PROTOCOL),
    "extension": lambda gateway, name: asyncio.to_thread(gateway.agents.extension, name, PROTOCOL, "governor"),
    "create_agent": lambda gateway, name: gateway.agents.create(name, PROTOCOL, {}),
    "destroy_agent": lambda gateway, name: gateway.agents.destroy(name, PROTOCOL),
    "start": lambda gateway, name: gateway.runs.start(request(agent=name, protocol=PROTOCOL)),
    "relay": lambda gateway, name: gateway.backchannel.relay(name, PROTOCOL, "_x/ask", NOTHING),
    "forward": lambda gateway, name: gateway.backchannel.forward(name, PROTOCOL, "_x/tell", NOTHING),
}


OF_ONE = {"run_id": OF_RUNS, "thread_id": OF_THREADS}


async def same(call: Call, gateway: Gateway, id: str, unknown: str = UNKNOWN) -> None:
    """It is answered as for an id that there is not."""
    told = []
    for each in (id, unknown):
        with pytest.raises(NotFound) as caught:
            await call(gateway, each)
        told.append(str(caught.value).replace(each, "ID"))
    assert told[0] == told[1]


async def test_nothing_can_be_done_with_a_run_of_somebody_else() -> None:
    async with house() as (running, _):
        for way, call in OF_RUNS.items():
            ana, bob = scoped(running, ANA), scoped(running, BOB)
            made = await ana.runs.start(request(agent="asker", protocol=PROTOCOL))
            await running.runs.wait(made.id, 30)
            before = await running.runs.get(made.id)
            await same(call, bob, made.id)
            assert await running.runs.get(made.id) == before and before.status is RunStatus.INTERRUPTED, way
            assert await running.files.list(run=made.id) == []
            await call(ana, made.id)


async def test_nothing_can_be_done_with_a_thread_of_somebody_else() -> None:
    async with house() as (running, agents):
        for way, call in OF_THREADS.items():
            ana, bob = scoped(running, ANA), scoped(running, BOB)
            made = await ana.threads.create(Thread(id=f"thread-{way}", created_at=0, updated_at=0))
            agents["echo"].heard.clear()
            await same(call, bob, made.id)
            assert await running.threads.get(made.id) == made, way
            assert await running.runs.count(RunQuery(thread=made.id)) == 0
            assert await running.files.list(thread=made.id) == [] and agents["echo"].heard == []
            await call(ana, made.id)


@pytest.mark.parametrize("way", OF_AGENTS)
async def test_an_agent_that_a_client_may_not_use_is_not_asked_anything_by_whichever_name(way: str) -> None:
    async with house() as (running, agents):
        bob, id = scoped(running, BOB), agent_id("secret")
        for name in ("secret", id, id.upper(), id.replace("-", ""), f"{{{id}}}"):
            await same(OF_AGENTS[way], bob, name, "nobody")
        assert agents["secret"].heard == [] and await running.runs.count(RunQuery()) == 0
        with pytest.raises(NotFound, match="no agent 'secret'; have echo, asker"):
            await OF_AGENTS[way](bob, "secret")
        none = scoped(running, Principal(Identity(id="zoe"), agents=()))
        with pytest.raises(NotFound, match="no agent 'echo'; have none"):
            await OF_AGENTS[way](none, "echo")


async def test_an_agent_is_there_for_its_clients_by_its_id_as_by_its_name() -> None:
    async with house() as (running, _):
        bob = scoped(running, BOB)
        for name in ("echo", agent_id("echo"), agent_id("echo").upper()):
            assert (await bob.agents.get(name, PROTOCOL)).name == "echo"
            assert bob.agents.extension(name, PROTOCOL, "governor") is None
            made = await bob.runs.start(request(agent=name, protocol=PROTOCOL))
            assert (made.agent, made.request.principal, made.request.tools) == ("echo", "bob", ("re*",))
        assert bob.agents.names(PROTOCOL) == ["echo", "asker"]
        assert [agent.name for agent in await bob.agents.list(PROTOCOL)] == ["echo", "asker"]
        for who, reachable in ((BOB, [True, False, False]), (ANA, [True, True, False])):
            await running.agents.list(PROTOCOL)
            there = scoped(running, who)
            assert [there.agents.reachable(name, PROTOCOL) for name in ("echo", "secret", "nobody")] == reachable


async def test_an_agent_that_was_created_at_another_gateway_is_its_owners_here_too(tmp_path: Path) -> None:
    tone = {"type": "object", "properties": {"tone": {"type": "string"}}}
    makers = [Scripted(echo, agent=msgspec.structs.replace(AGENT, config_schema=tone)) for _ in range(2)]

    file = tmp_path / "s.db"
    async with (
        engine((route("maker"), makers[0]), file=file) as here,
        engine((route("maker"), makers[1]), file=file) as there,
    ):
        for way, call in (("agent", OF_AGENTS["agent"]), ("start", OF_AGENTS["start"])):
            made = await scoped(there, ANA).agents.create("maker", PROTOCOL, {"tone": way})
            bob = scoped(here, Principal(Identity(id="bob")))
            await same(call, bob, made.name, "nobody")
            made = await scoped(there, ANA).agents.create("maker", PROTOCOL, {"tone": way})
            found = await call(scoped(here, ANA), made.name)
            assert made.name == (found.name if way == "agent" else found.agent)


async def test_a_run_on_ones_own_thread_is_there_whoever_started_it_and_no_run_of_an_agent_that_is_not() -> None:
    async with house() as (running, _):
        ana, olga = scoped(running, ANA), scoped(running, OLGA)
        await ana.threads.create(Thread(id="t1", created_at=0, updated_at=0))
        made = await olga.runs.start(request(agent="secret", protocol=PROTOCOL, thread="t1"))
        alone = await olga.runs.start(request(agent="echo", protocol=PROTOCOL))
        await running.runs.wait(made.id, 30)
        await running.runs.wait(alone.id, 30)
        assert (await ana.runs.get(made.id)).id == made.id
        assert [each.id for each in await ana.runs.list(RunQuery(thread="t1"))] == [made.id]
        await same(OF_RUNS["run"], ana, alone.id)
        narrow = scoped(running, Principal(Identity(id="ana"), agents=("echo",)))
        await same(OF_RUNS["run"], narrow, made.id)
        assert (
            await narrow.runs.list(RunQuery(thread="t1")) == [] and await narrow.runs.count(RunQuery(thread="t1")) == 0
        )
        for id in ("t2", "t3"):
            agent = "secret" if id == "t2" else "echo"
            await ana.threads.create(Thread(id=id, created_at=0, updated_at=0, agent=agent))
        await same(OF_THREADS["thread"], narrow, "t2")
        assert {each.id for each in await narrow.threads.list(ThreadQuery())} == {"t1", "t3"}


async def test_a_page_is_filled_with_what_a_client_may_see_however_much_of_it_it_may_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.access.scoped_gateway.PAGE", 2)

    async with house() as (running, _):
        for number in range(9):
            agent = "secret" if number in (1, 2, 3, 6) else "echo"
            await scoped(running, ANA).threads.create(
                Thread(id=f"t{number}", created_at=number, updated_at=number, agent=agent)
            )
        narrow = scoped(running, Principal(Identity(id="ana"), agents=("echo",)))
        pages = [await narrow.threads.list(ThreadQuery(limit=3, offset=offset)) for offset in (0, 3, 6)]
        assert [[thread.id for thread in page] for page in pages] == [["t8", "t7", "t5"], ["t4", "t0"], []]
        assert await narrow.threads.count(ThreadQuery(limit=3, offset=3)) == 5


async def test_a_thread_that_is_deleted_shows_its_former_owner_no_run_of_others() -> None:
    async with house() as (running, _):
        ana, olga = scoped(running, ANA), scoped(running, OLGA)
        await ana.threads.create(Thread(id="t1", created_at=0, updated_at=0))
        made = await olga.runs.start(request(agent="echo", protocol=PROTOCOL, thread="t1"))
        await running.runs.wait(made.id, 30)
        await ana.threads.delete("t1")
        await same(OF_RUNS["run"], ana, made.id)
        assert await ana.runs.list(RunQuery(thread="t1")) == [] and (await olga.runs.get(made.id)).id == made.id


async def test_a_client_does_with_its_own_what_the_gateway_can() -> None:
    async with house() as (running, agents):
        ana = scoped(running, ANA)
        asked = await ana.runs.start(request(agent="asker", protocol=PROTOCOL))
        cancelled = await ana.runs.cancel(asked.id, reason="enough", wait=True)
        assert (cancelled.status, cancelled.cancel_reason) == (RunStatus.CANCELLED, "enough")
        assert await ana.runs.events(asked.id) == await running.runs.events(asked.id) != []
        await ana.runs.delete(asked.id)
        with pytest.raises(NotFound):
            await running.runs.get(asked.id)
        await ana.threads.create(Thread(id="t1", created_at=0, updated_at=0))
        changed = await ana.threads.update("t1", metadata={"a": 1}, attributes={"kind": "x"})
        assert changed == await running.threads.get("t1") and changed.metadata == {"a": 1}
        assert changed.attributes == {OWNER: "ana", "kind": "x"}
        changed = await ana.threads.patch("t1", metadata={"b": 2}, values={"v": 1})
        assert changed == await running.threads.get("t1") and changed.metadata == {"a": 1, "b": 2}
        state, states = await ana.threads.state("t1"), await ana.threads.states("t1")
        assert state == await running.threads.state("t1") and states == await running.threads.states("t1")
        history = await ana.threads.history("t1")
        assert history == await running.threads.history("t1") != []
        params = msgspec.Raw(b'{"x":1}')
        for thread in (None, "t1"):
            assert bytes(await ana.backchannel.relay("echo", PROTOCOL, "_x/ask", params, thread=thread)) == b'{"x":1}'
            await ana.backchannel.forward("echo", PROTOCOL, "_x/tell", params, thread=thread)
        assert [heard for heard in agents["echo"].heard if heard != "describe"] == ["_x/ask", "_x/tell"] * 2
        await ana.threads.delete("t1")
        with pytest.raises(NotFound):
            await running.threads.get("t1")
        await ana.backchannel.relay(
            "echo", PROTOCOL, "_x/ask", params, thread=Thread(id="t2", created_at=0, updated_at=0)
        )
        assert (await running.threads.get("t2")).attributes == {OWNER: "ana"}


async def test_an_agent_that_does_not_take_the_request_is_refused_with_the_names_of_ones_own() -> None:
    choosy = route("choosy", match={"metadata": {"x": 1}})
    agents = ((choosy, Talking(echo)), (route("secret"), Talking(echo)))
    async with engine(*agents) as running:
        zoe = scoped(running, Principal(Identity(id="zoe"), agents=("choosy",)))
        await zoe.threads.create(Thread(id="t1", created_at=0, updated_at=0))
        for thread in (None, "t1"):
            with pytest.raises(NotFound, match=r"^no agent 'choosy'; have choosy$"):
                await zoe.runs.start(request(agent="choosy", protocol=PROTOCOL, thread=thread))
        assert await zoe.runs.start(request(agent="choosy", protocol=PROTOCOL, metadata={"x": 1}))

        async def gone(*args: Any, **options: Any) -> Any:
            await running.threads.delete("t1")
            raise NotFound("no thread t1")

        running.runs.start = gone  # type: ignore[method-assign]
        with pytest.raises(NotFound, match=r"^no thread t1$"):
            await zoe.runs.start(request(agent="choosy", protocol=PROTOCOL, thread="t1", metadata={"x": 1}))


async def test_a_file_is_there_for_whom_its_run_or_thread_is() -> None:
    async with house() as (running, _):
        ana, bob, olga = (scoped(running, each) for each in (ANA, BOB, OLGA))
        await ana.threads.create(Thread(id="t1", created_at=0, updated_at=0))
        mine = await ana.runs.start(request(agent="echo", protocol=PROTOCOL, thread="t1"))
        await running.runs.wait(mine.id, 30)
        for where in ({"run": mine.id}, {"thread": "t1"}, {"run": mine.id, "thread": "t1"}):
            file = await ana.files.add(uploaded(**where), content())
            for call in (lambda g, id: g.files.get(id), lambda g, id: read(g.files.open(id))):
                await same(call, bob, file.id)
            for who in (ana, olga):
                assert (await who.files.get(file.id)).id == file.id
                assert await read(who.files.open(file.id)) == b"secret"
        with pytest.raises(NotFound):
            await bob.files.list(run=mine.id, thread="t1")
        his = await bob.threads.create(Thread(id="t2", created_at=0, updated_at=0))
        with pytest.raises(NotFound):
            await bob.files.add(uploaded(run=mine.id, thread=his.id), content())
        done = await bob.runs.start(request(agent="echo", protocol=PROTOCOL))
        with pytest.raises(NotFound):
            await bob.files.add(uploaded(run=done.id, thread="t1"), content())


async def test_a_file_that_is_not_read_to_its_end_is_closed() -> None:
    closed: list[str] = []

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            yield b"two"
        finally:
            closed.append("file")

    async with house() as (running, _):
        ana = scoped(running, ANA)
        await ana.threads.create(Thread(id="t1", created_at=0, updated_at=0))
        file = await ana.files.add(uploaded(thread="t1"), content())
        running.files.open = lambda artifact_id: chunks()  # type: ignore[method-assign]
        async with contextlib.aclosing(ana.files.open(file.id)) as reading:  # type: ignore[type-var]
            assert await anext(reading) == b"one" and not closed
        assert closed == ["file"]


async def test_what_a_client_makes_is_its_own() -> None:
    async with house() as (running, _):
        ana, olga = scoped(running, ANA), scoped(running, OLGA)
        forged = Thread(id="t1", created_at=0, updated_at=0, attributes={OWNER: "bob", "kind": "x"})
        made = await ana.threads.create(forged)
        assert made.attributes == {OWNER: "ana", "kind": "x"}
        assert (await ana.threads.create(forged, or_get=True)).id == "t1"
        with pytest.raises(Conflict):
            await ana.threads.create(forged)
        for who, owner in ((ana, "ana"), (olga, "olga")):
            copy = await who.threads.copy("t1")
            assert copy.attributes[OWNER] == owner and (await running.threads.get(copy.id)).attributes[OWNER] == owner
        asked = await ana.runs.start(request(agent="asker", protocol=PROTOCOL, principal="bob", tools=("*", "all")))
        assert (asked.request.principal, asked.request.tools) == ("ana", ("*",))
        await running.runs.wait(asked.id, 30)
        await olga.runs.answer(asked.id, Answer(value={"ok": True}, by=Identity(id="ana")))
        done = await running.runs.wait(asked.id, 30)
        assert done is not None and msgspec.json.decode(done.output or b"") == {"message": "olga"}


@on(Clock)
async def test_whoever_waits_with_a_token_that_expires_hears_what_happens_before_and_then_that_it_has_expired() -> None:
    now, go = 1000.0, asyncio.Event()

    async def slow(context: RunContext) -> None:
        await go.wait()
        await echo(context)

    async with engine((route("slow"), Scripted(slow))) as running:
        people = Authenticator(None, lambda: now)
        ana = ScopedGateway(running, Visit(people, Principal(Identity(id="ana"), expires=1100.0)))
        made = await ana.runs.start(request(agent="slow", protocol=PROTOCOL))
        assert await ana.runs.wait(made.id, 0.01) is None and await ana.runs.wait(made.id, 0) is None
        async with ana.runs.watch(made.id) as watch:
            assert watch.run.id == made.id
            first = await next_batch(watch, 30)
            assert first is not None and watch.newest == len(await ana.runs.events(made.id)) > 0
            with pytest.raises(TimeoutError):
                await next_batch(watch, 0.01)
            waits = [asyncio.ensure_future(next_batch(watch, after)) for after in (5000,)]
            await later(50)
            go.set()
            assert await waits[0] is not None
        done = await ana.runs.wait(made.id)
        assert done is not None and done.status is RunStatus.SUCCESS
        go.clear()
        other = await ana.runs.start(request(agent="slow", protocol=PROTOCOL))
        async with ana.runs.watch(other.id) as watch, ana.runs.watch(other.id) as bounded:
            await next_batch(watch, 30)
            await next_batch(bounded, 30)
            pending = [
                asyncio.ensure_future(call)
                for call in (
                    next_batch(watch),
                    next_batch(bounded, 5000),
                    ana.runs.wait(other.id),
                    ana.runs.wait(other.id, 5000),
                    ana.runs.ended(other.id, ()),
                )
            ]
            await later(50)
            assert not any(each.done() for each in pending)
            now = 1101.0
            await later(101)
            for each in pending:
                with pytest.raises(Unauthenticated, match="the token has expired"):
                    await each
        go.set()
        lasting = await running.runs.wait(other.id, 30)
        assert lasting is not None and lasting.status is RunStatus.SUCCESS, "the run goes on"


@pytest.mark.parametrize(("method", "part", "scoped"), METHODS)
def test_each_method_is_called_as_the_gateways(method: str, part: type, scoped: type) -> None:
    def shape(owner: type) -> list[tuple[str, Any, Any]]:
        return [
            (each.name, each.kind, each.default)
            for each in inspect.signature(getattr(owner, method)).parameters.values()
        ]

    assert shape(scoped) == shape(part)


@pytest.mark.parametrize("id", OF_ONE)
def test_each_method_for_one_run_or_thread_is_tried_with_that_of_somebody_else(id: str) -> None:
    tried = {name for call in OF_ONE[id].values() for name in call.__code__.co_names}
    taking = {method for method, part, _ in METHODS if id in inspect.signature(getattr(part, method)).parameters}
    assert taking - tried - {"lost"} == set(), "`lost` only counts"


class Behind:
    """A gateway that only writes down what it is asked."""

    public_url = "http://gateway.test"
    process = "this one"

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, Any]] = []
        self.agents = self.runs = self.threads = self.records = self.limits = self

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.asked.append((name, args, options))
            return f"the answer of {name}"

        async def later(*args: Any, **options: Any) -> Any:
            return call(*args, **options)

        return later if name in ("keep", "kept", "forget") else call


async def test_what_concerns_no_client_is_asked_of_the_gateway_as_it_is() -> None:
    behind = Behind()
    there = scoped(behind, BOB)  # type: ignore[arg-type]
    assert (there.process, there.public_url) == ("this one", "http://gateway.test")
    assert there.agents.created("secret") == "the answer of created"  # type: ignore[comparison-overlap]
    assert there.agents.routed("secret") == "the answer of routed"  # type: ignore[comparison-overlap]
    there.agents.hosted_changed("p", ["a"])
    there.agents.noticed("secret", "words")
    assert there.requests("p", ["a"], str, mcp=True) == "the answer of requests"  # type: ignore[arg-type,comparison-overlap]
    there.runs.lost("r1", "words", 2)
    await there.records.keep("p", "n", {"a": 1}, owner="x", expires_at=7.0)
    assert await there.records.kept("p") == "the answer of kept"  # type: ignore[comparison-overlap]
    await there.records.forget("p", "n")
    there.limits.request("p", "bob")
    assert behind.asked == [
        ("created", ("secret",), {}),
        ("routed", ("secret",), {}),
        ("hosted_changed", ("p", ["a"]), {}),
        ("noticed", ("secret", "words"), {}),
        ("requests", ("p", ["a"], str), {"mcp": True}),
        ("lost", ("r1", "words", 2), {}),
        ("keep", ("p", "n", {"a": 1}), {"owner": "x", "expires_at": 7.0}),
        ("kept", ("p",), {}),
        ("forget", ("p", "n"), {}),
        ("request", ("p", "bob"), {}),
    ]
