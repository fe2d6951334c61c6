"""Clients of another process are asked and told by agents of this one, and a conversation is served where it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from gateway.contract import Caller, RunContext, ThreadContext
from gateway.core.errors import NotFound, Unavailable, Unsupported
from gateway.core.types import JsonObject, Run, RunStatus, Thread, ThreadUpdate
from gateway.runs import Engine, callers
from gateway.store.sqlite import SqliteStore
from gateway.wire.jsonrpc import RpcError
from tests.support.scripted import Scripted, echo, engine, request, route, until

THREAD = Thread(id="t", created_at=0, updated_at=0)
ASKED = Raw(b'{"path":"x"}')


class Client:
    """A client that answers `yes`, does not know `no`, and never answers `never`."""

    protocol = "scripted"
    tools = None

    def __init__(self, **capabilities: Any) -> None:
        self.capabilities: JsonObject = capabilities
        self.asked: list[tuple[str, bytes]] = []
        self.given_up = asyncio.Event()

    async def ask(self, method: str, params: Raw) -> Raw:
        self.asked.append((method, bytes(params)))
        if method == "no":
            raise RpcError(-32601, "what?", {"method": "no"})
        if method == "never":
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.set()
        return Raw(b'"yes"')

    def tell(self, method: str, params: Raw) -> None:
        self.asked.append((method, bytes(params)))


class Holder(Scripted):
    """An agent that has its conversations open in one process."""

    def __init__(self, script: Any = echo) -> None:
        super().__init__(script)
        self.release: Callable[[], None] | None = None
        self.beside: list[tuple[str, str | None]] = []

    async def run(self, context: RunContext) -> None:
        self.release = self.release or context.hold()
        await super().run(context)

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        self.beside.append((method, None if context.thread is None else context.thread.id))
        if method == "refuse":
            raise RpcError(-32000, "no")
        if context.caller is not None and method == "ask":
            return await context.caller.ask("may I?", params)
        context.note(ThreadUpdate(protocol="scripted", kind="said", data=method, kept=True))
        return params

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        self.beside.append((method, None if context.thread is None else context.thread.id))


@asynccontextmanager
async def two(file: Path, script: Any = echo) -> AsyncIterator[tuple[Engine, Engine, Holder, Holder]]:
    """Two engines on one file, and each one's half of the agent."""
    halves = Holder(script), Holder(script)
    async with (
        engine((route(), halves[0]), store=SqliteStore(file, host="here")) as one,
        engine((route(), halves[1]), store=SqliteStore(file, host="there")) as other,
    ):
        await one.threads.create(THREAD)
        await until(lambda: other.process in one._lobby._there and one.process in other._lobby._there)
        yield one, other, *halves


async def ended(gateway: Engine, **fields: Any) -> Run:
    done = await gateway.runs.wait((await gateway.runs.start(request("hi", thread="t", **fields))).id, 30)
    assert done is not None
    return done


async def held(one: Engine, other: Engine, so: bool = True) -> None:
    """The other knows that one has the conversation, or has it no more."""
    there = other._lobby._there
    await until(lambda: one.process in there and (("t", "scripted") in there[one.process].held) is so)


async def known(gateway: Engine, number: int = 1) -> list[Caller]:
    """The thread's callers there, once there are so many."""
    found = gateway.conversations.watchers.callers
    await until(lambda: len(found("t")) == number)
    return found("t")


async def test_an_agent_asks_and_tells_a_client_that_is_at_another_process(tmp_path: Path) -> None:
    async with two(tmp_path / "s.db") as (one, other, _, __):
        client = Client(files=True)
        async with other.backchannel.join("t", client), one.backchannel.join("t", near := Client()):
            far, near_ = await known(one, 2) if (await known(one, 2))[0] is not near else (await known(one, 2))[::-1]
            assert near_ is near and (far.protocol, far.capabilities) == ("scripted", {"files": True})
            assert bytes(await far.ask("read", ASKED)) == b'"yes"'
            with pytest.raises(RpcError) as refused:
                await far.ask("no", ASKED)
            assert (refused.value.error.code, refused.value.error.data) == (-32601, {"method": "no"})
            far.tell("note", ASKED)
            await until(lambda: len(client.asked) == 3)
            assert [method for method, _ in client.asked] == ["read", "no", "note"]
            asking = asyncio.create_task(far.ask("never", ASKED))
            await until(lambda: len(client.asked) == 4)
            asking.cancel()
            await client.given_up.wait()
        await known(one, 0)
        with pytest.raises(Unavailable, match="has gone"):
            await far.ask("read", ASKED)


