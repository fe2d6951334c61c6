"""What a client may do goes by agents' ids, and what it talks about is nobody else's."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from adapters.agent_context.inbound.messages import SESSIONS
from gateway.core.types import RunQuery, Thread, agent_id
from tests.adapters.agent_context.inbound_rig import rig
from tests.adapters.agent_context.inbound_talker import refused, request, text_of
from tests.support.aio import run

UUID = agent_id("echo")
DENIED, NOT_FOUND, CONFLICT = -32003, -32002, -32005
ACCESS: dict[str, Any] = {
    "clients": [
        {"name": "ana", "token": "ana-token", "may": ["message", "read", "revoke"]},
        {"name": "bob", "token": "bob-token", "agents": [f"{UUID[0]}*"], "may": ["message", "delegate", "read"]},
    ]
}


def test_the_uuid_that_an_agent_has_in_other_protocols_is_no_way_round_rights_or_a_revocation() -> None:
    async def main() -> None:
        async with (
            rig(access=ACCESS) as there,
            there.socket(token="ana-token") as ana,
            there.socket(token="bob-token") as bob,
        ):
            assert (await refused(bob.message("echo"))).code == DENIED
            for asked in (
                bob.message(UUID),
                bob.ask("agent/delegate", target=UUID, task={"id": "1", "type": "x", "payload": "x"}),
                bob.ask("resources/read", uri=f"agent://metrics/{UUID}"),
            ):
                error = await refused(asked)
                assert error.code == NOT_FOUND and "echo" not in str(error)
            assert text_of(await ana.message("echo")) == "hello "
            await ana.ask("agent/revoke", agentId="echo")
            assert (await refused(ana.message("echo"))).code == DENIED
            assert (await refused(ana.message(UUID))).code == NOT_FOUND
            assert await there.engine.count_runs(RunQuery(agent="echo")) == 1

    run(main())


def test_a_conversation_is_not_had_on_a_thread_that_somebody_made_for_it_at_another_door() -> None:
    async def main() -> None:
        async with rig(access=ACCESS) as there, there.socket(token="ana-token") as ana:
            foreseen = str(uuid.uuid5(SESSIONS, json.dumps(["ana", None, "chat", "echo"])))
            now = time.time()
            mark = {"owner": "bob"}
            thread = Thread(id=foreseen, created_at=now, updated_at=now, protocol="agent_connect", attributes=mark)
            await there.engine.create_thread(thread)
            talk = [request(context={"sessionId": session}) for session in ("chat", "another")]
            error = await refused(ana.ask("agent/message", target="echo", content=talk[0]))
            assert error.code == CONFLICT
            assert text_of(await ana.ask("agent/message", target="echo", content=talk[1])) == "hello "
            assert await there.engine.count_runs(RunQuery(thread=foreseen)) == 0

    run(main())
