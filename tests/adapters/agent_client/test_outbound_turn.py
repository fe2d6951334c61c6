"""One prompt to an agent: what it says, how it ends, how it is cancelled."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from adapters.agent_client.outbound import connection
from gateway.core import events as e
from gateway.core.errors import AgentTimeout, Conflict, Invalid, Unavailable, Unsupported
from gateway.core.types import Artifact, StopReason
from tests.adapters.agent_client.outbound_agent import MANUAL, Client, Refusal, chunk, rig, settled, update
from tests.support.aio import Clock, later, on
from tests.support.scripted import until


async def test_what_the_agent_says_is_the_output_and_its_answer_the_end() -> None:
    async with rig() as it:
        context = it.context("hi there")
        await it.turn(context, "Hello ", "you", reason="max_tokens")
        assert context.output == {"message": "Hello you"}
        assert isinstance(context.end, e.RunFinished) and context.end.stop_reason is StopReason.MAX_TOKENS
        [prompt] = it.wire.sent("session/prompt")
        assert prompt["prompt"] == [{"type": "text", "text": "hi there"}]
        assert prompt["sessionId"] == "s1"
        assert prompt["_meta"] == {"traceparent": context.traceparent}
        assert context.upstreams == [{"session": "s1"}]


async def test_initialize_says_who_asks_and_what_clients_of_other_protocols_can_do() -> None:
    async with rig() as it:
        agent = await it.outbound.describe()
        assert agent.extra["agent_client"] == it.initialized
        [hello] = it.wire.sent("initialize")
        assert hello["protocolVersion"] == 1
        assert hello["clientInfo"]["name"] == "interlingua"
        assert hello["clientCapabilities"]["elicitation"] == {"form": {}}
        assert "fs" not in hello["clientCapabilities"] and "terminal" not in hello["clientCapabilities"]


async def test_a_prompt_of_the_same_protocol_is_sent_as_it_came() -> None:
    async with rig() as it:
        blocks = [{"type": "image", "data": "", "mimeType": "image/png", "x": 1}]
        creation = {"sessionId": "t1", "prompt": blocks, "_meta": {"k": 1, "traceparent": "old"}, "new": True}
        context = it.context("", protocol="agent_client", creation=creation)
        await it.turn(context)
        [prompt] = it.wire.sent("session/prompt")
        assert prompt == {**creation, "sessionId": "s1", "_meta": {"k": 1, "traceparent": context.traceparent}}


@pytest.mark.parametrize(
    ("can", "url", "size", "block"),
    [
        ({"image": True}, "", 3, {"type": "image", "data": "UE5H", "mimeType": "image/png"}),
        ({}, "http://gateway/a.png", 3, {"type": "resource_link", "uri": "http://gateway/a.png"}),
        ({"image": True}, "http://gateway/a.png", 1 << 30, {"type": "resource_link", "uri": "http://gateway/a.png"}),
        ({}, "", 3, None),
    ],
    ids=["a block", "no block: a link", "too large: a link", "no block and no address: lost"],
)
async def test_a_clients_file_is_a_block_or_a_link_or_counted(
    can: dict[str, bool], url: str, size: int, block: dict[str, str] | None
) -> None:
    async with rig() as it:
        it.can(promptCapabilities=can)
        context = it.context("look")
        file = Artifact(id="f1", name="a.png", media_type="image/png", size=size, url=url, agent_created=False)
        context.uploaded = [(file, b"PNG")]
        await it.turn(context)
        [prompt] = it.wire.sent("session/prompt")
        text, *blocks = prompt["prompt"]
        assert text == {"type": "text", "text": "look"}
        assert [{key: sent[key] for key in block} for sent in blocks if block] == ([block] if block else [])
        assert len(blocks) == (block is not None)
        assert context.losses == ({} if block else {"file_not_sent": 1})


async def test_what_cannot_be_logged_of_one_run_is_lost_to_that_alone() -> None:
    async with rig() as it:
        one, other = it.context(run="run-1", thread="t1"), it.context(run="run-2", thread="t2")
        tasks = await it.started(one, other)
        emit = one.emit

        def full(*events: e.Event) -> None:
            if any(isinstance(event, e.PartDelta) and event.delta == "lost" for event in events):
                raise Unavailable("the store is closed")
            emit(*events)

        one.emit = full  # type: ignore[method-assign]
        prompts = [await it.wire.prompt() for _ in tasks]
        names = [prompt["params"]["sessionId"] for prompt in prompts]
        for text in ("first", "lost"):
            it.wire.say(*[chunk(name, text) for name in names])
            await settled()
        assert not it.wire.closed
        for prompt in prompts:
            it.wire.end(prompt)
        await asyncio.gather(*tasks)
        assert (one.output, other.output) == ({"message": "first"}, {"message": "firstlost"})
        assert one.losses == {"unreadable": 1}


async def test_content_that_the_agent_did_not_declare_is_refused() -> None:
    async with rig() as it:
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        with pytest.raises(Unsupported):
            await it.turn(it.context({"message": "look", "content": [image]}))
        assert not it.wire.sent("session/prompt")
    async with rig() as it:
        it.can(promptCapabilities={"image": True})
        await it.turn(it.context({"message": "look", "content": [image]}))
        assert image in it.wire.sent("session/prompt")[0]["prompt"]


async def test_an_error_answer_fails_the_run_with_the_agents_very_words() -> None:
    async with rig() as it:
        context = it.context()
        it.handlers["session/prompt"] = _refuse(-32603, "Internal error", {"details": "boom"})
        await it.outbound.run(context)
        assert isinstance(context.end, e.RunFailed)
        assert context.end.failure.message == "Internal error: boom"
        assert context.end.origin == {
            "agent_client": {"error": {"code": -32603, "message": "Internal error", "data": {"details": "boom"}}}
        }


async def test_updates_of_another_session_are_not_the_runs() -> None:
    async with rig() as it:
        one, two = it.context(run="r1", thread="t1"), it.context(run="r2", thread="t2")
        tasks = await it.started(one, two)
        it.wire.say(chunk("s1", "one "), chunk("s2", "two"), chunk("s1", "more"), chunk("s9", "nobody's"))
        first, second = await it.wire.prompt(), await it.wire.prompt()
        it.wire.end(second)
        await tasks[1]
        it.wire.end(first)
        await tasks[0]
        assert len(it.wires) == 1
        assert (one.output, two.output) == ({"message": "one more"}, {"message": "two"})


async def test_a_run_in_a_session_that_the_agent_works_in_is_refused() -> None:
    async with rig() as it:
        first, second = it.context(thread="t1"), it.context(run="r2", thread="t1")
        [task] = await it.started(first)
        with pytest.raises(Conflict, match="s1 is busy with another prompt"):
            await it.outbound.run(second)
        it.wire.chunk("s1", "one")
        it.wire.end(await it.wire.prompt())
        await task
        assert first.output == {"message": "one"} and len(it.wire.sent("session/prompt")) == 1


async def test_what_the_agent_says_of_its_session_in_a_turn_is_told_to_the_conversation() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        [task] = await it.started(context)
        it.wire.say(chunk("s1", "a"), update("s1", "available_commands_update", availableCommands=[]), chunk("s1", "b"))
        it.wire.end(await it.wire.prompt())
        await task
        assert [note.kind for note in context.notes] == ["available_commands_update"]
        assert context.output == {"message": "ab"}


async def test_what_comes_right_after_the_answer_is_not_the_turns() -> None:
    async with rig() as it:
        context = it.context(thread="t1")
        [task] = await it.started(context)
        prompt = await it.wire.prompt()
        answer = {"id": prompt["id"], "result": {"stopReason": "end_turn"}}
        it.wire.say(chunk("s1", "in time"), answer, chunk("s1", "late"))
        await task
        await context.until(lambda c: bool(c.notes))
        assert context.output == {"message": "in time"}
        assert [(note.kind, note.kept) for note in context.notes] == [("output", True)]


async def test_a_request_whose_id_is_that_of_the_prompt_is_a_request() -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        prompt = await it.wire.prompt()
        assert (await it.wire.ask(prompt["id"], "_x/y", sessionId="s1"))["error"]["code"] == -32601
        assert not task.done()
        it.wire.end(prompt)
        await task
        assert isinstance(context.end, e.RunFinished)


async def test_updates_before_the_sessions_answer_are_its_own() -> None:
    async with rig() as it:

        def early(params: object) -> object:
            commands = [{"name": "web", "description": "search"}]
            it.wire.say(update("s7", "available_commands_update", availableCommands=commands), chunk("s8", "x"))
            return {"sessionId": "s7"}

        it.handlers["session/new"] = early
        context = it.context(thread="t1")
        await it.turn(context, "done")
        assert [note.kind for note in context.notes] == ["available_commands_update"]
        assert context.output == {"message": "done"}


async def test_garbage_among_the_messages_is_survived() -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        it.wire.raw(b"Loading model...", b"{", b'{"jsonrpc":"2.0","method":"session/update"}')
        it.wire.say(
            {"method": "session/update", "params": {"sessionId": "s1", "update": 7}},
            {"method": "session/update", "params": {"sessionId": 1, "update": {}}},
            {"method": "session/update", "params": [1]},
            {"id": 99, "result": 1},
            {"method": "$/cancel_request", "params": {"requestId": "none"}},
            {"method": "$/cancel_request"},
            chunk("s1", "fine"),
        )
        it.wire.end(await it.wire.prompt())
        await task
        assert context.output == {"message": "fine"}
        assert not [m for m in it.wire.got if "error" in m]


async def test_a_message_over_the_limit_is_a_loss_and_not_the_end() -> None:
    from gateway.transport.pipe import Unreadable

    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        start = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1"'
        it.wire.raw(Unreadable("over the limit", start, 10**8))
        it.wire.chunk("s1", "fine")
        it.wire.end(await it.wire.prompt())
        await task
        assert context.output == {"message": "fine"}
        assert context.losses["unreadable"] == 1


async def test_what_comes_at_once_for_several_sessions_goes_to_each_in_its_order() -> None:
    async with rig() as it:
        one, other = it.context(run="run-1"), it.context(run="run-2")
        tasks = await it.started(one, other)
        call = update("s1", "tool_call", toolCallId="c", title="look", status="in_progress")
        it.wire.say(chunk("s1", "0"), chunk("s2", "0"))
        await settled()
        it.wire.say(
            *(chunk(name, str(n)) for n in (1, 2) for name in ("s1", "s2")),
            call,
            *(chunk(name, str(n)) for n in (3, 4) for name in ("s1", "s2", "s3")),
            chunk("s2", "5"),
        )
        await settled()
        said = [each for each in one.events if isinstance(each, e.PartDelta | e.ToolCallStarted)]
        assert ["call" if isinstance(each, e.ToolCallStarted) else each.delta for each in said] == [
            *("0", "1", "2", "call", "3", "4")
        ]
        assert [each.delta for each in other.said(e.PartDelta)] == ["0", "1", "2", "3", "4", "5"]
        for _ in tasks:
            it.wire.end(await it.wire.prompt())
        await asyncio.wait(tasks)


async def test_an_agent_that_floods_is_not_read_on_while_the_log_may_not_grow() -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        room = asyncio.Event()
        context.drain = room.wait  # type: ignore[method-assign, assignment]
        it.wire.say(*(chunk("s1", "x") for _ in range(2000)))
        await settled()
        assert 0 < len(context.said(e.PartDelta)) <= 300
        room.set()
        it.wire.end(await it.wire.prompt())
        await task
        assert context.output == {"message": "x" * 2000}
        assert max(context.bursts) > 50  # what arrives together is logged together


async def test_options_are_set_before_the_prompt_where_they_are_not_so_already() -> None:
    async with rig() as it:
        options = [
            {"id": "model", "type": "select", "currentValue": "small", "options": []},
            {"id": "loud", "type": "boolean", "currentValue": False},
        ]
        modes = {"currentModeId": "ask", "availableModes": []}
        it.handlers["session/new"] = lambda _: {"sessionId": "s1", "configOptions": options, "modes": modes}
        louder = [options[0], {**options[1], "currentValue": True}]
        it.handlers["session/set_config_option"] = lambda _: {"configOptions": louder}
        it.handlers["session/set_mode"] = lambda _: {}
        context = it.context(thread="t1", config={"model": "small", "loud": True, "mode": "code"})
        await it.turn(context)
        told = [note.data for note in context.notes if note.kind == "config_option_update"]
        assert told == [{"sessionUpdate": "config_option_update", "configOptions": each} for each in (options, louder)]
        methods = [m["method"] for m in it.wire.got if "method" in m]
        assert methods == [
            "initialize",
            "session/new",
            "session/set_config_option",
            "session/set_mode",
            "session/prompt",
        ]
        assert it.wire.sent("session/set_config_option") == [
            {"sessionId": "s1", "configId": "loud", "type": "boolean", "value": True}
        ]
        assert it.wire.sent("session/set_mode") == [{"sessionId": "s1", "modeId": "code"}]


async def test_an_option_that_the_agent_refuses_is_the_clients_mistake() -> None:
    async with rig() as it:
        it.handlers["session/set_config_option"] = _refuse(-32602, "no such option")
        with pytest.raises(Invalid) as caught:
            await it.turn(it.context(config={"speed": "high"}))
        assert caught.value.path == "/config/speed"
        assert not it.wire.sent("session/prompt")


async def test_a_run_without_a_thread_has_a_session_of_its_own_that_is_closed_afterwards() -> None:
    async with rig() as it:
        it.can(sessionCapabilities={"close": {}})
        it.handlers["session/close"] = lambda _: {}
        await it.turn(it.context(run="r1"), "a")
        await it.wire.find("session/close")
        await it.turn(it.context(run="r2"), "b")
        await it.wire.find("session/close")
        assert it.wire.sent("session/close") == [{"sessionId": "s1"}, {"sessionId": "s2"}]
        assert len(it.wires) == 1


async def test_files_that_the_agent_shows_are_kept_for_clients_of_other_protocols() -> None:
    for protocol, kept in (("agent_connect", 1), ("agent_client", 0)):
        async with rig() as it:
            creation = {"prompt": [{"type": "text", "text": "x"}]}
            context = it.context(protocol=protocol, creation=creation)
            [task] = await it.started(context)
            image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
            it.wire.update("s1", "agent_message_chunk", content=image)
            it.wire.end(await it.wire.prompt())
            await task
            assert [data for _, data in context.artifacts] == [b"hi"] * kept


async def test_a_session_that_is_made_while_the_run_is_stored_is_the_runs() -> None:
    async with rig() as it:
        await it.turn(it.context(run="r1"), "a")
        context = it.context(run="r2")
        it.outbound.prepare(context)
        await settled()
        assert len(it.wire.sent("session/new")) == 2
        await it.turn(context, "b")
        it.outbound.unprepare(context)
        assert [prompt["sessionId"] for prompt in it.wire.sent("session/prompt")] == ["s1", "s2"]
        assert len(it.wire.sent("session/new")) == 2 and context.output == {"message": "b"}


@pytest.mark.parametrize("by_another", [False, True])
@pytest.mark.parametrize("answered", [False, True])
async def test_an_agent_that_dies_while_a_run_is_stored_is_started_again(answered: bool, by_another: bool) -> None:
    async with rig() as it:
        await it.turn(it.context(run="r1"), "a")
        if not answered:
            it.handlers["session/new"] = lambda _: MANUAL
        context = it.context(run="r2")
        it.outbound.prepare(context)
        await settled()
        it.wire.die()
        await settled()
        it.handlers["session/new"] = it._new
        if by_another:
            await it.turn(it.context(run="r3"), "c")
        await it.turn(context, "b")
        assert len(it.wires) == 2 and context.output == {"message": "b"}


async def test_nothing_is_prepared_where_the_agent_does_not_run_yet() -> None:
    async with rig() as it:
        context = it.context()
        it.outbound.prepare(context)
        assert not it.wires
        await it.turn(context, "a")
        assert context.output == {"message": "a"}


@pytest.mark.parametrize("answered", [False, True])
async def test_a_session_of_a_run_that_is_not_stored_is_given_up(answered: bool) -> None:
    async with rig() as it:
        it.can(sessionCapabilities={"close": {}})
        it.handlers["session/close"] = lambda _: {}
        await it.turn(it.context(run="r1"), "a")
        await it.wire.find("session/close")
        if not answered:
            it.handlers["session/new"] = lambda _: MANUAL
        context = it.context(run="r2")
        it.outbound.prepare(context)
        await settled()
        it.outbound.unprepare(context)
        if answered:
            assert (await it.wire.find("session/close"))["params"] == {"sessionId": "s2"}
        else:
            asked = [message for message in it.wire.got if message.get("method") == "session/new"][-1]
            assert (await it.wire.find("$/cancel_request"))["params"] == {"requestId": asked["id"]}
            it.wire.say({"id": asked["id"], "result": {"sessionId": "late"}})
            assert (await it.wire.find("session/close"))["params"] == {"sessionId": "late"}
        it.handlers["session/new"] = lambda _: {"sessionId": "s3"}
        await it.turn(it.context(run="r3"), "c")
        assert it.wire.sent("session/prompt")[-1]["sessionId"] == "s3"


async def test_what_the_agent_says_in_a_session_before_its_run_is_stored_is_the_runs() -> None:
    async with rig() as it:
        await it.turn(it.context(run="r1"), "a")

        def new(_: object) -> object:
            it.wire.update("s2", "current_mode_update", currentModeId="before the answer")
            return {"sessionId": "s2"}

        it.handlers["session/new"] = new
        context = it.context(run="r2")
        it.outbound.prepare(context)
        await settled()
        it.wire.update("s2", "current_mode_update", currentModeId="behind it")
        await settled()
        await it.turn(context, "b")
        said = [note.data["currentModeId"] for note in context.notes if isinstance(note.data, dict)]
        assert said == ["before the answer", "behind it"]


async def test_what_the_agent_says_in_a_session_that_is_given_up_is_told_nobody() -> None:
    """A run that is not stored has no log."""
    async with rig() as it:
        await it.turn(it.context(run="r1"), "a")
        contexts = [it.context(run=f"r{n}") for n in (2, 3)]
        for context in contexts:
            it.outbound.prepare(context)
        await settled()
        it.wire.update("s2", "available_commands_update", availableCommands=[])
        await settled()
        for context in contexts:
            it.outbound.unprepare(context)
            assert not context.notes and not context.events


async def test_what_the_agent_says_in_new_sessions_is_kept_however_many_are_made_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "MAX_EARLY", 6)

    async with rig() as it:
        await it.turn(it.context(run="r1"), "a")
        contexts = [it.context(run=f"r{n}") for n in range(2, 10)]
        it.outbound.prepare(contexts[0])
        for n, (context, following) in enumerate(itertools.pairwise(contexts), 2):
            it.outbound.prepare(following)  # so there is always one that is being made
            await settled()
            for name in ("closed", f"s{n}"):
                it.wire.update(name, "available_commands_update", availableCommands=[])
            await settled()
            await it.turn(context, "b")
            assert [note.kind for note in context.notes] == ["available_commands_update"]
        it.outbound.unprepare(contexts[-1])


async def test_what_the_agent_asks_behind_a_new_session_is_answered_before_the_run_is_stored(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")

    async with rig(workspace={"root": tmp_path}) as it:
        await it.turn(it.context(run="r1"), "a")
        contexts = [it.context(run=f"r{n}") for n in (2, 3)]
        for context in contexts:
            it.outbound.prepare(context)
        await settled()
        for n, name in enumerate(("s2", "s3", "s4")):
            answer = await it.wire.ask(n, "fs/read_text_file", sessionId=name, path=str(tmp_path / "a.txt"))
            assert answer.get("result") == (None if name == "s4" else {"content": "A"})
        for context in contexts:
            it.outbound.unprepare(context)


async def test_what_is_in_the_way_of_a_prepared_session_fails_the_run_alone() -> None:
    async with rig() as it:
        it.outbound._target.may_have(1)
        await it.turn(it.context(run="r1"), "a")
        async with it.outbound._connections.any().use():
            context = it.context(run="r2")
            context.caller = Client(fs={"readTextFile": True})
            it.outbound.prepare(context)
            with pytest.raises(Unavailable, match="1 kinds of clients"):
                await it.outbound.run(context)


@on(Clock)
async def test_an_agent_that_makes_no_session_for_a_run_in_time_is_told_that_nobody_waits() -> None:
    async with rig(request_timeout=200) as it:
        await it.turn(it.context(run="r1"), "a")
        it.handlers["session/new"] = lambda _: MANUAL
        running = asyncio.create_task(it.outbound.run(it.context(run="r2")))
        await until(lambda: len(it.wire.sent("session/new")) == 2)
        await later(201)
        with pytest.raises(AgentTimeout, match=r"did not answer session/new within 200 seconds"):
            await running
        await it.wire.find("$/cancel_request")


@pytest.mark.parametrize("by", ["a cancel", "the end of its task"])
async def test_a_run_that_ends_while_its_own_session_is_made_withdraws_the_request(by: str) -> None:
    async with rig() as it:
        await it.turn(it.context(run="r1"), "a")
        it.handlers["session/new"] = lambda _: MANUAL
        context = it.context(run="r2")
        task = asyncio.create_task(it.outbound.run(context))
        await settled()
        if by == "a cancel":
            context.cancel_now()
            await it.outbound.cancel(context)
            await task
            assert isinstance(context.end, e.RunCancelled)
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await it.wire.find("$/cancel_request")
        assert len(it.wire.sent("session/prompt")) == 1


def _refuse(code: int, message: str, data: object = None):  # type: ignore[no-untyped-def]
    def handler(params: object) -> object:
        raise Refusal(code, message, data)

    return handler
