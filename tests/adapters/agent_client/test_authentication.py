"""Who a client is: tokens that hold and tokens that do not, and how long they do."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from adapters.agent_client.inbound.visitor import TRIES, Visitor
from gateway.access import Authentication, Authenticator, Principal
from gateway.core.errors import Denied
from gateway.core.types import Identity, RunStatus, Thread
from tests.adapters.agent_client.authentication_rig import (
    ANA,
    AUTHENTICATION,
    BOB,
    JWT,
    METHOD,
    NOT_FOUND,
    SECRET,
    UNKNOWN,
    known,
    lasting,
    later,
    log_in,
    token,
)
from tests.adapters.agent_client.editor import Refused
from tests.adapters.agent_client.inbound_rig import asking, native, rig, scripted
from tests.support.aio import run
from tests.support.scripted import echo, until

OPTIONS = Authentication.model_validate(AUTHENTICATION)
HOUSE = Authenticator(OPTIONS)
MADE = Thread(id="t", created_at=0, updated_at=0)


# --- whose token it is -----------------------------------------------------------------------------------------------


def test_a_token_says_who_it_is_and_what_is_there_for_them() -> None:
    assert HOUSE.principal(ANA) == Principal(Identity(id="ana", roles=("lead",)))
    assert HOUSE.principal(BOB) == Principal(Identity(id="bob"), ("scripted", "b*"))


@pytest.mark.parametrize(
    ("claim", "roles"),
    [(["lead", "lead", 3, ""], ("lead",)), ("lead  legal", ("lead", "legal")), (None, ()), ({"lead": True}, ())],
)
def test_a_jwt_says_whose_it_is_which_roles_they_have_and_how_long(claim: Any, roles: tuple[str, ...]) -> None:
    end = int(time.time()) + 60
    visitor = HOUSE.principal(token(exp=end, roles=claim))
    assert visitor == Principal(Identity(id="visitor", roles=roles), ("scripted",), end)


def test_a_jwt_of_a_client_of_the_list_gives_what_the_list_does() -> None:
    end = int(time.time()) + 60
    ana = HOUSE.principal(token(sub="ana", roles=["legal"], exp=end))
    assert ana == Principal(Identity(id="ana", roles=("lead",)), expires=end)


def test_the_claim_with_the_roles_can_be_named() -> None:
    house = Authenticator(Authentication.model_validate({"jwt": {**JWT, "roles": "https://x/groups"}}))
    claims: dict[str, Any] = {"https://x/groups": ["a"], "roles": ["b"]}
    assert house.principal(token(**claims)).who.roles == ("a",)


WRONG = {
    "nobody's": "stolen-token",
    "of other letters": ANA.upper(),
    "cut short": ANA[:-1],
    "empty": "",
    "half a surrogate pair": "\ud800",
    "the digest of one": AUTHENTICATION["clients"][1]["token_sha256"],
    "expired": token(exp=int(time.time()) - 1),
    "of another issuer": token(iss="https://evil.example"),
    "for others": token(aud="others"),
    "signed by another": token(SECRET[::-1]),
    "endless": token(exp=None),
}


@pytest.mark.parametrize("wrong", [pytest.param(each, id=name) for name, each in WRONG.items()])
def test_a_token_that_does_not_hold_is_refused_in_words_that_tell_nothing(wrong: str) -> None:
    with pytest.raises(Denied) as caught:
        HOUSE.principal(wrong)
    assert (str(caught.value), caught.value.detail) == ("the token is not valid", "")


@pytest.mark.parametrize("sent", [[], ["Basic YTpi"], ["Bearer"], [f"Bearer {ANA}", f"Bearer {ANA}"], [ANA]])
def test_whoever_sends_no_token_or_two_is_a_stranger(sent: list[str]) -> None:
    visitor = Visitor(HOUSE, HOUSE.arrived([(b"authorization", each.encode()) for each in sent]))
    assert visitor.stranger and visitor.name is None and not visitor.owns(MADE)


def test_nobody_is_a_stranger_where_nobody_is_asked() -> None:
    house = Authenticator(None)
    visitor = Visitor(house, house.arrived([(b"authorization", b"Bearer whatever")]))
    assert not visitor.stranger and visitor.known is None and visitor.marks() == {} and visitor.owns(MADE)
    assert visitor.announced({"authMethods": []}) == {"authMethods": []}
    visitor.check("session/new", "any")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "nobody could connect"),
        ({"clients": []}, "nobody could connect"),
        ({"clients": [{"name": "a", "token": "t"}, {"name": "a", "token": "u"}]}, "'a' is there twice"),
        ({"clients": [{"name": "anonymous", "token": "t"}]}, "nobody may be called anonymous"),
        ({"clients": [{"name": "a", "token": "t", "token_sha256": "0" * 64}]}, "one of token and token_sha256"),
        ({"clients": [{"name": "a", "token_sha256": "abc"}]}, "pattern"),
        ({"clients": [{"name": "a", "token": ANA}, {"name": "b", "token_sha256": "ana"}]}, "same token"),
        ({"jwt": {**JWT, "algorithms": ["none"]}}, "HS256"),
    ],
)
def test_options_that_would_let_the_wrong_ones_in_are_refused(options: Any, words: str) -> None:
    for client in options.get("clients", ()):
        if client.get("token_sha256") == "ana":
            client["token_sha256"] = hashlib.sha256(ANA.encode()).hexdigest()
    with pytest.raises(ValidationError, match=words) as caught:
        Authentication.model_validate(options)
    assert SECRET not in "".join(each["msg"] for each in caught.value.errors())


def test_the_options_and_the_people_do_not_show_their_secrets() -> None:
    shown = repr(OPTIONS) + str(OPTIONS.model_dump()) + OPTIONS.model_dump_json() + repr(HOUSE.principal(ANA))
    assert ANA not in shown and SECRET not in shown


# --- how long --------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.time = float(int(time.time()))

    def __call__(self) -> float:
        return self.time


def test_a_token_holds_until_it_expires_and_a_newer_one_makes_it_longer() -> None:
    clock = Clock()
    house = Authenticator(OPTIONS, clock)
    first, second = (house.principal(token(exp=int(clock.time) + seconds)) for seconds in (30, 60))
    visitor = Visitor(house, first)
    clock.time += 29
    assert visitor.name == "visitor" and visitor.fits(second) and visitor.fits(first)
    clock.time += 30
    assert visitor.name == "visitor", "an older one takes nothing away"
    clock.time += 1
    assert visitor.stranger and visitor.name is None and not visitor.fits(second)
    with pytest.raises(Denied):
        visitor.check("session/prompt", None)


def test_a_request_is_of_a_connection_only_if_it_shows_the_same() -> None:
    ana, bob = HOUSE.principal(ANA), HOUSE.principal(BOB)
    by_header = Visitor(HOUSE, ana)
    assert by_header.fits(ana) and not by_header.fits(bob) and not by_header.fits(None)
    stranger = Visitor(HOUSE)
    assert stranger.fits(None) and not stranger.fits(ana)
    stranger.prove(ANA)
    assert stranger.fits(None) and stranger.fits(ana) and not stranger.fits(bob)
    one, other = (HOUSE.principal(token(roles=roles)) for roles in ("lead", "legal"))
    assert not Visitor(HOUSE, one).fits(other), "with other roles it is not the same"


def test_the_gateways_own_way_to_log_in_is_before_the_agents_and_in_the_place_of_its_namesake() -> None:
    own = [{"id": METHOD, "name": "of a gateway behind this one"}, {"id": "login", "name": "Log in"}]
    can = {"loadSession": True, "auth": {"_meta": {"x": 1}}}
    said = Visitor(HOUSE).announced({"authMethods": own, "agentCapabilities": can})
    assert [each["name"] for each in said["authMethods"]] == ["Token", "Log in"]
    assert said["agentCapabilities"] == {"loadSession": True, "auth": {"_meta": {"x": 1}, "logout": {}}}


# --- a connection ----------------------------------------------------------------------------------------------------


async def test_a_stranger_is_told_how_to_log_in_and_may_do_nothing_else() -> None:
    route, agent = native(echo)
    async with rig((route, agent), authentication=AUTHENTICATION) as gateway:
        editor = await gateway.raw(visitor=Visitor(gateway.inbound.clients.people))
        said = await editor.initialize()
        assert [each["id"] for each in said["authMethods"]] == [METHOD, "login"]
        assert agent.greeted == [], "no process is started for a stranger"
        assert said["agentCapabilities"]["auth"]["logout"] == {}
        session = {"sessionId": "x"}
        for method, params in {
            "session/new": {"cwd": "/", "mcpServers": []},
            "session/load": {**session, "cwd": "/", "mcpServers": []},
            "session/resume": {**session, "cwd": "/", "mcpServers": []},
            "session/list": {},
            "session/prompt": {**session, "prompt": []},
            "session/close": session,
            "session/delete": session,
            "session/set_mode": {**session, "modeId": "m"},
            "session/set_config_option": {**session, "configId": "c", "value": "v"},
            "session/fork": {**session, "cwd": "/", "mcpServers": []},
            "logout": {},
            "_acme/anything": {},
            "authenticate": {"methodId": "login"},
        }.items():
            with pytest.raises(Refused) as caught:
                await editor.request(method, params)
            assert caught.value.code == UNKNOWN, method
        await editor.notify("_acme/told", {})
        await log_in(editor, ANA)
        assert await editor.prompt(await editor.new()) == {"stopReason": "end_turn"}
        (agent,) = gateway.engine.agents.entries
        assert [method for method, _, _ in agent.outbound.relayed] == ["session/new"]  # type: ignore[attr-defined]
        assert agent.outbound.forwarded == []  # type: ignore[attr-defined]


async def test_whom_the_connection_shows_needs_no_login_and_the_agent_has_its_own() -> None:
    agent = native(echo)
    async with rig(agent, authentication=AUTHENTICATION) as gateway:
        ana = await known(gateway, ANA)
        said = await ana.initialize()
        assert [each["id"] for each in said["authMethods"]] == ["login"]
        await ana.request("authenticate", {"methodId": "login"})
        await log_in(ana, ANA)
        await ana.request("logout", {})
        assert [method for method, _, _ in agent[1].relayed] == ["authenticate", "logout"]
        assert not any(ANA.encode() in params for _, params, _ in agent[1].relayed)
        assert await ana.new(), "its connection is still hers"


async def test_a_run_is_its_starters_and_an_answer_who_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    async with rig(scripted(asking({"enum": ["yes", "no"]})), authentication=AUTHENTICATION) as gateway:
        ana = await known(gateway, ANA)
        answer = gateway.engine.runs.answer

        async def answering(run_id: str, given: Any, interrupt: str | None = None) -> Any:
            asked.append(given.by)
            return await answer(run_id, given, interrupt)

        monkeypatch.setattr(gateway.engine.runs, "answer", answering)
        session = await ana.new()
        turn = await ana.start(session)
        await ana.choose(await ana.next_asked(), (await ana.next_asked())["params"]["options"][0]["optionId"])
        assert await turn == {"stopReason": "end_turn"}
        assert (await gateway.run(session)).request.principal == "ana"
        assert asked == [Identity(id="ana", roles=("lead",))]


def test_after_some_wrong_tokens_the_connection_ends_and_none_is_told_or_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with rig(scripted(echo), authentication=AUTHENTICATION) as gateway:
            editor = await known(gateway, None)
            await editor.raw('{"jsonrpc": "2.0", "method": "authenticate", "params": {"token": "stolen-token-0"')
            for number in range(TRIES):
                with pytest.raises(Refused) as caught:
                    await log_in(editor, f"stolen-token-{number}")
                assert caught.value.code == UNKNOWN
                assert "stolen" not in f"{caught.value.message}{caught.value.data}"
            await until(lambda: editor.ended and gateway.inbound.clients.connections == 0)
            burst = await known(gateway, None)
            params = [{"methodId": METHOD, "_meta": {"token": each}} for each in ("a", "b", "c", ANA)]
            made = [{"jsonrpc": "2.0", "id": n, "method": "authenticate", "params": p} for n, p in enumerate(params)]
            (visitor,) = gateway.inbound.clients._connected
            await burst.pipe.send([msgspec.json.encode(each) for each in made])
            answers = [asyncio.get_running_loop().create_future() for _ in made]
            burst._waiting |= {n: ("authenticate", answer) for n, answer in enumerate(answers)}
            await burst.until(lambda: burst.ended)
            told = await asyncio.gather(*answers, return_exceptions=True)
            assert [each.code for each in told if isinstance(each, Refused)] == [UNKNOWN] * 4
            assert visitor.ended and visitor.stranger, "what was right came too late"
            other = await known(gateway, None)
            with pytest.raises(Refused) as nothing:
                await other.request("authenticate", {"methodId": METHOD})
            assert nothing.value.code == -32602
            await log_in(other, ANA)

    run(main())
    assert "stolen-token" not in caplog.text and ANA not in caplog.text


async def test_a_connection_ends_when_its_token_expires_and_its_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.access.visit.LOOK_SECONDS", 0.01)

    go_on = asyncio.Event()

    async def held(context: Any) -> None:
        await go_on.wait()
        await echo(context)

    async with rig(scripted(held), authentication=AUTHENTICATION) as gateway:
        visitor = await known(gateway, lasting(60))
        session = await visitor.new()
        turn = await visitor.start(session)
        turn.add_done_callback(lambda over: over.cancelled() or over.exception())  # it may be told of the end
        run = await gateway.run(session)
        with later(gateway.inbound.clients.people, 61):
            await visitor.until(lambda: visitor.ended)
        go_on.set()
        ended = await gateway.engine.runs.wait(run.id, 30)
        assert ended is not None and ended.status is RunStatus.SUCCESS
        again = await known(gateway, token())
        await again.load(session)
        assert "hello there" in again.text()


async def test_a_newer_token_in_time_keeps_a_connection() -> None:
    async with rig(scripted(echo), authentication=AUTHENTICATION) as gateway:
        editor = await known(gateway, None)
        await log_in(editor, lasting(20))
        (connection,) = gateway.inbound.clients._connected
        before = connection._visit
        assert before is not None
        first = before._timer
        await log_in(editor, token())
        assert connection._visit is not None
        timer = connection._visit._timer
        assert first is not None and first.cancelled() and timer is not None
        assert timer.when() - asyncio.get_running_loop().time() > 30
        session = await editor.new()
        with pytest.raises(Refused) as another:
            await log_in(editor, ANA)
        assert "log out first" in another.value.message
        await editor.request("logout", {})
        with pytest.raises(Refused) as gone:
            await editor.prompt(session)
        assert gone.value.code == UNKNOWN
        await log_in(editor, ANA)
        with pytest.raises(Refused) as others:
            await editor.prompt(session)
        assert others.value.code == NOT_FOUND


async def test_strangers_keep_nobody_else_out_and_end_when_nobody_logs_in() -> None:
    async with rig(scripted(echo), authentication=AUTHENTICATION, max_connections=4) as gateway:
        people = gateway.inbound.clients.people
        stranger = await known(gateway, None)
        second = await gateway.raw(visitor=Visitor(people))
        await second.until(lambda: second.ended)
        ana = await known(gateway, ANA)
        await log_in(stranger, ANA)
        late = await known(gateway, None)
        await log_in(late, BOB)
        assert await ana.new() and await stranger.new() and await late.new()
        assert gateway.inbound.clients.connections == 3
        gateway.inbound.clients.people = Authenticator(OPTIONS.model_copy(update={"grace": 0.01}))
        idle = await gateway.raw(visitor=Visitor(gateway.inbound.clients.people))
        await idle.until(lambda: idle.ended)
        await ana.request("session/list", {})


async def test_who_uses_standard_input_and_output_is_not_asked() -> None:
    async with rig(scripted(echo), authentication=AUTHENTICATION) as gateway:
        local = await gateway.raw()
        assert (await local.initialize())["authMethods"] == []
        session = await local.new()
        assert await local.prompt(session) == {"stopReason": "end_turn"}
        assert (await gateway.run(session)).request.principal is None
        ana = await known(gateway, ANA)
        with pytest.raises(Refused):
            await ana.load(session)
