"""The operator's API over an engine in the test's own process: who may ask, and what each operation takes and says."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import jwt
import msgspec
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette

from gateway import registry
from gateway.admin import AdminApi, Operators, open_near
from gateway.admin.api import EVENTS_BYTES, SHOWN_BYTES, WAIT_SECONDS
from gateway.agents.entry import Entry
from gateway.browser_guard import HostNames
from gateway.config import BreakerOptions, Config, loads
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.types import Agent, Answer, Failure, Interrupt, RunStatus, Thread
from gateway.health import Overlooker
from gateway.recording import LIMITS, MOST_SECONDS, AllRecordings, ReadRecording, Recorder, RunRecording
from gateway.recording.recorder import RecordingPage
from gateway.runs import Engine
from gateway.runs.post import Unanswered
from gateway.store import Undelivered
from gateway.transport.tap import Said
from tests.runs.test_targets import Program, away, grouped
from tests.support.aio import run
from tests.support.scripted import AGENT, Scripted, echo, engine, request, route

HOST = "127.0.0.1:8080"
SECRET = "a secret of the issuer that is long enough for HS256"
TOKENS = f"""
operators:
  clients: [{{name: olga, token: of-olga, roles: [lead]}}]
  jwt: {{key: "{SECRET}", algorithms: [HS256], audience: operating, roles: groups}}
"""
TARGETS = """
routes:
  - {name: scripted, target: {protocol: agent_client, url: "wss://ann:secret@[::1]:9/below?key=hidden"}}
  - {name: plain, target: {protocol: agent_protocol, url: "http://agents.example"}}
  - {name: program, target: {protocol: agent_client, command: [cat, secret]}}