async def test_the_client_of_a_run_that_is_driven_elsewhere_is_asked_until_the_run_has_ended(tmp_path: Path) -> None:
    told: list[bytes] = []

    async def asks(context: RunContext) -> None:
        assert context.caller is not None
        told.append(bytes(await context.caller.ask("read", ASKED)))
        await echo(context)

    async with two(tmp_path / "s.db", asks) as (one, other, _, __):
        hold = one._lobby.hold("t", "scripted")
        await held(one, other)
        started = await other.runs.start(request("hi", thread="t"), caller=(client := Client()))
        assert await one.store.owner_of(started.id) == one.process
        done = await other.runs.wait(started.id, 30)
        assert done is not None and done.status is RunStatus.SUCCESS and told == [b'"yes"']
        assert client.asked == [("read", bytes(ASKED))]
        await until(lambda: not other._lobby._lent)
        hold()


async def test_who_watches_a_thread_hears_what_happens_in_another_process(tmp_path: Path) -> None:
    async with two(tmp_path / "s.db") as (one, other, here, _):
        async with other.backchannel.join("t") as watch:
            await until(lambda: "t" in one.conversations.watchers._by_thread)
            done = await ended(one)
            news = await watch.next()
            assert isinstance(news, Run) and news.id == done.id
            here.contexts[0].note(title := ThreadUpdate(protocol="scripted", kind="title", data="new"))
            assert await watch.next() == msgspec.structs.replace(title, after=done.id)
        await until(lambda: "t" not in one.conversations.watchers._by_thread)


async def test_a_conversation_that_one_process_has_open_is_gone_on_with_there_until_it_is_closed(
    tmp_path: Path,
) -> None:
    async with two(tmp_path / "s.db") as (one, other, here, there):
        await ended(one)
        await held(one, other)
        done = await ended(other)
        assert len(here.contexts) == 2 and not there.contexts and done.status is RunStatus.SUCCESS
        history: list[ThreadUpdate] = []
        relay = other.backchannel.relay
        answer = await relay("scripted", "scripted", "load", ASKED, thread="t", told=history.append)
        assert bytes(answer) == bytes(ASKED) and [update.data for update in history] == ["load"]
        async with other.backchannel.join("t", client := Client()):
            await known(one)
            assert bytes(await relay("scripted", "scripted", "ask", ASKED, thread="t")) == b'"yes"'
            assert [method for method, _ in client.asked] == ["may I?"]
        with pytest.raises(RpcError) as refused:
            await relay("scripted", "scripted", "refuse", ASKED, thread="t")
        assert refused.value.error.code == -32000
        await other.backchannel.forward("scripted", "scripted", "note", ASKED, thread="t")
        await until(lambda: len(here.beside) == 4)
        assert here.beside == [("load", "t"), ("ask", "t"), ("refuse", "t"), ("note", "t")] and not there.beside
        await relay("scripted", "scripted", "login", ASKED)
        assert there.beside == [("login", None)], "what concerns no conversation"
        assert here.release is not None
        here.release()
        here.release()
        await held(one, other, False)
        await ended(other)
        assert len(there.contexts) == 1


async def test_a_thread_that_begins_at_another_process_is_stored_there_with_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path / "s.db") as (one, other, here, there):

        async def place(*_: object) -> str:
            return one.process

        monkeypatch.setattr(other._lobby, "place", place)
        new = Thread(id="new", created_at=0, updated_at=0)
        with pytest.raises(Unsupported):
            await other.backchannel.relay("scripted", "another", "make", ASKED, thread=new)
        with pytest.raises(RpcError):
            await other.backchannel.relay("scripted", "scripted", "refuse", ASKED, thread=new)
        assert here.beside == [("refuse", "new")]
        with pytest.raises(NotFound):
            await other.threads.get("new")
        await other.backchannel.relay("scripted", "scripted", "make", ASKED, thread=new)
        assert here.beside[1:] == [("make", "new")] and not there.beside
        assert [update.data for update in (await other.threads.get("new")).updates] == ["make"]


