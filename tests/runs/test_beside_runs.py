"""What passes beside runs: news of a thread, the client that may be asked, a protocol's own requests."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gateway.contract import RunContext, ThreadContext
from gateway.core import events as e
from gateway.core.errors import AgentGone, Conflict, NotFound, Unavailable, Unsupported
from gateway.core.types import (
    KEPT_UPDATES,
    Agent,
    JsonObject,
    Run,
    Thread,
    ThreadQuery,
    ThreadStatus,
    ThreadUpdate,
    with_update,
)
from tests.support.scripted import Scripted, echo, engine, request, route, until

NOTHING = msgspec.Raw(b"{}")
THREAD = Thread(id="t1", created_at=0.0, updated_at=0.0)


class Client:
    """A caller that remembers what it was asked."""

    protocol = "scripted"
    tools = None

    def __init__(self, answer: bytes = b'"yes"') -> None:
        self.capabilities: JsonObject = {"files": True}
        self.answer = answer
        self.asked: list[tuple[str, bytes]] = []

    async def ask(self, method: str, params: msgspec.Raw) -> msgspec.Raw:
        self.asked.append((method, bytes(params)))
        return msgspec.Raw(self.answer)

    def tell(self, method: str, params: msgspec.Raw) -> None:
        self.asked.append((method, bytes(params)))


class Relaying(Scripted):
    """An agent that takes requests of its protocol's own."""

    def __init__(self) -> None:
        super().__init__(echo)
        self.seen: list[ThreadContext] = []

    async def relay(self, context: ThreadContext, method: str, params: msgspec.Raw) -> msgspec.Raw:
        self.seen.append(context)
        return msgspec.Raw(method.encode().join((b'"', b'"')))

    async def forward(self, context: ThreadContext, method: str, params: msgspec.Raw) -> None:
        self.seen.append(context)


def title(text: str, *, kept: bool = False) -> ThreadUpdate:
    return ThreadUpdate(protocol="scripted", kind="title", data={"title": text}, kept=kept)


async def test_a_thread_s_watcher_hears_of_runs_and_of_updates_between_them() -> None:
    contexts: list[RunContext] = []

    async def agent(context: RunContext) -> None:
        contexts.append(context)
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        await gateway.threads.create(THREAD)
        async with gateway.backchannel.join("t1") as watch:
            started = await gateway.runs.start(request(thread="t1"))
            await gateway.runs.wait(started.id, 30)
            news = await watch.next()
            assert isinstance(news, Run) and news.id == started.id
            contexts[0].note(title("after the turn"))
            assert await watch.next() == ThreadUpdate(
                protocol="scripted", kind="title", data={"title": "after the turn"}, after=started.id
            )
        await gateway.conversations.settled()
        thread = await gateway.threads.get("t1")
        assert [update.data for update in thread.updates] == [{"title": "after the turn"}]


async def test_an_update_with_half_a_character_is_recorded_without_it() -> None:
    contexts: list[RunContext] = []

    async def agent(context: RunContext) -> None:
        contexts.append(context)
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        await gateway.threads.create(THREAD)
        started = await gateway.runs.start(request(thread="t1"))
        await gateway.runs.wait(started.id, 30)
        contexts[0].note(title("half \ud83d"))
        await gateway.conversations.settled()
        assert [update.data for update in (await gateway.threads.get("t1")).updates] == [{"title": "half "}]


async def test_an_update_in_a_turn_is_an_event_of_the_run_in_its_place_and_no_news() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="a"))
        context.note(title("new"))
        context.emit(e.PartDelta(part="text", delta="b"))
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        await gateway.threads.create(THREAD)
        async with gateway.backchannel.join("t1") as watch:
            started = await gateway.runs.start(request(thread="t1"))
            await gateway.runs.wait(started.id, 30)
            events = [event for _, event in await gateway.runs.events(started.id)]
            told = [event for event in events if isinstance(event, e.PartDelta | e.Custom)]
            assert told[1] == e.Custom(name="scripted", data={"title": "new"})
            assert len(told) == 3 and isinstance(told[2], e.PartDelta)
            assert isinstance(await watch.next(), Run)
            gateway.conversations.watchers.tell("t1", title("later"))
            news = await watch.next()  # the update of the turn would have come first
            assert isinstance(news, ThreadUpdate) and news.data == {"title": "later"}