store: {url: "sqlite://"}
"""


def token(**claims: Any) -> str:
    return jwt.encode({"sub": "otto", "aud": "operating", "exp": 2**33, **claims}, SECRET, "HS256")


@dataclass
class Admin:
    """The API, asked from this machine unless `client` says otherwise."""

    engine: Engine
    config: Config
    app: Any
    recorder: Recorder

    async def ask(
        self, path: str, method: str = "GET", *, client: str = "127.0.0.1", headers: Mapping[str, str] = {}, **how: Any
    ) -> httpx2.Response:
        transport = httpx2.ASGITransport(self.app, client=(client, 1))
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as http:
            return await http.request(method, f"/admin{path}", headers=dict(headers), **how)

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self.ask(path, params=query)
        assert answer.status_code == 200, answer.text
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
        return answer.json()

    async def refused(self, path: str, **query: Any) -> str:
        answer = await self.ask(path, params=query)
        assert answer.status_code == 400 and answer.headers["cache-control"] == "no-store", answer.text
        return str(answer.json()["error"])


@asynccontextmanager
async def admin(
    script: Callable[[RunContext], Awaitable[None]] = echo,
    *,
    more: str = "",
    private: bool = True,
    reread: Callable[[], Awaitable[str]] | None = None,
) -> AsyncIterator[Admin]:
    config = loads(TARGETS + more, registry.scan(), {})
    recorder = Recorder()
    async with engine(recorder=recorder) as made:
        made.use([Entry(route, Scripted(script)) for route in config.routes])
        operators = Operators(config.operators, HostNames(()), near=open_near(config, private=private))
        api = AdminApi(made, lambda: config, operators, Overlooker(made, str), reread, recorder=recorder)
        try:
            yield Admin(made, config, Starlette(routes=[*api.routes()]), recorder)
        finally:
            recorder.close()


async def asks(context: RunContext) -> None:
    """Asks twice, one question after the other."""
    for name in ("first", "second"):
        await context.ask(Interrupt(id=name, kind="question"))
    context.emit(e.RunFinished())


# --- who may -------------------------------------------------------------------------------------------------------

CLIENTS = "inbound: {agent_connect: {authentication: {clients: [{name: ann, token: hers}]}}}\n"


@pytest.mark.parametrize(
    ("how", "headers", "client", "status"),
    [
        ({}, {}, "127.0.0.1", 200),
        ({}, {}, "::1", 200),
        ({}, {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}, "127.0.0.1", 200),
        ({}, {"sec-fetch-site": "none"}, "127.0.0.1", 200),
        ({}, {}, "192.0.2.1", 403),
        ({}, {"x-forwarded-for": "127.0.0.1"}, "127.0.0.1", 403),
        ({}, {"host": "evil.example"}, "127.0.0.1", 403),
        ({}, {"host": "evil.example", "origin": "http://evil.example"}, "127.0.0.1", 403),
        ({}, {"origin": "http://localhost:1"}, "127.0.0.1", 403),
        ({}, {"origin": "null"}, "127.0.0.1", 403),
        ({}, {"sec-fetch-site": "cross-site"}, "127.0.0.1", 403),
        ({"private": False}, {}, "127.0.0.1", 403),
        ({"more": CLIENTS}, {}, "127.0.0.1", 403),
        ({"more": "public_url: https://gateway.example\n"}, {}, "127.0.0.1", 403),
        ({"more": TOKENS}, {}, "127.0.0.1", 401),
        ({"more": TOKENS}, {"authorization": "Bearer of-olga"}, "192.0.2.1", 200),
        ({"more": TOKENS}, {"authorization": "Bearer of-olga", "origin": "http://evil.example"}, "127.0.0.1", 403),
        ({"more": TOKENS}, {"authorization": "Bearer of-olga", "sec-fetch-site": "same-site"}, "127.0.0.1", 403),
        ({"more": TOKENS}, {"authorization": "Basic of-olga"}, "127.0.0.1", 401),
        ({"more": TOKENS}, {"authorization": "Bearer hers"}, "127.0.0.1", 401),
        ({"more": TOKENS}, {"authorization": f"Bearer {token(aud='gateway')}"}, "127.0.0.1", 401),
    ],
)
async def test_an_operator_is_on_this_machine_alone_or_shows_an_operators_token(
    how: dict[str, Any], headers: dict[str, str], client: str, status: int
) -> None:
    async with admin(**how) as at:
        answer = await at.ask("/runs", headers=headers, client=client)
        assert answer.status_code == status, answer.text
        assert ("error" in answer.json()) is (status != 200)


async def test_who_shows_no_token_is_told_so_and_who_shows_a_wrong_one_that_it_is_wrong() -> None:
    """RFC 6750, 3.1: no error code for who did not try."""
    async with admin(more=TOKENS) as at:
        for headers, told in (
            ({}, 'Bearer realm="interlingua"'),
            ({"authorization": "Bearer nobodys"}, 'Bearer error="invalid_token"'),
        ):
            answer = await at.ask("", headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, told)
    async with admin(private=False) as at:
        assert "www-authenticate" not in (await at.ask("")).headers


@pytest.mark.parametrize(
    ("shown", "name", "roles"),
    [
        (None, None, ()),
        ("of-olga", "olga", ("lead",)),
        (token(groups=["head", "editor"]), "otto", ("head", "editor")),
        (token(), "otto", ()),
        (token(sub="olga", groups=["head"]), "olga", ("lead",)),
    ],
)
async def test_an_answer_is_the_operators_with_his_roles(shown: str | None, name: str | None, roles: Any) -> None:
    headers = {} if shown is None else {"authorization": f"Bearer {shown}"}

    async with admin(asks, more=TOKENS if shown else "") as at:
        assert (await at.ask("", headers=headers)).json()["operator"] == name
        one = await at.engine.runs.start(request())
        await at.engine.runs.wait(one.id, timeout=30)
        body = {"value": 7, "interrupt": "first"}
        answer = await at.ask(f"/runs/{one.id}/answer", "POST", headers=headers, json=body)
        assert answer.status_code == 200, answer.text
        resumed = [event for _, event in await at.engine.runs.events(one.id) if isinstance(event, e.Resumed)]
        by = resumed[0].answer.by
        assert (by and by.id, by and by.roles) == (name, roles if name else None)
        assert resumed[0].answer.value == 7


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON ; charset=utf-8", 200),
        ("text/plain", 400),
        ("text/plain; application/json", 400),
        (None, 400),
    ],
)
async def test_only_json_changes_anything(kind: str | None, status: int) -> None:
    async with admin(asks) as at:
        one = await at.engine.runs.start(request())
        await at.engine.runs.wait(one.id, timeout=30)
        headers = {} if kind is None else {"content-type": kind}
        for path in ("answer", "cancel"):
            answer = await at.ask(f"/runs/{one.id}/{path}", "POST", headers=headers, content=b"")
            assert answer.status_code == status, answer.text
        found = await at.engine.runs.get(one.id)
        assert (found.status is RunStatus.INTERRUPTED) is (status == 400)
        if status == 200:
            await at.engine.runs.wait(one.id, timeout=30)
            assert (await at.get(f"/runs/{one.id}"))["cancel_reason"] == "cancelled by the operator"


@pytest.mark.parametrize("body", [b"[", b'{"reason": 7, "outcome": 7}', b'{"why": "x"}', b"[]"])
async def test_a_body_of_another_form_is_refused_with_what_is_wrong(body: bytes) -> None:
    async with admin(asks) as at:
        one = await at.engine.runs.start(request())
        for path in ("answer", "cancel"):
            answer = await at.ask(
                f"/runs/{one.id}/{path}", "POST", headers={"content-type": "application/json"}, content=body
            )
            assert answer.status_code == 400 and answer.json()["error"].startswith("body: ")


# --- what is said --------------------------------------------------------------------------------------------------


async def test_runs_are_filtered_and_paged_newest_first() -> None:
    async with admin(echo) as at:
        ids: list[str] = []
        for name in ("t0", "t1"):
            await at.engine.threads.create(Thread(id=name, created_at=0, updated_at=0))
        for number in range(3):
            thread = f"t{number % 2}"
            one = await at.engine.runs.start(request(thread=thread, principal=f"p{number}", input={"message": "x"}))
            await at.engine.runs.wait(one.id, timeout=30)
            ids.insert(0, one.id)

        async def listed(**query: Any) -> list[str]:
            return [found["id"] for found in (await at.get("/runs", **query))["runs"]]

        assert await listed() == ids and (await at.get("/runs"))["count"] == 3
        assert await listed(limit=1) == ids[:1] and await listed(limit=2, offset=1) == ids[1:]
        assert await listed(offset=0, limit=10**9) == ids
        assert await listed(thread="t1") == ids[1:2] and await listed(principal="p2") == ids[:1]
        assert await listed(protocol="other") == [] == await listed(agent="plain")
        assert await listed(status="success,error") == ids and await listed(status="error") == []
        assert await listed(status="") == ids
        for query in ({"limit": 0}, {"limit": -1}, {"limit": "x"}, {"limit": "²"}, {"offset": "1" * 20}):
            (name,) = query
            assert (await at.refused("/runs", **query)).startswith(f"{name}: ")
        assert (await at.refused("/runs", status="success,lost")).startswith("status: 'success,lost'")
        assert await listed(offset="9" * 19) == []
        (one_,) = (await at.get("/runs", limit=1))["runs"]
        assert (one_["agent"], one_["protocol"], one_["principal"]) == ("scripted", "test", "p2")
        assert (one_["stop_reason"], one_["failure"], one_["waits"], one_["status"]) == ("end_turn", None, 0, "success")
        assert (await at.get(""))["runs"] | {"success": 3} == (await at.get(""))["runs"]


async def test_a_list_of_runs_does_not_read_what_they_were_asked_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(record: bytes) -> None:
        raise AssertionError("a whole run")

    async with admin() as at:
        one = await at.engine.runs.start(request())
        await at.engine.runs.wait(one.id, timeout=30)
        monkeypatch.setattr("gateway.store.sqlite.queries.decode_run", whole)
        assert [found["id"] for found in (await at.get("/runs"))["runs"]] == [one.id]


async def test_a_run_says_what_it_was_asked_what_it_asks_and_why_it_failed() -> None:
    async def fails(context: RunContext) -> None:
        await context.ask(Interrupt(id="q", kind="question"))
        context.emit(e.RunFailed(failure=Failure(code="internal", message="broken")))

    async with admin(fails) as at:
        trace = f"00-{'a' * 32}-{'b' * 16}-01"
        metadata = {"a": 1, "token": "of-a-client"}
        one = await at.engine.runs.start(request(metadata=metadata, traceparent=trace))
        await at.engine.runs.wait(one.id, timeout=30)
        whole = await at.get(f"/runs/{one.id}")
        assert [found["id"] for found in whole["interrupts"]] == ["q"] and whole["waits"] == 1
        shown = {"a": 1, "token": "[removed]"}
        assert (whole["metadata"], whole["traceparent"], whole["cancel_reason"]) == (shown, trace, None)
        assert whole["trace"] is None and whole["recorded"] is False
        assert whole["stop_reason"] is None and whole["failure"] is None
        assert whole["input"] == {"bytes": 25, "document": {"message": "hello there"}}
        await at.ask(f"/runs/{one.id}/answer", "POST", json={})
        await at.engine.live[one.id].over()
        failure = (await at.get(f"/runs/{one.id}"))["failure"]
        assert (failure["code"], failure["message"]) == ("internal", "broken")
        (answered,) = [event for _, event in await at.engine.runs.events(one.id) if isinstance(event, e.Resumed)]
        assert answered.answer == Answer()
        for path in ("/runs/none", "/runs/none/events"):
            assert (await at.ask(path)).status_code == 404
        stream = {"accept": "text/event-stream"}
        assert (await at.ask("/runs/none/events", headers=stream)).status_code == 404


@pytest.mark.parametrize("more", [0, 1])
async def test_a_document_that_is_too_large_to_look_at_is_only_measured(more: int) -> None:
    async with admin(asks) as at:
        text = "x" * (SHOWN_BYTES - len('{"message":""}') + more)
        one = await at.engine.runs.start(request(text))
        given = (await at.get(f"/runs/{one.id}"))["input"]
        assert given["bytes"] == SHOWN_BYTES + more and ("document" in given) is (more == 0)


async def test_a_log_is_told_by_pages_of_some_size_or_followed_to_the_end() -> None:
    async def says(context: RunContext) -> None:
        for _ in range(4):
            context.emit(e.PartDelta(part="text", delta="x" * (EVENTS_BYTES // 3)))
            await context.drain()
        context.emit(e.RunFinished())

    async with admin(says) as at:
        one = await at.engine.runs.start(request())
        await at.engine.runs.wait(one.id, timeout=30)
        path, numbers, after = f"/runs/{one.id}/events", list[int](), 0
        page = await at.get(path)
        assert 0 < page["last"] < 6
        while page["events"]:
            numbers += [found["number"] for found in page["events"]]
            after = page["last"]
            assert after == numbers[-1]
            page = await at.get(path, after=after)
        assert numbers == [*range(1, after + 1)] and page == {"events": [], "last": after}
        assert await at.get(path, after="9" * 19) == {"events": [], "last": 2**53}
        assert (await at.get(path, after=0))["events"][0]["number"] == 1
        assert (await at.refused(path, after="x")).startswith("after: ")
        for headers, query, first in (
            ({}, {}, 1),
            ({}, {"after": 0}, 1),
            ({}, {"after": "9" * 19}, after + 1),
            ({}, {"after": after - 1}, after),
            ({"last-event-id": str(after - 1)}, {"after": 0}, after),
            ({"last-event-id": "x"}, {"after": after - 1}, after),
            ({"last-event-id": "9" * 19}, {"after": after - 1}, after + 1),
            ({"last-event-id": "9" * 20}, {"after": after - 1}, after),
        ):
            answer = await at.ask(path, headers={"accept": "text/event-stream", **headers}, params=query)
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["x-content-type-options"] == "nosniff"
            lines = answer.text.splitlines()
            assert lines[0] == ": following"
            assert [int(line[4:]) for line in lines if line.startswith("id: ")] == [*range(first, after + 1)]
            assert json.loads(lines[-2].removeprefix("data: "))["status"] == "success" and lines[-3] == "event: run"


async def test_who_follows_a_silent_run_is_told_that_the_connection_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    async def waits(context: RunContext) -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, over.set)
        await over.wait()
        context.emit(e.RunFinished())

    monkeypatch.setattr("gateway.admin.api.KEEP_ALIVE", 0.005)
    async with admin(waits) as at:
        one = await at.engine.runs.start(request())
        told = await at.ask(f"/runs/{one.id}/events", headers={"accept": "text/event-stream"})
        assert ": alive" in told.text.splitlines()


async def test_agents_are_told_where_they_are_and_no_secret_of_it() -> None:
    async with admin(echo) as at:
        bare = Entry(route("bare"), Scripted(echo))
        at.engine.use([*at.engine.agents.entries, bare])
        agents = {found["name"]: found for found in (await at.get("/agents"))["agents"]}
        assert {name: found["target"] for name, found in agents.items()} == {
            "scripted": "wss://[::1]:9/below",
            "plain": "http://agents.example",
            "program": "cat",
            "bare": "",
        }
        assert all(found["ready"] and found["capabilities"]["cancel"] for found in agents.values())


class Silent(Scripted):
    """An agent that does not say what it is."""

    async def describe(self) -> Agent:
        await asyncio.Event().wait()
        return self.agent


async def test_agents_are_told_with_what_they_are_and_how_their_runs_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not say it is told as its route describes it, in time."""
    monkeypatch.setattr("gateway.admin.api.LIST_SECONDS", 0.01)

    async def counts(context: RunContext) -> None:
        context.lost("words", 2)
        if context.run.request.input["message"] == "wait":
            await context.ask(Interrupt(id="q", kind="question"))
        context.emit(e.RunFinished())

    async with admin() as at:
        described = replace(AGENT, version="1.2", description="of its own")
        at.engine.use(
            [
                Entry(route("reckoned"), Scripted(counts, agent=described)),
                Entry(route("unspoken", description="of the route", labels={"a": ("b",)}), Silent(echo)),
            ]
        )
        for message in ("go", "go", "wait"):
            one = await at.engine.runs.start(request(message, agent="reckoned"))
            await at.engine.runs.wait(one.id, timeout=30)
        counted, silent = (await at.get("/agents"))["agents"]
        seconds = counted.pop("seconds")
        assert seconds["p95"] >= seconds["p50"] > 0
        fixed = {"protocol": "scripted", "target": "", "targets": [], "match": {}, "governed": False}
        assert counted == {
            **fixed, "name": "reckoned", "version": "1.2", "description": "of its own", "labels": {},
            "ready": True, "reason": "",
            "capabilities": json.loads(msgspec.json.encode(AGENT.capabilities)), "converses": True,
            "input_schema": AGENT.input_schema, "text_input": "/message",
            "active": 1, "started": 3, "ended": {"success": 2}, "losses": 6,
        }  # fmt: skip
        del silent["seconds"]
        unknown = dict.fromkeys(("version", "capabilities", "converses", "input_schema", "text_input"))
        assert silent == {
            **fixed, **unknown, "name": "unspoken", "description": "of the route", "labels": {"a": ["b"]},
            "ready": False, "reason": "not asked yet", "active": 0, "started": 0, "ended": {}, "losses": 0,
        }  # fmt: skip