async def test_a_thread_that_begins_at_a_process_of_another_version_is_refused_as_what_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = msgspec.defstruct("RelayRequest", [("agent", str), ("thread", str | None, None)])
    async with two(tmp_path / "s.db") as (one, other, here, _):

        async def place(*_: object) -> str:
            return one.process

        monkeypatch.setattr(other._lobby, "place", place)
        one.post.serve(older, place)
        new = Thread(id="new", created_at=0, updated_at=0)
        with pytest.raises(Unavailable, match="a version that does not take this RelayRequest; try again"):
            await other.backchannel.relay("scripted", "scripted", "make", ASKED, thread=new)
        with pytest.raises(NotFound):
            await other.threads.get("new")
        assert not here.beside


async def test_a_conversation_of_a_process_that_has_died_is_gone_on_with_by_whoever_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.db"
    monkeypatch.setattr(callers, "LOOK_SECONDS", 60.0)
    async with engine((route(), there := Holder()), store=SqliteStore(file, host="there")) as other:
        async with engine((route(), Holder()), store=SqliteStore(file, host="here")) as one:
            await one.threads.create(THREAD)
            await until(lambda: other.process in one._lobby._there)
            one._lobby.hold("t", "scripted")
            await held(one, other)
        assert one.process in other._lobby._there
        for _ in range(2):  # which is not noticed before it is asked
            assert (await ended(other)).status is RunStatus.SUCCESS
        assert len(there.contexts) == 2
        assert bytes(await other.backchannel.relay("scripted", "scripted", "x", ASKED, thread="t")) == bytes(ASKED)


async def test_changes_that_were_missed_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(tmp_path / "s.db") as (one, other, _, __):
        tell = other.post.tell
        monkeypatch.setattr(other.post, "tell", lambda process, call: None)
        async with other.backchannel.join("t", Client()):
            async with other.backchannel.join("t", Client()):
                monkeypatch.setattr(other.post, "tell", tell)
                async with other.backchannel.join("t", Client()):
                    await known(one, 3)
                await known(one, 2)
                monkeypatch.setattr(other.post, "tell", lambda process, call: None)
            monkeypatch.setattr(other.post, "tell", tell)
            other.post.tell(one.process, callers.ChangeCount(other._lobby._changes))
            await known(one, 1)
        await known(one, 0)


async def test_a_process_that_starts_later_knows_who_is_there_and_forgets_who_has_gone(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with engine((route(), Holder()), store=SqliteStore(file, host="here")) as one:
        await one.threads.create(THREAD)
        async with engine((route(), Holder()), store=SqliteStore(file, host="there")) as other:
            joined = other.backchannel.join("t", Client())
            await joined.__aenter__()
            await known(one, 1)
            async with engine((route(), Holder()), store=SqliteStore(file, host="a third")) as third:
                await known(third, 1)
        await known(one, 0)
        await joined.__aexit__(None, None, None)


async def test_whoever_has_not_heard_yet_that_a_conversation_is_open_elsewhere_reads_it_in_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def records(context: RunContext) -> None:
        await context.set_thread({"session": "s"})
        await echo(context)

    async with two(tmp_path / "s.db", records) as (one, other, here, there):
        tell = one.post.tell
        monkeypatch.setattr(one.post, "tell", lambda process, call: None)
        await ended(one)
        await ended(other)
        assert len(here.contexts) == 2 and not there.contexts
        assert here.release is not None
        here.release()
        monkeypatch.setattr(one.post, "tell", tell)
        one.post.tell(other.process, callers.ChangeCount(one._lobby._changes))
        await until(lambda: other._lobby._there[one.process].knows(one._lobby._changes))
        await ended(other)
        assert len(there.contexts) == 1, "it has been told that it is open no more"
