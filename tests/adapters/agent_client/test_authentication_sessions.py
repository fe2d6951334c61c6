"""Each client's sessions are its own: to everybody else they are not there, whatever is asked of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.agent_client.inbound.visitor import Visitor
from gateway.access import Authentication, Authenticator
from gateway.core.types import RunStatus, ThreadQuery
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client import v2_editor
from tests.adapters.agent_client.authentication_rig import (
    ANA,
    AUTHENTICATION,
    BOB,
    METHOD,
    NOT_FOUND,
    UNKNOWN,
    known,
    log_in,
    token,
)
from tests.adapters.agent_client.editor import Editor, Refused
from tests.adapters.agent_client.inbound_rig import NATIVE, Native, native, rig, scripted
from tests.support.scripted import echo, held

FOLDER = {"cwd": "/work", "mcpServers": []}
OF_SESSIONS: dict[str, dict[str, Any]] = {
    "session/load": FOLDER,
    "session/resume": FOLDER,
    "session/prompt": {"prompt": [{"type": "text", "text": "hello"}]},
    "session/close": {},
    "session/set_mode": {"modeId": "code"},
    "session/set_config_option": {"configId": "model", "value": "x"},
    "session/fork": FOLDER,
    "_acme/look": {},
}
"""What names a session, and is refused where there is none. `session/delete` is not: it is answered all the same."""
ALL_CAN = replace(
    NATIVE,
    extra={
        "agent_client": {
            **NATIVE.extra["agent_client"],
            "agentCapabilities": {
                "loadSession": True,
                "sessionCapabilities": {key: {} for key in ("list", "close", "delete", "fork", "resume")},
            },
        }
    },
)


async def listed(editor: Editor) -> list[str]:
    return [each["sessionId"] for each in (await editor.request("session/list", {}))["sessions"]]


async def refused(editor: Editor, method: str, session: str) -> int:
    with pytest.raises(Refused) as caught:
        await editor.request(method, {"sessionId": session, **OF_SESSIONS[method]})
    assert caught.value.message == f"no session {session}", "in the same words, whether there is such a one or not"
    return caught.value.code


@pytest.mark.parametrize("kind", ["another protocol's agent", "an agent of this protocol"])
async def test_nobody_finds_anothers_session_by_any_method(kind: str) -> None:
    agent = scripted(echo) if kind.startswith("another") else native(echo)
    agent[1].agent = agent[1].agent if kind.startswith("another") else ALL_CAN
    async with rig(agent, authentication=AUTHENTICATION) as gateway:
        ana, bob, visitor = [await known(gateway, each) for each in (ANA, BOB, token())]
        session, own = await ana.new(), await bob.new()
        await ana.prompt(session, "of mine")
        if isinstance(agent[1], Native):
            agent[1].answers["session/list"] = {"sessions": [{"sessionId": session, "cwd": "/work"}]}
            agent[1].relayed.clear()
        assert [await listed(each) for each in (ana, bob, visitor)] == [[session], [own], []]
        for editor in (bob, visitor):
            for method in OF_SESSIONS:
                assert await refused(editor, method, session) == NOT_FOUND, method
                assert await refused(editor, method, "never-made") == NOT_FOUND, method
            assert await editor.request("session/delete", {"sessionId": session}) == {}
            for method in ("session/cancel", "_acme/told"):
                await editor.notify(method, {"sessionId": session})
            assert await listed(editor) in ([own], []) and not editor.updates
        if isinstance(agent[1], Native):
            assert not agent[1].relayed and not agent[1].forwarded, "the agent has heard nothing of it"
        await ana.load(session)
        assert "of mine" in ana.text("user_message_chunk")
        assert len(await gateway.runs(session)) == 1


async def test_nobody_takes_up_or_deletes_a_session_that_only_the_agent_knows() -> None:
    """Whoever guesses the agent's own id of somebody's session has it for all the agent knows: it asks the gateway."""
    agent = native(echo)
    agent[1].agent = ALL_CAN
    async with rig(agent, authentication=AUTHENTICATION) as gateway:
        bob = await known(gateway, BOB)
        for method in OF_SESSIONS:
            assert await refused(bob, method, "theirs") == NOT_FOUND, method
        assert await bob.request("session/delete", {"sessionId": "theirs"}) == {}
        await bob.notify("_acme/told", {"sessionId": "theirs"})
        assert await listed(bob) == []
        assert not agent[1].relayed and not agent[1].forwarded
        assert not await gateway.engine.threads.list(ThreadQuery())


@pytest.mark.parametrize("told_apart", [True, False])
async def test_to_delete_what_is_not_there_or_not_ones_own_is_answered_as_what_never_was(told_apart: bool) -> None:
    """Of another client, of another agent, deleted before: nobody can tell them apart, and nothing happens to them."""
    agent, other = native(echo), native(echo, name="other")
    agent[1].agent = other[1].agent = ALL_CAN
    options = {"authentication": AUTHENTICATION} if told_apart else {}
    async with rig(agent, other, **options) as gateway:
        ana = await known(gateway, ANA) if told_apart else await gateway.connect("other")
        bob = await known(gateway, BOB) if told_apart else await gateway.connect()
        theirs, mine = await ana.new(), await bob.new()
        assert await bob.request("session/delete", {"sessionId": mine}) == {}
        if not told_apart:
            agent[1].answers["session/delete"] = RpcError(-32602, "unknown session")
        said = []
        for session in ("never-made", mine, theirs):
            try:
                said.append(await bob.request("session/delete", {"sessionId": session}))
            except Refused as error:
                said.append((error.code, error.message))
        assert said == [{} if told_apart else (-32602, "unknown session")] * 3
        assert (await gateway.engine.threads.get(theirs)).id == theirs


async def test_nobody_cancels_anothers_turn_or_hears_of_it() -> None:
    gates: list[asyncio.Event] = []

    def gate() -> asyncio.Event:
        gates.append(asyncio.Event())
        return gates[-1]

    async with rig(scripted(held(gate)), authentication=AUTHENTICATION) as gateway:
        ana, bob = await known(gateway, ANA), await known(gateway, BOB)
        session = await ana.new()
        turn = await ana.start(session, id="turn")
        await ana.heard("before")
        await bob.notify("session/cancel", {"sessionId": session})
        await bob.notify("$/cancel_request", {"requestId": "turn"})
        assert await refused(bob, "session/load", session) == NOT_FOUND
        gates[0].set()
        assert await turn == {"stopReason": "end_turn"}
        assert (await gateway.run(session)).status is RunStatus.SUCCESS
        assert not bob.updates


async def test_the_same_somebody_shares_their_sessions_whatever_token_they_show() -> None:
    async with rig(scripted(echo), authentication=AUTHENTICATION) as gateway:
        one, two = await known(gateway, ANA), await known(gateway, None)
        await log_in(two, token(sub="ana"))
        session = await one.new()
        await one.prompt(session, "from one")
        await two.load(session)
        assert "from one" in two.text()
        assert await listed(one) == await listed(two) == [session]


async def test_agents_that_are_not_for_somebody_are_not_there() -> None:
    agents = [scripted(echo, name) for name in ("alpha", "beta", "scripted")]
    async with rig(*agents, authentication=AUTHENTICATION) as gateway:
        clients, people = gateway.inbound.clients, gateway.inbound.clients.people
        ana, bob, visitor = [await known(gateway, each, None) for each in (ANA, BOB, token())]
        offered = []
        for editor in (ana, bob, visitor):
            made = await editor.request("session/new", FOLDER)
            options = made.get("configOptions", [])
            offered += [[each["value"] for each in option["options"]] for option in options]
            choice = {"sessionId": made["sessionId"], "configId": "agent", "value": "alpha"}
            if editor is bob:
                with pytest.raises(Refused) as caught:
                    await editor.request("session/set_config_option", choice)
                assert "alpha; there are beta, scripted" in caught.value.message
        assert offered == [["alpha", "beta", "scripted"], ["beta", "scripted"]], "one has no choice"
        assert (await gateway.engine.threads.get(made["sessionId"])).agent == "scripted"
        stranger = await known(gateway, None, "alpha")
        await log_in(stranger, BOB)
        for method, params in {"session/new": FOLDER, "session/list": {}, "_acme/x": {}}.items():
            with pytest.raises(Refused) as gone:
                await stranger.request(method, params)
            assert (gone.value.code, gone.value.message) == (NOT_FOUND, "no agent alpha")
        with pytest.raises(Exception, match=r"^no agent alpha; there are beta, scripted$"):
            clients.agent("alpha", Visitor(people, people.principal(BOB)))
        with pytest.raises(Exception, match=r"^no agent gamma$"):
            clients.agent("gamma", Visitor(people))


async def test_who_logs_in_where_an_agent_is_not_theirs_tells_it_nothing_either() -> None:
    agents = [native(echo, "alpha"), scripted(echo)]
    async with rig(*agents, authentication=AUTHENTICATION) as gateway:
        for shown, told in ((BOB, 0), (ANA, 1)):
            stranger = await known(gateway, None, "alpha")
            await stranger.notify("authenticate", {})
            await log_in(stranger, shown)
            await stranger.notify("_acme/told", {})
            await stranger.request("authenticate", {"methodId": METHOD, "_meta": {"token": shown}})  # it came after
            assert len(agents[0][1].forwarded) == told  # type: ignore[attr-defined]


async def test_a_session_whose_agent_is_somebodys_no_longer_is_not_theirs_either() -> None:
    agents = [scripted(echo, name) for name in ("alpha", "beta", "scripted")]
    async with rig(*agents, authentication=AUTHENTICATION) as gateway:
        ana = await known(gateway, token(sub="ana"), "alpha")
        session = await ana.new()
        less = {**AUTHENTICATION, "clients": [{"name": "ana", "token": ANA, "agents": ["beta", "scripted"]}]}
        gateway.inbound.clients.people = Authenticator(Authentication.model_validate(less))
        again = await known(gateway, ANA, None)
        assert await listed(again) == []
        assert await refused(again, "session/load", session) == NOT_FOUND


async def test_sessions_stay_their_owners_after_a_restart_and_those_from_before_are_nobodys(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    async with rig(scripted(echo), file=file) as open_to_all:
        early = await open_to_all.connect()
        before = await early.new()
        await early.prompt(before, "before")
    async with rig(scripted(echo), file=file, authentication=AUTHENTICATION) as gateway:
        ana = await known(gateway, ANA)
        session = await ana.new()
        await ana.prompt(session, "hers")
    async with rig(scripted(echo), file=file, authentication=AUTHENTICATION) as gateway:
        ana, bob = await known(gateway, ANA), await known(gateway, BOB)
        assert await listed(ana) == [session] and await listed(bob) == []
        await ana.load(session)
        assert "hers" in ana.text()
        for editor, theirs in ((bob, session), (ana, before), (bob, before)):
            assert await refused(editor, "session/load", theirs) == NOT_FOUND
        local = await gateway.connect()
        assert await listed(local) == [before]
    async with rig(scripted(echo), file=file) as open_again:
        anybody = await open_again.connect()
        assert await listed(anybody) == [before], "what had an owner still has"
        assert await refused(anybody, "session/resume", session) == NOT_FOUND


async def test_nobody_can_make_themselves_the_owner() -> None:
    async with rig(scripted(echo), authentication=AUTHENTICATION) as gateway:
        ana, bob = await known(gateway, ANA), await known(gateway, BOB)
        session = await bob.new(_meta={"owner": "ana", "principal": "ana"})
        assert await listed(ana) == [] and await listed(bob) == [session]
        await bob.prompt(session)
        assert (await gateway.run(session)).request.principal == "bob"


async def test_a_copy_that_the_agent_makes_is_its_makers() -> None:
    agent = native(echo)
    agent[1].agent = ALL_CAN
    agent[1].answers["session/fork"] = {"sessionId": "copy"}
    async with rig(agent, authentication=AUTHENTICATION) as gateway:
        ana, bob = await known(gateway, ANA), await known(gateway, BOB)
        session = await ana.new()
        assert (await ana.request("session/fork", {"sessionId": session, **FOLDER}))["sessionId"] == "copy"
        assert sorted(await listed(ana)) == sorted([session, "copy"]) and await listed(bob) == []
        assert await refused(bob, "session/prompt", "copy") == NOT_FOUND


async def test_version_2_asks_and_hides_the_same() -> None:
    agent = native(echo)
    async with rig(agent, authentication=AUTHENTICATION, v2=True) as gateway:
        people = gateway.inbound.clients.people
        ana = await v2_editor.connect(gateway, visitor=Visitor(people, people.principal(ANA)))
        session = await ana.new()
        assert (await ana.turn(session, "of mine"))["stopReason"] == "end_turn"
        assert (await gateway.run(session)).request.principal == "ana"
        bob = await v2_editor.raw(gateway, visitor=Visitor(people))
        assert METHOD in [each["methodId"] for each in (await bob.initialize())["authMethods"]]
        with pytest.raises(Refused) as caught:
            await bob.new()
        assert caught.value.code == UNKNOWN
        with pytest.raises(Refused):
            await bob.request("auth/login", {"methodId": METHOD, "_meta": {"token": "wrong"}})
        await bob.request("auth/login", {"methodId": METHOD, "_meta": {"token": BOB}})
        own = await bob.new()
        assert await listed(bob) == [own] and await listed(ana) == [session]
        said = [{"type": "text", "text": "hello"}]
        bob.free = True
        asked: dict[str, dict[str, Any]] = {
            "session/resume": {"cwd": "/work", "replayFrom": v2_editor.START},
            "session/prompt": {"prompt": said},
            "session/close": {},
            "session/set_config_option": {"configId": "mode", "value": {"type": "id", "value": "x"}},
            "_acme/look": {},
        }
        for method, params in asked.items():
            with pytest.raises(Refused) as gone:
                await bob.request(method, {"sessionId": session, **params})
            assert gone.value.code == NOT_FOUND, method
        assert await bob.request("session/delete", {"sessionId": session}) == {}
        await bob.request("auth/logout", {})
        with pytest.raises(Refused) as over:
            await bob.request("session/list", {})
        assert over.value.code == UNKNOWN
        await ana.load(session)
        assert "of mine" in ana.heard_all("user_message")


async def test_who_oversees_has_everybodys_sessions_but_nobodys_and_those_of_other_agents() -> None:
    boss = {"name": "boss", "token": "boss-token", "agents": ["scripted", "beta"], "oversees": True}
    people = {**AUTHENTICATION, "clients": [*AUTHENTICATION["clients"], boss]}
    agents = [scripted(echo, name) for name in ("alpha", "beta", "scripted")]
    async with rig(*agents, authentication=people) as gateway:
        local, ana, bob = await gateway.connect(), await known(gateway, ANA, "alpha"), await known(gateway, BOB)
        nobodys, elsewhere, session = await local.new(), await ana.new(), await bob.new()
        await bob.prompt(session, "his")
        above = await known(gateway, "boss-token", None)
        assert await listed(above) == [session]
        await above.load(session)
        await above.prompt(session, "hers")
        assert "his" in above.text()
        assert [each.request.principal for each in await gateway.runs(session)] == ["boss", "bob"]
        for other in (nobodys, elsewhere):
            assert await refused(above, "session/load", other) == NOT_FOUND
        assert await listed(bob) == [session], "it is still his"