async def test_targets_are_told_with_which_of_them_get_runs_also_for_the_agents_that_a_route_hosts() -> None:
    other = replace(AGENT, input_schema={"type": "object", "properties": {"city": {"type": "string"}}})
    one, two, three = Program("one"), Program("two", other), Program("three")
    three.down = away()

    async with admin() as at:
        group = grouped([one, two, three], weights=(3.0, 1.0, 0.5), breaker=BreakerOptions(failures=1, first=30))
        entry = Entry(group.route, group, group)
        at.engine.use([entry, Entry(route("guest"), Scripted(echo), host=entry)])
        await group.describe()
        for found in (await at.get("/agents"))["agents"]:
            told = found["targets"]
            waits = [each.pop("wait") for each in told]
            assert waits[:2] == [0, 0] and 0 < waits[2] == round(waits[2], 1)
            assert told[1].pop("reason") != ""
            unlike = [each.pop("unlike") for each in told]
            assert (unlike, [each["state"] for each in told]) == ([False, True, False], ["closed", "closed", "open"])
            assert [each["weight"] for each in told] == [3.0, 1.0, 0.5]
            assert [each["target"] for each in told] == ["http://one", "http://two", "http://three"]
            assert (told[0]["reason"], told[2]["reason"]) == ("", "no connection could be made")


