"""An engine with one agent of this protocol, a program or a server."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound import AgentClientOutbound
from adapters.agent_client.wire import PROTOCOL
from gateway.agents.entry import Entry
from gateway.config import Route
from gateway.core.types import Run, Thread
from gateway.runs import Engine
from gateway.store.opening import open_store
from tests.support.scripted import request, until

PROGRAM = Path(__file__).with_name("outbound_program.py")


@dataclass
class House:
    """An engine with one agent."""

    engine: Engine
    outbound: AgentClientOutbound

    async def ask(self, message: str, thread: str | None = None, **fields: Any) -> Run:
        """A run to its end, or to its first question."""
        started = await self.engine.runs.start(request(message, agent="prog", thread=thread, **fields))
        stopped = await self.engine.runs.wait(started.id, timeout=30)
        assert stopped is not None
        return stopped

    async def sent(self, run: Run) -> None:
        """Wait until the prompt is at the agent."""
        runs = self.outbound._runs
        await until(lambda: run.id in runs and runs[run.id]._prompt is not None)

    async def thread(self, name: str) -> str:
        """A new conversation."""
        made = await self.engine.threads.create(Thread(id=name, created_at=0.0, updated_at=0.0))
        return made.id


def text(ended: Run) -> str:
    """What the agent said."""
    return str(json.loads(bytes(ended.output))["message"])


@contextlib.asynccontextmanager
async def house(*how: str, file: Path | None = None, cancel_grace: float = 5.0, **target: Any) -> AsyncIterator[House]:
    """The agent is `outbound_program.py`, unless `target` names another."""
    default = {} if "url" in target else {"command": (sys.executable, str(PROGRAM), *how)}
    options = AgentClientTarget.model_validate({"protocol": PROTOCOL, **default, **target})
    outbound = AgentClientOutbound(options)
    engine = Engine(open_store(f"sqlite:///{file}" if file else "sqlite://"), cancel_grace=cancel_grace)
    route = Route(name="prog", target=options)
    engine.use([Entry(route, outbound)])
    await engine.open()
    try:
        yield House(engine, outbound)
    finally:
        await engine.close()