async def test_an_update_and_the_run_s_end_do_not_overwrite_each_other(tmp_path: Path) -> None:
    async def agent(context: RunContext) -> None:
        for number in range(20):
            context.note(title(str(number)))
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent)), file=tmp_path / "runs.db") as gateway:
        await gateway.threads.create(THREAD)
        started = await gateway.runs.start(request(thread="t1"))
        await gateway.runs.wait(started.id, 30)
        await gateway.conversations.settled()
        thread = await gateway.threads.get("t1")
        assert thread.status is ThreadStatus.IDLE
        assert [update.data for update in thread.updates] == [{"title": "19"}]
        assert thread.checkpoint is not None


def test_only_the_newest_of_a_kind_is_kept_unless_every_one_counts() -> None:
    updates: tuple[ThreadUpdate, ...] = ()
    for number in range(3):
        updates = with_update(updates, title(str(number)))
    assert [update.data["title"] for update in updates] == ["2"]
    for number in range(KEPT_UPDATES + 5):
        updates = with_update(updates, title(f"kept {number}", kept=True))
    kept = [update for update in updates if update.kept]
    assert len(kept) == KEPT_UPDATES and kept[0].data == {"title": "kept 5"}
    assert [update.data["title"] for update in updates if not update.kept] == ["2"]


async def test_an_agent_asks_the_client_that_joined_last_and_none_once_all_have_left() -> None:
    answers: list[object] = []

    async def agent(context: RunContext) -> None:
        caller = context.caller
        answers.append(bytes(await caller.ask("read", msgspec.Raw(b"{}"))) if caller else None)
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        await gateway.threads.create(THREAD)

        async def turn() -> None:
            started = await gateway.runs.start(request(thread="t1"))
            await gateway.runs.wait(started.id, 30)

        async with gateway.backchannel.join("t1", Client(b"1")):
            async with gateway.backchannel.join("t1", Client(b"2")), gateway.backchannel.join("t1"):
                await turn()
            await turn()
        await turn()
    assert answers == [b"2", b"1", None]


async def test_what_is_noted_beside_runs_stands_after_the_newest_of_them() -> None:
    relaying = Relaying()
    async with engine((route(), relaying)) as gateway:
        await gateway.threads.create(THREAD)
        ids: list[str | None] = [None]
        for _ in range(2):
            await gateway.backchannel.relay("scripted", "scripted", "look", msgspec.Raw(b"{}"), thread="t1")
            relaying.seen[-1].note(title("beside", kept=True))
            ids.append((await gateway.runs.start(request(thread="t1"))).id)
            await gateway.runs.wait(str(ids[-1]), 30)
        await gateway.conversations.settled()
        assert [update.after for update in (await gateway.threads.get("t1")).updates] == ids[:2]


async def test_a_request_of_the_protocol_s_own_reaches_an_agent_of_that_protocol_alone() -> None:
    relaying = Relaying()
    other = route("other")
    async with engine((route(), relaying), (other, Scripted(echo))) as gateway:
        await gateway.threads.create(THREAD)
        client = Client()
        said = await gateway.backchannel.relay("scripted", "scripted", "mode/set", msgspec.Raw(b"{}"), caller=client)
        assert bytes(said) == b'"mode/set"' and relaying.seen[-1].caller is client
        await gateway.backchannel.forward("scripted", "scripted", "note", msgspec.Raw(b"{}"), thread="t1")
        await relaying.seen[-1].set_thread({"session": "s1"})
        assert (await gateway.threads.get("t1")).upstream == {"scripted": {"session": "s1"}}
        with pytest.raises(Unsupported):
            await gateway.backchannel.relay("other", "scripted", "mode/set", msgspec.Raw(b"{}"))
        with pytest.raises(Unsupported):
            await gateway.backchannel.relay("scripted", "another", "mode/set", msgspec.Raw(b"{}"))
        with pytest.raises(NotFound):
            await gateway.backchannel.relay("scripted", "scripted", "mode/set", msgspec.Raw(b"{}"), thread="unknown")