async def test_protocols_are_told_with_their_doors_and_losses_with_their_reasons() -> None:
    async def loses(context: RunContext) -> None:
        context.lost("terminals", 3)
        context.lost("something", 5)
        context.emit(e.RunFinished())

    async with admin(loses, more="inbound: {agent_connect: {path: /ac}}\n") as at:
        told = {one["name"]: one for one in (await at.get("/protocols"))["protocols"]}
        assert set(told) == set(registry.scan()) and told["agent_connect"]["door"] == "/ac"
        assert told["agent_protocol"]["door"] is None and told["agent_connect"]["calls"] is True
        for one in told.values():
            assert one["title"] and isinstance(one["losses"], dict)
        one = await at.engine.runs.start(request())
        await at.engine.runs.wait(one.id, timeout=30)
        lost = (await at.get("/losses"))["losses"]
        counts = [found["count"] for found in lost]
        assert counts == sorted(counts, reverse=True)
        (ours,) = [found for found in lost if (found["agent"], found["what"]) == ("scripted", "something")]
        assert ours["count"] >= 5 and ours["why"] is None


async def test_the_table_is_read_again_only_where_there_is_a_file_and_what_is_wrong_is_said() -> None:
    wrong = iter(["", "line 3: no"])

    async def reread() -> str:
        return next(wrong)

    async with admin(reread=reread) as at:
        assert len((await at.ask("/reload", "POST")).json()["agents"]) == 3
        refused = await at.ask("/reload", "POST")
        assert (refused.status_code, refused.json()) == (400, {"error": "line 3: no"})
        assert (await at.ask("/reload")).status_code == 405
    async with admin() as at:
        refused = await at.ask("/reload", "POST")
        assert refused.status_code != 200 and "not read from a file" in refused.json()["error"]
        assert (await at.get("/openapi.json"))["openapi"]


