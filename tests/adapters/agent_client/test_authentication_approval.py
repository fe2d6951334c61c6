"""Who may approve what a governed agent's tool call waits for: known by token, with the roles that it gives."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.options import AgentClientServe
from tests.adapters.agent_client.authentication_rig import NOT_FOUND
from tests.adapters.agent_client.editor import Editor, Refused
from tests.adapters.agent_client.inbound_rig import Rig
from tests.governance.enforcing.support import House, audited, calling, house, told, verified

PEOPLE = {
    "clients": [
        {"name": "bob", "token": "bob-token", "roles": ["writer"]},
        {"name": "ann", "token": "ann-token", "roles": ["editor"], "oversees": True},
        {"name": "cat", "token": "cat-token", "roles": ["editor"]},
        {"name": "dan", "token": "dan-token", "roles": ["editor"], "tools": ["re*"]},
    ]
}


@contextlib.asynccontextmanager
async def office(folder: Path) -> AsyncIterator[tuple[House, Rig]]:
    """An agent whose tool `send` waits for an editor, and a door to it."""
    async with house(folder, calling("send")) as at, contextlib.AsyncExitStack() as stack:
        yield at, Rig(at.engine, AgentClientServe.model_validate({"authentication": PEOPLE}), stack)


async def known(door: Rig, name: str) -> Editor:
    people = door.inbound.clients.people
    editor = await door.raw(visitor=Visitor(people, people.principal(f"{name}-token")))
    await editor.initialize()
    return editor


def chosen(asked: dict[str, object], kind: str) -> str:
    """The option of that kind."""
    options = asked["params"]["options"]  # type: ignore[index]
    return str(next(each["optionId"] for each in options if each["kind"].startswith(kind)))


async def test_who_may_not_approve_is_told_so_and_who_oversees_finds_the_question(tmp_path: Path) -> None:
    async with office(tmp_path) as (at, door):
        bob, ann, cat = [await known(door, name) for name in ("bob", "ann", "cat")]
        session = await bob.new(cwd=str(tmp_path))
        opening = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        turn = await bob.start(session)
        asked = await bob.next_asked()
        await bob.choose(asked, chosen(asked, "allow"))
        await bob.heard("may not approve")
        assert not turn.done() and "approval.granted send" not in told(tmp_path)
        with pytest.raises(Refused) as caught:
            await cat.request("session/load", opening)
        assert caught.value.code == NOT_FOUND, "an editor, but no overseer"
        listed = await ann.request("session/list", {})
        assert [each["sessionId"] for each in listed["sessions"]] == [session]
        await ann.request("session/load", opening)
        hers = await ann.next_asked()
        await ann.choose(hers, chosen(hers, "allow"))
        assert await turn == {"stopReason": "end_turn"}
        (granted,) = [line for line in audited(tmp_path) if line["action"] == "approval.granted"]
        assert "ann" in str(granted) and "bob" not in str(granted)
        verified(tmp_path)
        (run_,) = await door.runs(session)
        await at.ended(run_)


async def test_a_tool_that_is_not_for_whoever_asks_is_refused_whatever_the_operator_may_do(tmp_path: Path) -> None:
    async with house(tmp_path, calling("read", "write")) as at, contextlib.AsyncExitStack() as stack:
        door = Rig(at.engine, AgentClientServe.model_validate({"authentication": PEOPLE}), stack)
        dan, cat = [await known(door, name) for name in ("dan", "cat")]
        with pytest.raises(Refused, match="whoever asked for the run has no tool write"):
            await dan.prompt(await dan.new(cwd=str(tmp_path)))
        assert [did for did in told(tmp_path) if did.startswith("tool")] == [
            "tool.call read",
            "tool.result read",
            "tool.refused write",
        ]
        await cat.prompt(await cat.new(cwd=str(tmp_path)))
        assert told(tmp_path)[-3:] == ["tool.call write", "tool.result write", "operator.completed"]
