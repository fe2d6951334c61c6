"""Access that is revoked: at once, for whoever it is, until it is given back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.agent_context.directory import members
from gateway.core.errors import Denied
from gateway.core.types import JsonObject, RunStatus
from tests.adapters.agent_context.directory.rig import ANNA, house, session
from tests.support.scripted import until


async def test_an_id_can_be_revoked_before_anybody_has_it_and_after_it_was_forgotten() -> None:
    async with house() as it:
        await it.directory.revoking.revoke("it")
        await it.look()
        with pytest.raises(Denied, match="revoked"):
            await it.register()
        assert not it.directory.ids()
        await it.directory.revoking.restore("it")
        await it.register()
        await it.directory.revoking.revoke("it")
        await it.directory.unregister("it", ANNA)
        with pytest.raises(Denied):
            it.directory.check("it")


async def test_a_session_is_let_in_as_long_as_one_of_its_agents_may() -> None:
    async with house() as it:
        at = await it.register("one")
        await it.register("two", at=at)
        await it.directory.revoking.revoke("one")
        it.directory.admit(at)
        await it.directory.revoking.revoke("two")
        with pytest.raises(Denied, match="one, two"):
            it.directory.admit(at)
        it.directory.admit(session())


async def test_all_runs_of_a_revoked_agent_are_cancelled_however_many_are_looked_for_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "LOOKED_AT", 2)

    async def never(method: str, params: JsonObject) -> Any:
        await asyncio.Event().wait()

    async with house() as it:
        at = await it.register(at=session(never))
        runs = [(await it.start()).id for _ in range(9)]
        await until(lambda: len(at.asked) == 9)
        await it.directory.revoking.revoke("it")
        ended = [await it.engine.runs.wait(run, timeout=30) for run in runs]
        assert {each and (each.status, each.cancel_reason) for each in ended} == {(RunStatus.CANCELLED, members.REASON)}