@pytest.mark.parametrize(
    ("given", "link"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", f"https://traces.example/t/{'a' * 32}?x"),
        ("00-../../secret-01", None),
        (None, None),
    ],
)
def test_a_run_links_to_its_trace_where_people_look_at_traces(given: str | None, link: str | None) -> None:
    async def scene() -> None:
        async with admin(more='telemetry: {traces: "https://traces.example/t/{trace}?x"}\n') as at:
            one = await at.engine.runs.start(request(traceparent=given))
            await at.engine.runs.wait(one.id, timeout=30)
            assert (await at.get(f"/runs/{one.id}"))["trace"] == link

    run(scene())


# --- the wire of runs ----------------------------------------------------------------------------------------------

STREAM = {"accept": "text/event-stream"}


async def recorded(at: Admin) -> tuple[str, RunRecording]:
    """A run that is recorded, and has stopped."""
    assert (await at.ask("/recording", "POST", json={"record": True})).status_code == 200
    one = await at.engine.runs.start(request())
    await at.engine.runs.wait(one.id, timeout=30)
    recording = at.recorder.of(one.id)
    assert recording is not None
    return one.id, recording


def said(recording: RunRecording, times: int, data: bytes = b"{}") -> None:
    """Something was said of a run."""
    for number in range(times):
        recording.note(Said(1.0, True, "message", f"said {number}", data, len(data), "text/plain"), "agent")


