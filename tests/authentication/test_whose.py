"""What somebody makes is there for nobody else: others are told what they are told of what there is not at all."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from gateway.browser_guard import HostNames
from gateway.config.models import Monitors
from gateway.core.types import RunQuery, RunStatus, ThreadQuery, agent_id
from gateway.health import VisibleAgents
from gateway.mcp.runs.tools import ANSWER
from tests.authentication.rig import ANA, BOB, CARL, OLGA, Doors, doors, house, token

SOME = "00000000-0000-4000-8000-000000000000"
CONNECT = "/agent-connect"
TASKS = "/agent-protocol/echo/ap/v1/agent/tasks"
ASKED = "/agent-protocol/asker/ap/v1/agent/tasks"


async def same(there: Doors, method: str, path: str, id: str, shown: str, **options: Any) -> None:
    """What is at `path` is for whoever shows this as if there were no such id."""
    known = await there.call(method, path.replace("ID", id), shown, **options)
    unknown = await there.call(method, path.replace("ID", SOME), shown, **options)
    assert unknown.status_code == 404 and "retry-after" not in unknown.headers, (path, unknown.text)
    assert (known.status_code, known.text.replace(id, SOME)) == (404, unknown.text), path


async def names(there: Doors, shown: str) -> list[str]:
    found = await there.said("POST", f"{CONNECT}/agents/search", shown, json={})
    return [each["metadata"]["ref"]["name"] for each in found]


async def test_the_agents_that_somebody_may_not_use_are_not_there() -> None:
    async with house() as there:
        every = ["echo", "asker", "held", "maker"]
        for shown, wanted in ((ANA, every), (OLGA, every), (BOB, ["echo", "asker"]), (token(), ["echo", "held"])):
            assert await names(there, shown) == wanted
            client = await there.mcp(shown)
            assert [each["name"] for each in (await client.ask("agents/list"))["agents"]] == wanted
            plain = {"jsonrpc": "2.0", "id": 1, "method": "agents/list"}
            found = await there.said("POST", "/agent-communication/mcp", shown, json=plain)
            assert [each["name"] for each in found["result"]["agents"]] == wanted
            tools = [each["name"] for each in (await client.ask("tools/list"))["tools"]]
            assert tools[: len(wanted)] == wanted
        have = "have echo, asker"
        for named in ("held", agent_id("held"), agent_id("held").upper(), agent_id("held").replace("-", "")):
            body = {"agent_id": named, "input": {"message": "x"}}
            found = await there.call("POST", f"{CONNECT}/runs", BOB, json=body)
            unknown = await there.call("POST", f"{CONNECT}/runs", BOB, json={**body, "agent_id": "nobody"})
            assert (found.status_code, unknown.status_code) == (404, 404)
            assert found.json() == unknown.json().replace("nobody", named) == f"no agent '{named}'; {have}"
        for way in ("", "/descriptor"):
            found = await there.call("GET", f"{CONNECT}/agents/{agent_id('held')}{way}", BOB)
            assert found.status_code == 404 and have in found.text
        for agent in ("held", agent_id("held"), "nobody"):
            found = await there.call("POST", f"/agent-protocol/{agent}/ap/v1/agent/tasks", BOB, json={})
            assert found.status_code == 404 and found.json()["message"].endswith(f"not found; {have}.")
        bob = await there.mcp(BOB)
        for method, what in (("agents/run", {"input": {"message": "x"}}), ("tools/call", {"arguments": {}})):
            error = await bob.ask(method, name="held", **what)
            assert (error["code"], error["message"]) == (-32602, "/name: no agent held; there are echo, asker")
        bob.path = "/agent-communication/mcp/held"
        found = await bob.post("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={})
        assert found.status_code == 404, "its session is at another path"
        del bob.headers["mcp-session-id"]
        found = await bob.post("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={})
        assert found.status_code == 404
        assert found.json()["error"]["message"] == "no agent held; there are echo, asker"
        assert await there.engine.runs.count(RunQuery()) == 0


async def test_runs_are_theirs_who_started_them_and_say_so() -> None:
    async with house() as there:
        mine, other = await there.started("asker"), await there.started("asker", BOB)
        for shown, wanted in ((ANA, [mine]), (BOB, [other]), (OLGA, [other, mine]), (token(), [])):
            found = await there.said("POST", f"{CONNECT}/runs/search", shown, json={})
            assert [each["run_id"] for each in found] == wanted
        for way, method, body in (
            ("", "GET", None),
            ("/wait", "GET", None),
            ("/stream", "GET", None),
            ("", "POST", {"ok": True}),
            ("/cancel", "POST", None),
            ("", "DELETE", None),
        ):
            await same(there, method, f"{CONNECT}/runs/ID{way}", mine, BOB, json=body)
        kept = await there.engine.runs.get(mine)
        assert (kept.request.principal, kept.request.tools) == ("ana", ("re*",))
        assert (await there.engine.runs.get(other)).request.tools == ("*",)
        await there.engine.runs.wait(mine)
        assert (await there.engine.runs.get(mine)).status is RunStatus.INTERRUPTED, "nobody's answer has reached it"
        await there.said("POST", f"{CONNECT}/runs/{mine}", OLGA, json={"ok": True})
        found = await there.said("GET", f"{CONNECT}/runs/{mine}/wait", ANA)
        assert found["output"]["values"]["message"] == "olga: {'ok': True}"


async def test_threads_are_theirs_who_made_them_with_all_that_is_on_them() -> None:
    async with house() as there:
        mine = (await there.said("POST", f"{CONNECT}/threads", ANA, json={"metadata": {"a": 1}}))["thread_id"]
        other = (await there.said("POST", f"{CONNECT}/threads", BOB, json={"metadata": {"a": 1}}))["thread_id"]
        for shown, wanted in ((ANA, [mine]), (BOB, [other]), (OLGA, [other, mine]), (token(), [])):
            found = await there.said("POST", f"{CONNECT}/threads/search", shown, json={"metadata": {"a": 1}})
            assert [each["thread_id"] for each in found] == wanted
        body = {"agent_id": "echo", "input": {"message": "secret words"}}
        run_id = (await there.said("POST", f"{CONNECT}/threads/{mine}/runs/wait", ANA, json=body))["run"]["run_id"]
        at = f"{CONNECT}/threads/ID"
        for way, method, what in (
            ("", "GET", None),
            ("", "PATCH", {"metadata": {"a": 2}}),
            ("", "DELETE", None),
            ("/copy", "POST", None),
            ("/history", "GET", None),
            ("/runs", "GET", None),
            ("/runs", "POST", body),
            ("/runs/wait", "POST", body),
            ("/runs/stream", "POST", body),
        ):
            await same(there, method, f"{at}{way}", mine, BOB, json=what)
        await same(there, "GET", f"{CONNECT}/threads/{mine}/runs/ID", run_id, BOB)
        taken = {"thread_id": mine, "if_exists": "do_nothing"}
        assert (await there.call("POST", f"{CONNECT}/threads", BOB, json=taken)).status_code == 409
        again = {**body, "if_not_exists": "create"}
        assert (await there.call("POST", f"{CONNECT}/threads/{mine}/runs", BOB, json=again)).status_code == 409
        assert (await there.said("POST", f"{CONNECT}/threads", ANA, json=taken))["metadata"] == {"a": 1}
        copy = (await there.said("POST", f"{CONNECT}/threads/{mine}/copy", OLGA))["thread_id"]
        await there.said("GET", f"{CONNECT}/threads/{copy}", OLGA)
        await same(there, "GET", at, copy, ANA)
        hers = await there.said("POST", f"{CONNECT}/threads/{mine}/runs/wait", OLGA, json=body)
        assert (await there.engine.runs.get(hers["run"]["run_id"])).request.principal == "olga"
        listed = await there.said("GET", f"{CONNECT}/threads/{mine}/runs", ANA)
        assert [each["run_id"] for each in listed] == [hers["run"]["run_id"], run_id], "it is her thread"
        await there.said("GET", f"{CONNECT}/threads/{mine}/runs/{hers['run']['run_id']}", ANA)


async def test_what_was_made_while_nobody_was_asked_is_nobodys() -> None:
    async with house(None) as there:
        run_id = await there.started("echo")
        thread = (await there.said("POST", f"{CONNECT}/threads", json={}))["thread_id"]
        task = (await there.said("POST", TASKS, json={"input": "x"}))["task_id"]
        async with doors(there.engine) as asking:
            for shown in (ANA, OLGA):
                await same(asking, "GET", f"{CONNECT}/runs/ID", run_id, shown)
                await same(asking, "GET", f"{CONNECT}/threads/ID", thread, shown)
                await same(asking, "GET", f"{TASKS}/ID", task, shown)
                assert await asking.said("POST", f"{CONNECT}/runs/search", shown, json={}) == []
                assert await asking.said("POST", f"{CONNECT}/threads/search", shown, json={}) == []
                assert (await asking.said("GET", TASKS, shown))["pagination"]["total_items"] == 0


async def test_tasks_steps_and_files_are_theirs_who_made_them() -> None:
    async with house() as there:
        made = [(await there.said("POST", TASKS, ANA, json={"input": str(n)}))["task_id"] for n in range(3)]
        other = (await there.said("POST", TASKS, BOB, json={"input": "his"}))["task_id"]
        for shown, wanted in ((ANA, made), (BOB, [other]), (OLGA, [*made, other]), (token(), [])):
            found = await there.said("GET", f"{TASKS}?page_size=2", shown)
            assert [each["task_id"] for each in found["tasks"]] == wanted[:2]
            assert found["pagination"]["total_items"] == len(wanted)
            more = await there.said("GET", f"{TASKS}?page_size=2&current_page=2", shown)
            assert [each["task_id"] for each in more["tasks"]] == wanted[2:4]
        mine = made[0]
        step = (await there.said("POST", f"{TASKS}/{mine}/steps", ANA, json={}))["step_id"]
        upload = {"files": {"file": ("a.txt", b"secret")}}
        file = (await there.said("POST", f"{TASKS}/{mine}/artifacts", ANA, **upload))["artifact_id"]
        for way, method, options in (
            ("", "GET", {}),
            ("/steps", "GET", {}),
            ("/steps", "POST", {"json": {}}),
            (f"/steps/{step}", "GET", {}),
            ("/artifacts", "GET", {}),
            ("/artifacts", "POST", upload),
            (f"/artifacts/{file}", "GET", {}),
        ):
            await same(there, method, f"{TASKS}/ID{way}", mine, BOB, **options)
        got = await there.call("GET", f"{TASKS}/{mine}/artifacts/{file}", OLGA)
        assert got.content == b"secret"
        found = await there.engine.runs.list(RunQuery(thread=mine))
        assert [each.request.principal for each in found] == ["ana"]


async def test_a_step_that_answers_is_whose_token_it_has() -> None:
    async with house() as there:
        task = (await there.said("POST", ASKED, BOB, json={"input": "x"}))["task_id"]
        asked = await there.said("POST", f"{ASKED}/{task}/steps", BOB, json={})
        assert asked["is_last"] is False
        answer = {"input": json.dumps({"ok": True}), "additional_input": {"ok": True}}
        done = await there.said("POST", f"{ASKED}/{task}/steps", OLGA, json=answer)
        assert done["output"].startswith("olga: ")


async def test_a_question_that_came_over_mcp_is_answered_by_whose_call_it_was_or_who_oversees() -> None:
    async with house() as there:
        bob, ana, olga = [await there.mcp(shown) for shown in (BOB, ANA, OLGA)]
        error = await bob.ask("agents/run", name="asker", input={"message": "x"})
        handle = error["data"]["resume"]
        (made,) = await there.engine.runs.list(RunQuery())
        assert (made.request.principal, made.request.tools) == ("bob", ("*",))
        again = {"name": "asker", "input": {"ok": True}, "_meta": {"interlingua/resume": handle}}
        unknown = {**again, "_meta": {"interlingua/resume": handle.replace(made.id, SOME)}}
        refused, nothing = await ana.ask("agents/run", **again), await ana.ask("agents/run", **unknown)
        assert refused == nothing and refused["code"] == -32602, "as for a run that there is not"
        said = await olga.ask("agents/run", **again)
        assert said["output"]["message"] == "olga: {'ok': True}"
        tool = await bob.ask("tools/call", name="asker", arguments={"message": "x"})
        assert tool["isError"] is True
        (newest, _) = await there.engine.runs.list(RunQuery())
        answer = {"resume": f"{newest.id}.q1", "answer": {"ok": False}}
        refused = await ana.ask("tools/call", name=ANSWER, arguments=answer)
        nothing = await ana.ask("tools/call", name=ANSWER, arguments={**answer, "resume": f"{SOME}.q1"})
        assert refused == nothing and refused["isError"] is True
        assert (await there.engine.runs.get(newest.id)).status is RunStatus.INTERRUPTED
        said = await bob.ask("tools/call", name=ANSWER, arguments=answer)
        assert said["structuredContent"]["message"] == "bob: {'ok': False}"


async def test_a_session_is_its_clients_alone_and_ends_for_nobody_else() -> None:
    async with house() as there:
        ana = await there.mcp(ANA)
        for shown in (BOB, OLGA):
            ana.shown = shown
            known = await ana.post("ping")
            session, ana.headers["mcp-session-id"] = ana.headers["mcp-session-id"], SOME
            unknown = await ana.post("ping")
            ana.headers["mcp-session-id"] = session
            assert known.status_code == unknown.status_code == 404
            assert known.json()["error"] == unknown.json()["error"]
            for method in ("GET", "DELETE"):
                headers = {**ana.headers, "accept": "text/event-stream"}
                assert (await there.call(method, ana.path, shown, headers=headers)).status_code == 404
        ana.shown = ANA
        assert await ana.ask("ping") == {}


async def test_an_agent_that_somebody_made_is_theirs() -> None:
    async with house() as there:
        ana, olga = await there.mcp(ANA), await there.mcp(OLGA)
        made = await ana.ask("agents/create", templateName="maker", config={"tone": "low"})
        name = made["agent"]["name"]
        bob = await there.mcp(BOB)
        assert "error" not in made and name not in str(await bob.ask("agents/list"))
        assert name in await names(there, ANA) and name in await names(there, OLGA)
        assert name not in await names(there, BOB) and name not in await names(there, token())
        error = await bob.ask("agents/destroy", name=name)
        assert error["message"].startswith(f"/name: no agent {name}")
        assert (await bob.ask("agents/create", templateName="maker", config={}))["code"] == -32602
        others = await olga.ask("agents/create", templateName="maker", config={"tone": "high"})
        assert others["agent"]["name"] not in await names(there, ANA), "she may use the template, not the other's"
        refused = await ana.ask("agents/run", name=others["agent"]["name"], input={"message": "x"})
        assert refused["code"] == -32602
        said = await ana.ask("agents/run", name=name, input={"message": "made"})
        assert said["output"]["message"] == "made "
        carl = await there.mcp(CARL)
        his = (await carl.ask("agents/create", templateName="maker", config={}))["agent"]["name"]
        assert await names(there, CARL) == ["maker", his], "who may use what it was made of may use it"
        assert (await carl.ask("agents/run", name=his, input={"message": "his"}))["output"]["message"] == "his "
        assert await ana.ask("agents/destroy", name=name) == {}
        assert name not in await names(there, ANA)


async def test_an_agent_that_somebody_made_is_theirs_at_the_door_of_editors_and_on_the_gateways_pages_too() -> None:
    async with house() as there:
        made = {}
        for shown in (ANA, CARL, OLGA):
            client = await there.mcp(shown)
            made[shown] = (await client.ask("agents/create", templateName="maker", config={}))["agent"]["name"]
        hello = {"protocolVersion": 1, "clientCapabilities": {}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        views = [people.sees for people in there.people]
        visible = VisibleAgents([*views, there.inbound["agent_client"].sees], Monitors(), HostNames(()))
        for shown, theirs in ((ANA, {ANA}), (CARL, {CARL}), (OLGA, {ANA, CARL, OLGA}), (BOB, set()), (token(), set())):
            seen = {each for each, name in made.items() if name in await names(there, shown)}
            assert seen == theirs
            for each, name in made.items():
                found = await there.call("POST", f"/agent-client/{name}", shown, json=body)
                assert found.status_code == (200 if each in theirs else 404), found.text
                assert found.status_code == 200 or name not in found.text.replace(f"no agent {name};", "")
            headers = [(b"authorization", f"Bearer {shown}".encode())]
            request = Request({"type": "http", "headers": headers, "client": ("203.0.113.7", 1)})
            sees = visible.to(request)
            assert sees is not None
            assert [each for each, name in made.items() if sees(name)] == [each for each in made if each in theirs]


async def test_two_doors_that_know_the_same_name_mean_the_same_somebody() -> None:
    async with house() as there:
        bob = await there.mcp(BOB)
        await bob.ask("agents/run", name="asker", input={"message": "x"})
        (made,) = await there.engine.runs.list(RunQuery())
        answered = await there.said("POST", f"{CONNECT}/runs/{made.id}", BOB, json={"ok": True})
        assert answered["run_id"] == made.id
        assert (await there.call("GET", f"{CONNECT}/runs/{made.id}", ANA)).status_code == 404
        signed = token("bob")
        assert (await there.said("GET", f"{CONNECT}/runs/{made.id}", signed))["run_id"] == made.id
        assert await there.engine.threads.count(ThreadQuery(attributes={"owner": "bob"})) == 0
