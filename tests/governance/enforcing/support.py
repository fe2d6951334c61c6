"""A governed agent in the test's own process, and what its audit log says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.agent_client.outbound.tool_calls import tool_call_of
from gateway.agents.entry import Entry
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Identity, Run, RunStatus
from gateway.governance.audit import Report, verify
from gateway.governance.binding import Binding, bind
from gateway.governance.enforcing import Enforcement
from gateway.runs import Engine
from gateway.store import Store
from gateway.store.opening import open_store
from tests.governance.audit.support import files_of
from tests.governance.support import OPERATOR, governance, manifest, policy, with_, write
from tests.support.scripted import Script, Scripted, request, route

TOOLS = ("read", "write", "send", "drop", {"id": "fs.read"}, {"id": "fs.write"})
YES, NO = {"decision": "approve"}, {"decision": "reject"}
ANN = Identity(id="ann", roles=("editor",))
BOB = Identity(id="bob", roles=("writer",))
CAT = Identity(id="cat", roles=("editor",))


def documents(
    folder: Path,
    *,
    autonomy: str = "autonomous",
    tools: Sequence[Any] = TOOLS,
    quorum: int = 1,
    writes: int = 100,
    aip44: dict[str, Any] | None = None,
    **posture: Any,
) -> Binding:
    """A posture in which `read` and `write` are allowed, `send` needs an editor's word, `drop` is never allowed.

    `writes`: how often a day.
    """
    policies = [
        policy(folder, "reads", match={"subject": "read"}, autonomy=3),
        policy(folder, "writes", match={"subject": "write"}, autonomy=3, budget={"max_per_day": writes}),
        policy(folder, "files", match={"subject": "fs.*"}, autonomy=3),
        policy(
            folder, "sends", match={"subject": "send"}, decision="require-approval", signers=[{"role": "editor"}],
            quorum=quorum, autonomy=3,
        ),
        policy(folder, "drops", match={"subject": "drop"}, decision="deny"),
    ]  # fmt: skip
    governance(folder, **{"autonomy": {"level": 2}, "policies": policies, **posture})
    own = {"policies": [], "audit_log": "audit:main", "autonomy": autonomy}
    write(folder / "operators/coder/OPERATOR.md", with_(OPERATOR, tools=list(tools), governance=own))
    bound = {"tier": "governance-aware", "operator": "../operators/coder/OPERATOR.md", **(aip44 or {})}
    return bind(manifest(folder / "scripted", bound), folder)


class Ruled(Scripted):
    """A half that knows of rules, as that of Agent Client does."""

    prefaces = False
    tool_call_of = staticmethod(tool_call_of)


@dataclass
class House:
    """An engine with one governed agent."""

    engine: Engine
    folder: Path
    outbound: Scripted
    enforcement: Enforcement

    async def start(self, **fields: Any) -> Run:
        return await self.engine.runs.start(request(**fields))

    async def until(self, run: Run, *statuses: RunStatus) -> Run:
        """The run once it has stopped; it has to be with one of these."""
        found = await self.engine.runs.wait(run.id, timeout=30)
        assert found is not None and (not statuses or found.status in statuses), (found, audited(self.folder))
        return found

    async def asked(self, run: Run) -> Run:
        """The run once it asks something."""
        return await self.until(run, RunStatus.INTERRUPTED)

    async def ended(self, run: Run, status: RunStatus = RunStatus.SUCCESS) -> Run:
        """The run once it has ended; an answer that was just given may not have been told yet."""
        if run.id in self.engine.live:
            await self.engine.live[run.id].over()
        found = await self.engine.runs.get(run.id)
        assert found.status is status, (found.status, found.failure, audited(self.folder))
        return found

    async def answer(self, run: Run, value: Any, by: Identity | None = ANN) -> Run:
        return await self.engine.runs.answer(run.id, Answer(value=value, by=by))

    async def events(self, run: Run) -> list[e.Event]:
        return [event for _, event in await self.engine.runs.events(run.id)]

    async def shown(self, run: Run) -> list[str]:
        """What a client was shown, in short."""
        return [short for event in await self.events(run) if (short := _short(event))]


@asynccontextmanager
async def house(
    folder: Path,
    script: Script,
    *,
    binding: Binding | None = None,
    attach: Script | None = None,
    cancel_grace: float = 0.2,
    store: Store | None = None,
    half: type[Scripted] = Ruled,
    listed: Callable[[], Awaitable[None]] | None = None,
    **posture: Any,
) -> AsyncIterator[House]:
    """An open one, its store in the folder. `listed`: called when its log is open and no run goes on yet."""
    outbound = half(script, attach=attach)
    outbound.asks = False
    engine = Engine(store or open_store(f"sqlite:///{folder}/runs.db"), cancel_grace=cancel_grace)
    enforcement = Enforcement(
        engine.records, engine.store.spend, driven=engine.driven_elsewhere, taken_over=engine.taken_over
    )
    wrapped = enforcement.wrap(outbound, binding or documents(folder, **posture))
    engine.on_opened(enforcement.open)
    engine.accompany(
        claimed=enforcement.inherit,
        adopted=enforcement.settle,
        closing=enforcement.aclose,
        **({} if listed is None else {"listed": listed}),
    )
    engine.use([Entry(route(), wrapped)])
    try:
        await engine.open()
        yield House(engine, folder, outbound, enforcement)
    finally:
        await engine.close()


def audited(folder: Path) -> list[dict[str, Any]]:
    """The log, line by line, without one that is being written."""
    file = folder / "audit-log.jsonl"
    whole, _, _ = (file.read_bytes() if file.exists() else b"").rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]


def told(folder: Path) -> list[str]:
    """The log in short: what was done, and to which tool."""
    out = []
    for line in audited(folder):
        tool = line["metadata"].get("aip44", {}).get("audit", {}).get("tool")
        out.append(f"{line['action']} {tool}" if tool else line["action"])
    return out


def verified(folder: Path) -> Report:
    """The log is what was written."""
    report = verify(files_of(folder))
    assert not report.mistakes, report.mistakes
    return report


async def call(context: RunContext, tool: str, name: str = "c1", *, kind: str = "edit", **arguments: Any) -> None:
    """A call of a tool from beginning to end, as agents tell it that ask nobody."""
    context.emit(e.ToolCallStarted(call=name, name=tool, kind=kind, input=arguments or None))
    context.emit(e.ToolCallEnded(call=name, output={"done": tool}))
    await context.drain()


def calling(*tools: str) -> Script:
    """An agent that calls these one after the other and says so."""

    async def script(context: RunContext) -> None:
        for index, tool in enumerate(tools):
            context.emit(e.PartDelta(part="text", delta=f"{tool}?"))
            await call(context, tool, f"c{index + 1}")
        context.emit(e.PartDelta(part="text", delta="done"), e.RunFinished())
        await context.drain()

    return script


def _short(event: e.Event) -> str:
    match event:
        case e.ToolCallStarted():
            return f"call {event.name}"
        case e.ToolCallEnded():
            return f"end {event.call}"
        case e.PartDelta():
            return str(event.delta)
        case e.Interrupted():
            return f"? {event.interrupt.id}"
        case e.Resumed():
            return f"! {event.interrupt} {event.answer.outcome}"
        case e.RunFinished() | e.RunFailed() | e.RunCancelled():
            return type(event).__name__
    return ""