async def test_an_operator_has_the_wire_of_one_agent_or_of_all_recorded_for_some_time() -> None:
    async with admin(asks) as at:

        async def turned(**wish: Any) -> Any:
            begun = time.time()
            answer = await at.ask("/recording", "POST", json=wish)
            assert answer.status_code == 200, answer.text
            told = answer.json()
            wished = {one["agent"]: one for one in told["wishes"]}[wish.get("agent")]
            seconds = wish.get("seconds", 600)
            assert wished["record"] is wish["record"]
            assert begun + seconds <= wished["until"] <= time.time() + seconds
            assert told == await at.get("/recording")
            return told["agents"]

        nothing = await at.get("/recording")
        none = dict.fromkeys(("scripted", "plain", "program"), False)
        assert nothing == {"agents": none, "wishes": [], "runs": 0, "bytes": 0, "unheard": 0, "limits": LIMITS}
        assert await turned(record=True, agent="scripted") == {**none, "scripted": True}
        assert await turned(record=True, seconds=MOST_SECONDS) == dict.fromkeys(none, True)
        assert await turned(record=False, agent="plain", seconds=1) == {**dict.fromkeys(none, True), "plain": False}
        one = await at.engine.runs.start(request())
        await at.engine.runs.wait(one.id, timeout=30)
        kept = await at.get("/recording")
        assert kept["runs"] == 1 and kept["bytes"] > 0
        assert (await at.get(f"/runs/{one.id}"))["recorded"] is True


