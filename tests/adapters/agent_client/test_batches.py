"""Agents that say what they can in arrays of messages, as version 2 has them: a program, and clients of both kinds."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound import AgentClientOutbound
from gateway.config import Route
from tests.adapters.agent_client import inbound_rig
from tests.adapters.agent_client.editor import Editor
from tests.adapters.agent_client.v2_editor import connect

PROGRAM = Path(__file__).with_name("batch_agent.py")
CHOSEN = {"outcome": {"outcome": "selected", "optionId": "ok"}}


@contextlib.asynccontextmanager
async def batching(version: int) -> AsyncIterator[inbound_rig.Rig]:
    """The gateway with that agent."""
    command = (sys.executable, "-I", "-S", str(PROGRAM), str(version))
    options = AgentClientTarget.model_validate({"protocol": "agent_client", "command": command, "v2": True})
    outbound = AgentClientOutbound(options)
    route = Route(name="scripted", target=options)
    try:
        async with inbound_rig.rig((route, outbound), v2=True) as gateway:  # type: ignore[arg-type]
            yield gateway
    finally:
        await outbound.aclose()


async def turn(editor: Editor) -> tuple[str, list[Any]]:
    """A prompt to its end, with two of the three questions answered; what the agent said, and how it was answered."""
    session = await editor.new()
    prompting = await editor.start(session)
    for number in (1, 2):
        await editor.answer(await editor.next_asked(number), CHOSEN)
    await prompting
    await editor.until(lambda: "then [" in editor.text() and editor.text().endswith("]"))
    said, _, answers = editor.text().partition("then ")
    return said, json.loads(answers)


@pytest.mark.parametrize("client", [1, 2])
@pytest.mark.parametrize("agent", [1, 2])
async def test_what_an_agent_says_in_arrays_is_told_in_order_and_answered_by_one(agent: int, client: int) -> None:
    async with batching(agent) as gateway:
        editor = await (connect(gateway) if client == 2 else gateway.connect())
        said, answers = await turn(editor)
        assert said == "".join(f"{number} " for number in range(300))
        invalid, first, second, third = answers
        assert (invalid["id"], invalid["error"]["code"]) == (None, -32600)
        assert [first["result"], second["result"]] == [CHOSEN, CHOSEN]
        assert third["error"]["code"] == -32800, "it was given up"
        assert editor.of("session_info_update")[0]["title"] == "early"