async def test_a_thread_that_begins_with_a_request_is_stored_once_with_what_its_agent_says_of_it() -> None:
    class Begins(Relaying):
        async def relay(self, context: ThreadContext, method: str, params: msgspec.Raw) -> msgspec.Raw:
            await context.set_thread({"session": "s1"})
            context.note(title("half \ud83d"))
            assert len(await gateway.threads.list(ThreadQuery())) == (method == "again")
            if method == "refuse":
                raise Unavailable("no")
            return await super().relay(context, method, params)

    begins = Begins()
    async with engine((route(), begins)) as gateway, gateway.backchannel.join("t1") as watch:
        with pytest.raises(Unavailable):
            await gateway.backchannel.relay("scripted", "scripted", "refuse", NOTHING, thread=THREAD)
        await gateway.backchannel.relay("scripted", "scripted", "make", NOTHING, thread=THREAD)
        stored = await gateway.threads.get("t1")
        assert stored.upstream == {"scripted": {"session": "s1"}}
        assert [update.data for update in stored.updates] == [{"title": "half "}]
        assert [await watch.next() for _ in range(2)] == [title("half \ud83d")] * 2
        begins.seen[-1].note(title("later"))
        await gateway.conversations.settled()
        assert [update.data for update in (await gateway.threads.get("t1")).updates] == [{"title": "later"}]
        await gateway.backchannel.relay("scripted", "scripted", "again", NOTHING, thread=THREAD)
        assert (await gateway.threads.get("t1")).upstream == stored.upstream, "as if another process had stored it"
        with pytest.raises(Conflict):
            other = replace(THREAD, attributes={"mark": "another's"})
            await gateway.backchannel.relay("scripted", "scripted", "again", NOTHING, thread=other)


async def test_a_watcher_that_lags_loses_the_oldest_updates_and_no_run() -> None:
    async with engine((route(), Scripted(echo))) as gateway:
        await gateway.threads.create(THREAD)
        async with gateway.backchannel.join("t1") as watch:
            started = await gateway.runs.start(request(thread="t1"))
            await gateway.runs.wait(started.id, 30)
            for number in range(1500):
                gateway.conversations.watchers.tell("t1", title(str(number)))
            news = [await watch.next() for _ in range(1000)]
            assert isinstance(news[0], Run)
            assert isinstance(news[-1], ThreadUpdate) and news[-1].data == {"title": "1499"}


async def test_an_inbound_counts_what_it_could_not_say_on_the_run() -> None:
    async def agent(context: RunContext) -> None:
        await until(lambda: bool(counted))
        context.emit(e.RunFinished())

    counted: list[bool] = []
    async with engine((route(), Scripted(agent))) as gateway:
        started = await gateway.runs.start(request())
        gateway.runs.lost(started.id, "custom", 2)
        counted.append(True)
        ended = await gateway.runs.wait(started.id, 30)
        assert ended is not None and ended.losses == {"custom": 2}
        gateway.runs.lost(started.id, "custom")  # too late, and harmless


async def test_an_agent_of_another_protocol_is_asked_nothing_unless_a_session_is_begun_with_it() -> None:
    class Down(Scripted):
        async def describe(self) -> Agent:
            raise AgentGone("nobody is there")

    async with engine((route(), Down(echo))) as gateway:
        await gateway.threads.create(THREAD)
        with pytest.raises(Unsupported):
            await gateway.backchannel.relay("scripted", "another", "make", msgspec.Raw(b"{}"))
        with pytest.raises(AgentGone):
            await gateway.backchannel.relay("scripted", "another", "make", msgspec.Raw(b"{}"), thread="t1")
