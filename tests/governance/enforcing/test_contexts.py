"""A half on a governed route is given all that the engine offers, and the engine is given all that the half offers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import RunStatus, ThreadUpdate
from gateway.governance.binding import bind
from gateway.governance.enforcing.governed_run import RuledContext
from tests.governance.enforcing.support import Ruled, audited, documents, house
from tests.governance.support import manifest
from tests.support.aio import run
from tests.support.scripted import Scripted, until

OFFERED = sorted({name for kind in RunContext.__mro__ for name in vars(kind) if not name.startswith("_")})


@pytest.mark.parametrize("name", OFFERED)
def test_what_no_rule_is_about_is_passed_on_as_it_is(name: str) -> None:
    engine = create_autospec(RunContext, instance=True)
    assert getattr(RuledContext(engine, SimpleNamespace()), name) is getattr(engine, name)  # type: ignore[arg-type]


@pytest.mark.parametrize("judged", [False, True])
@pytest.mark.parametrize("knows", [False, True])
def test_an_agent_works_on_a_governed_route_as_on_any(tmp_path: Path, judged: bool, knows: bool) -> None:
    seen: list[Any] = []

    async def agent(context: RunContext) -> None:
        file = await context.add_artifact("a.txt", b"made", media_type="text/plain", relative_path="out/a.txt")
        context.note(ThreadUpdate(protocol="wire", kind="title", data={"title": "noted"}, kept=True))
        context.emit(e.Custom(name="wire", data={"toolCallId": "c9"}) if not knows else e.PartDelta(part="p", delta=""))
        context.lost("wish")
        seen.append((file.name, file.relative_path, context.flowing, context.cancelled, context.caller))
        context.emit(e.RunFinished())
        await context.drain()
        seen.append(context.run.status)

    async def scene() -> None:
        binding = documents(tmp_path) if judged else bind(manifest(tmp_path / "scripted"), tmp_path)
        async with house(tmp_path, agent, binding=binding, half=Ruled if knows else Scripted) as at:
            ended = await at.ended(one := await at.start())
            assert ended.losses == {"wish": 1}
            kinds = [type(event) for event in await at.events(one)]
            assert e.ArtifactAdded in kinds and kinds.count(e.Custom) == (1 if knows else 2)

    run(scene())
    # What waits at a gate is asked for each time. The end is committed once it is said.
    assert seen == [("a.txt", "out/a.txt", not judged, False, None), RunStatus.SUCCESS]
    assert [bool(audited(tmp_path))] == [judged]


@pytest.mark.parametrize("judged", [False, True])
async def test_a_run_on_a_governed_route_is_cancelled_and_goes_on_after_a_restart(tmp_path: Path, judged: bool) -> None:
    async def works(context: RunContext) -> None:
        await context.set_upstream({"id": 7}, thread={"of": "t"})
        await until(lambda: context.cancelled)

    async def again(context: RunContext) -> None:
        assert context.run.upstream == {"id": 7}
        await works(context)
        context.emit(e.RunCancelled(reason="told to"))

    binding = documents(tmp_path) if judged else bind(manifest(tmp_path / "scripted"), tmp_path)
    async with house(tmp_path, works, binding=binding) as at:
        one = await at.start()
        await until(lambda: at.engine.live[one.id].run.upstream is not None)
    async with house(tmp_path, works, attach=again, binding=binding) as at:
        await until(lambda: bool(at.outbound.contexts))
        await at.engine.runs.cancel(one.id, wait=True)
        await at.ended(one, RunStatus.CANCELLED)
        assert at.outbound.cancels == 1
