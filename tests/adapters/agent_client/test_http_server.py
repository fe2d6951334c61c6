"""The Streamable HTTP endpoint, message by message: what goes on which stream."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.adapters.agent_client.http_rig import CONNECTION, INITIALIZE, Rig, RigThreads, Stream, client, rig
from tests.support.aio import run
from tests.support.scripted import until


async def test_initialize_is_answered_at_once_with_the_connection_in_a_header() -> None:
    async with rig() as there, httpx2.AsyncClient() as http:
        answer = await http.post(there.url + "rig", json=INITIALIZE)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers[CONNECTION]
        assert answer.json()["id"] == 0
        assert answer.json()["result"]["agent"] == "rig"


async def test_a_session_is_made_on_the_connections_stream_and_prompted_on_its_own() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with here.stream(session) as stream:
            asked = await here.prompt(session, "say hello world")
            assert [await stream.text(), await stream.text()] == ["hello", "world"]
            assert await stream.next() == {"jsonrpc": "2.0", "id": asked, "result": {"stopReason": "end_turn"}}
            echoed = await here.ask("_echo", {"a": 1})
            assert await main.next() == {"jsonrpc": "2.0", "id": echoed, "result": {"a": 1}}


async def test_every_session_has_a_stream_of_its_own() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        one, two = await here.new(main), await here.new(main)
        async with here.stream(one) as first, here.stream(two) as second:
            await here.prompt(one, "I")
            await here.prompt(two, "II")
            assert await first.text() == "I"
            assert await second.text() == "II"


async def test_what_is_said_before_a_stream_is_opened_waits_for_it() -> None:
    async with rig() as there, client(there.url) as here:
        asked = await here.ask("session/new", {"cwd": "/", "mcpServers": [], "_meta": {"early": "commands"}})
        async with here.stream() as main:
            answer = await main.next()
            assert answer["id"] == asked
            session = answer["result"]["sessionId"]
        turn = await here.prompt(session, "hello")
        async with here.stream(session) as stream:
            assert [await stream.text(), await stream.text()] == ["commands", "hello"]
            assert (await stream.next())["id"] == turn


async def test_a_question_to_the_client_is_answered_with_or_without_the_sessions_header() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with here.stream(session) as stream:
            for header in (None, session):
                asked = await here.prompt(session, "ask")
                question = await stream.next()
                assert question["method"] == "session/request_permission"
                result = {"outcome": {"outcome": "selected", "optionId": "yes"}}
                answer = await here.post({"id": question["id"], "result": result}, header)
                assert (answer.status_code, answer.content) == (202, b"")
                assert await stream.text() == "yes"
                assert (await stream.next())["id"] == asked


async def test_a_notification_is_taken() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with here.stream(session) as stream:
            asked = await here.prompt(session, "wait")
            assert await stream.text() == "waiting"
            told = await here.post({"method": "session/cancel", "params": {"sessionId": session}}, session)
            assert (told.status_code, told.content) == (202, b"")
            assert await stream.next() == {"jsonrpc": "2.0", "id": asked, "result": {"stopReason": "cancelled"}}


LOAD: dict[str, Any] = {"sessionId": "old1", "cwd": "/", "mcpServers": []}


async def test_a_load_as_the_proposal_draws_it_is_answered_on_the_connections_stream_after_the_replay() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main, here.stream("old1") as stream:
        asked = await here.ask("session/load", LOAD, "old1")
        assert await main.next() == {"jsonrpc": "2.0", "id": asked, "result": {}}
        assert [await stream.text(), await stream.text()] == ["first", "second"]


async def test_a_load_without_the_header_is_answered_behind_the_replay_on_the_sessions_stream() -> None:
    async with rig() as there, client(there.url) as here, here.stream("old1") as stream:
        asked = await here.ask("session/load", LOAD)
        assert [await stream.text(), await stream.text()] == ["first", "second"]
        assert await stream.next() == {"jsonrpc": "2.0", "id": asked, "result": {}}


def test_a_session_loaded_without_a_stream_is_on_the_connections_until_it_has_one_and_nothing_is_under_way() -> None:
    async def case() -> None:
        async with rig() as there, client(there.url) as here, here.stream() as main:
            asked = await here.ask("session/load", LOAD)
            assert [await main.text(), await main.text()] == ["first", "second"]
            assert (await main.next())["id"] == asked
            waiting = await here.prompt("old1", "wait")
            assert await main.text() == "waiting"
            async with here.stream("old1") as stream:
                await here.prompt("old1", "in between")
                assert await main.text() == "in between"
                assert (await main.next())["result"] == {"stopReason": "end_turn"}
                await here.post({"method": "session/cancel", "params": {"sessionId": "old1"}}, "old1")
                assert (await main.next())["id"] == waiting
                await here.prompt("old1", "now")
                assert await stream.text() == "now"

    run(case())


async def test_a_load_that_fails_says_so_and_leaves_the_connection_as_it_is() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        for header in (None, "unheard"):
            asked = await here.ask("session/load", {**LOAD, "sessionId": "unheard"}, header)
            error = await main.next()
            assert (error["id"], error["error"]["code"]) == (asked, -32002)
        assert await here.new(main)


async def test_a_closed_session_can_be_loaded_again_on_its_stream_and_is_forgotten_with_it() -> None:
    async with rig(back=0.01) as there, client(there.url) as here, here.stream() as main, here.stream("old1") as stream:
        for _ in range(2):
            load = await here.ask("session/load", LOAD)
            assert [await stream.text(), await stream.text()] == ["first", "second"]
            assert (await stream.next())["id"] == load
            close = await here.ask("session/close", {"sessionId": "old1"}, "old1")
            assert (await stream.next())["id"] == close
        made = await here.new(main)
        async with here.stream(made) as other:
            close = await here.ask("session/close", {"sessionId": made}, made)
            assert (await other.next())["id"] == close
        (link,) = there.server._connections.all
        await until(lambda: made not in link.sessions)
        late = {"method": "session/prompt", "params": {"sessionId": made}, "id": 77}
        assert (await here.post(late, made)).status_code == 404


async def test_streams_of_closed_sessions_end_when_others_need_their_place() -> None:
    async with rig(max_sessions=1) as there, client(there.url) as here, here.stream() as main:
        there.threads = RigThreads({f"old{number}" for number in range(4)})
        async with here.stream("old0") as oldest, here.stream("old1") as newer:
            for name, stream in (("old0", oldest), ("old1", newer)):
                close = await here.ask("session/close", {"sessionId": name}, name)
                assert (await stream.next())["id"] == close
            async with here.stream("old2"):
                assert await oldest.next() is None
                echo = await here.ask("_echo", {"sessionId": "old1"}, "old1")
                assert (await newer.next())["id"] == echo
        assert await here.new(main)


async def test_many_messages_go_out_in_order_and_in_few_writes() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        asked = await here.prompt(session, "flood 2000")
        headers = {CONNECTION: here.connection, "Acp-Session-Id": session, "Accept": "text/event-stream"}
        async with here.http.stream("GET", here.url, headers=headers) as response:
            stream = Stream(response)
            said = [(await stream.text()).strip() for _ in range(2000)]
            assert said == [str(number) for number in range(2000)]
            assert (await stream.next())["id"] == asked


async def test_characters_outside_of_ascii_arrive_as_escapes() -> None:
    text = "Grüße, 世界 \U0001f600\u2028!"

    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with here.stream(session) as stream:
            await here.prompt(session, text)
            assert await stream.text() == text  # and `next` looks at the bytes


async def test_delete_ends_the_connection_and_its_streams() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with here.stream(session) as stream:
            gone = await here.http.delete(here.url, headers={CONNECTION: here.connection})
            assert (gone.status_code, gone.content) == (202, b"")
            assert await main.next() is None
            assert await stream.next() is None
        assert (await here.post({"method": "x"})).status_code == 404
        again = await here.http.delete(here.url, headers={CONNECTION: here.connection})
        assert again.status_code == 404
        await until(lambda: not there.alive)


async def test_two_clients_hear_nothing_of_each_other() -> None:
    async with rig() as there, client(there.url) as one, client(there.url) as two, one.stream() as first:
        mine = await one.new(first)
        async with one.stream(mine) as stream, two.stream() as second:
            yours = await two.new(second)
            assert (await two.post({"method": "x", "params": {}}, mine)).status_code == 404
            await one.prompt(mine, "mine")
            assert await stream.text() == "mine"
            assert mine != yours


def _agents(there: Rig) -> int:
    return len(there.alive)


async def test_initialize_again_on_a_connection_is_answered_on_its_stream() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        asked = await here.ask("initialize", {"protocolVersion": 1})
        assert (await main.next())["id"] == asked
        assert _agents(there) == 1


async def test_messages_of_16_mib_pass_both_ways() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        large = "x" * (17 << 20)
        asked = await here.ask("_echo", {"large": large})
        answer = await main.next()
        assert answer["id"] == asked
        assert answer["result"]["large"] == large