@pytest.mark.parametrize(
    ("wish", "status", "why"),
    [
        ({"record": True, "seconds": 0}, 400, f"seconds: from 1 to {MOST_SECONDS}"),
        ({"record": True, "seconds": MOST_SECONDS + 1}, 400, f"seconds: from 1 to {MOST_SECONDS}"),
        ({"record": True, "agent": "nobody"}, 404, "there is no agent 'nobody'"),
        ({"record": "wire"}, 400, "body: "),
        ({"record": True, "for": 5}, 400, "body: "),
        ({}, 400, "body: "),
    ],
)
async def test_a_wish_to_record_that_cannot_be_met_is_refused_and_changes_nothing(
    wish: dict[str, Any], status: int, why: str
) -> None:
    async with admin() as at:
        refused = await at.ask("/recording", "POST", json=wish)
        assert refused.status_code == status and refused.json()["error"].startswith(why), refused.text
        assert (await at.get("/recording"))["wishes"] == []


async def test_the_wire_of_a_run_is_told_by_pages_of_some_size_or_followed_to_the_end() -> None:
    async with admin(asks) as at:
        name, recording = await recorded(at)
        said(recording, 45, b"x" * (EVENTS_BYTES // 40))
        path, numbers, after = f"/runs/{name}/wire", list[int](), 0
        page = await at.get(path)
        assert 0 < page["last"] < recording.last, "more than one page"
        assert page["entries"][-1]["title"].startswith("said ")
        while page["entries"]:
            numbers += [entry["n"] for entry in page["entries"]]
            after = page["last"]
            assert after == numbers[-1]
            page = await at.get(path, after=after)
        assert numbers == [*range(1, recording.last + 1)] and page == {"entries": [], "last": after}
        assert await at.get(path, after="9" * 19) == {"entries": [], "last": 2**53}
        assert (await at.refused(path, after="x")).startswith("after: ")
        recording.finish()
        for headers, query, first in (
            ({}, {}, 1),
            ({}, {"after": after - 1}, after),
            ({"last-event-id": str(after - 1)}, {"after": 0}, after),
            ({}, {"after": "9" * 19}, after + 1),
        ):
            answer = await at.ask(path, headers={**STREAM, **headers}, params=query)
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["x-content-type-options"] == "nosniff"
            lines = answer.text.splitlines()
            assert lines[:2] == [": following", ""] and lines[-3:] == ["event: over", "data: {}", ""]
            assert [int(line[4:]) for line in lines if line.startswith("id: ")] == [*range(first, after + 1)]
            told = [json.loads(line[6:])["n"] for line in lines[:-3] if line.startswith("data: ")]
            assert told == [*range(first, after + 1)]


async def test_who_follows_a_wire_is_told_what_comes_and_while_nothing_does_that_the_connection_is_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.admin.api.WAIT_SECONDS", 0.005)
    async with admin(asks) as at:
        name, recording = await recorded(at)
        last, news = recording.last, RunRecording.news
        before = iter((lambda: None, lambda: said(recording, 2), recording.finish))

        async def asked(self: RunRecording, after: int, timeout: float) -> bool:
            next(before)()
            return await news(self, after, timeout)

        monkeypatch.setattr(RunRecording, "news", asked)
        answer = await at.ask(f"/runs/{name}/wire", headers=STREAM, params={"after": last})
        lines = answer.text.splitlines()
        assert lines[2] == ": alive" and lines[-3:] == ["event: over", "data: {}", ""]
        assert [line for line in lines if line.startswith("id: ")] == [f"id: {last + 1}", f"id: {last + 2}"]


class Away:
    """The recordings of another process, which answers this, one after the other."""

    def __init__(self, patch: pytest.MonkeyPatch, *answers: RecordingPage | InterlinguaError | None) -> None:
        self.asked: list[tuple[int, float]] = []
        self._answers = iter(answers)
        patch.setattr(AllRecordings, "read", self._read)

    async def _read(self, process: str, call: ReadRecording) -> RecordingPage | None:
        self.asked.append((call.after, call.wait))
        answer = next(self._answers)
        if isinstance(answer, InterlinguaError):
            raise answer
        return answer


def entries(*numbers: int, over: bool = False) -> RecordingPage:
    return RecordingPage(tuple((number, msgspec.Raw(b'{"n":%d}' % number)) for number in numbers), over)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([entries(1, 2), entries(3, over=True)], ["id: 1", "id: 2", "id: 3"]),
        ([entries(1), Unanswered("silent"), entries(2), entries(over=True)], ["id: 1", ": alive", "id: 2"]),
        ([entries(1), entries(), entries(over=True)], ["id: 1", ": alive"]),
        ([entries(1), Undelivered("gone")], ["id: 1"]),
        ([entries(1), None], ["id: 1"]),
    ],
)
async def test_who_follows_the_wire_of_a_run_of_another_process_is_told_until_it_is_over_or_gone(
    answers: list[Any], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admin() as at:
        one = await at.engine.runs.start(request())
        await at.engine.runs.wait(one.id, timeout=30)
        away = Away(monkeypatch, entries(1), *answers)
        answer = await at.ask(f"/runs/{one.id}/wire", headers=STREAM)
        lines = answer.text.splitlines()
        assert [line for line in lines if line[:2] in ("id", ": ")] == [": following", *told]
        assert lines[-3:] == ["event: over", "data: {}", ""]
        assert away.asked[:2] == [(0, 0.0), (0, WAIT_SECONDS)] and len(away.asked) == 1 + len(answers)


async def test_a_recording_that_is_gone_with_its_process_is_not_found_and_who_does_not_hear_a_wish_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def others(*_: object) -> list[str]:
        return ["gone"]

    async with admin() as at:
        one = await at.engine.runs.start(request())
        await at.engine.runs.wait(one.id, timeout=30)
        Away(monkeypatch, Undelivered("gone"))
        refused = await at.ask(f"/runs/{one.id}/wire")
        assert (refused.status_code, refused.json()["error"]) == (
            404,
            "what was recorded of this run, if it was, is gone with its process",
        )
        assert (await at.get("/recording"))["unheard"] == 0
        monkeypatch.setattr(type(at.engine.store.mailbox), "others", others)
        assert (await at.ask("/recording", "POST", json={"record": True})).json()["unheard"] == 1


@pytest.mark.parametrize("headers", [{}, STREAM])
async def test_of_a_run_that_was_not_recorded_there_is_no_wire(headers: dict[str, str]) -> None:
    async with admin() as at:
        one = await at.engine.runs.start(request())
        await at.engine.runs.wait(one.id, timeout=30)
        for name, why in ((one.id, "the wire of this run is not recorded"), ("none", "none")):
            refused = await at.ask(f"/runs/{name}/wire", headers=headers)
            assert refused.status_code == 404 and why in refused.json()["error"], refused.text


async def test_the_wire_of_a_run_that_was_deleted_is_told_to_nobody() -> None:
    async with admin() as at:
        name, recording = await recorded(at)
        await at.engine.runs.delete(name)
        assert at.recorder.of(name) is recording
        assert (await at.ask(f"/runs/{name}/wire")).status_code == 404
