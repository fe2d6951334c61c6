"""Whose a run, a task or a question is, is known over a restart, and by another gateway on the same store."""

from __future__ import annotations

from pathlib import Path

from gateway.core import events as e
from gateway.core.types import RunQuery
from gateway.runs import Engine
from gateway.store.opening import open_store
from tests.authentication.rig import ANA, BOB, OLGA, asker, doors, house
from tests.support.aio import run
from tests.support.scripted import Scripted, route, use

CONNECT = "/agent-connect"
TASKS = "/agent-protocol/asker/ap/v1/agent/tasks"


def test_after_a_restart_everything_is_whose_it_was(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"

    async def before() -> tuple[str, str, str, str]:
        async with house(file=file) as there:
            run_id = await there.started("asker", BOB)
            await there.engine.runs.wait(run_id)
            thread = (await there.said("POST", f"{CONNECT}/threads", BOB, json={}))["thread_id"]
            task = (await there.said("POST", TASKS, BOB, json={"input": "x"}))["task_id"]
            client = await there.mcp(ANA)
            made = await client.ask("agents/create", templateName="maker", config={"tone": "low"})
            return run_id, thread, task, made["agent"]["name"]

    async def after(run_id: str, thread: str, task: str, agent: str) -> None:
        engine = Engine(open_store(f"sqlite:///{file}"))
        names = ("echo", "held", "maker")
        asking = Scripted(asker, attach=asker)
        use(engine, (route("asker"), asking), *((route(name), Scripted(asker)) for name in names))
        await engine.open()
        try:
            async with doors(engine) as there:
                for path in (f"{CONNECT}/runs/{run_id}", f"{CONNECT}/threads/{thread}", f"{TASKS}/{task}"):
                    for shown, status in ((ANA, 404), (BOB, 200), (OLGA, 200), (None, 401)):
                        assert (await there.call("GET", path, shown)).status_code == status, (path, shown)
                found = await there.engine.runs.list(RunQuery(principal="bob"))
                assert [each.id for each in found] == [run_id]
                assert (found[0].request.principal, found[0].request.tools) == ("bob", ("*",))
                for shown, sees in ((ANA, True), (BOB, False), (OLGA, True)):
                    client = await there.mcp(shown)
                    assert (agent in str(await client.ask("agents/list"))) is sees
        finally:
            await engine.close()

    run(after(*run(before())))


async def test_the_agent_is_told_who_answered() -> None:
    async with house() as there:
        run_id = await there.started("asker", BOB)
        await there.engine.runs.wait(run_id)
        await there.said("POST", f"{CONNECT}/runs/{run_id}", BOB, json={"ok": True})
        await there.said("GET", f"{CONNECT}/runs/{run_id}/wait", BOB)
        log = [event for _, event in await there.engine.runs.events(run_id)]
        (answered,) = [event.answer for event in log if isinstance(event, e.Resumed)]
        assert answered.by is not None and answered.by.id == "bob"
