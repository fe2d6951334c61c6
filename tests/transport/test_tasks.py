"""TaskSet: tasks are held until they are done."""

from __future__ import annotations

import asyncio
import gc
import weakref

from gateway.transport.tasks import TaskSet


async def test_a_task_is_held_until_it_is_done() -> None:
    tasks, go, seen = TaskSet(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        seen.set()

    held = weakref.ref(tasks.start(work(), name="work"))
    await asyncio.sleep(0)
    gc.collect()
    assert len(tasks) == 1 and (task := held()) is not None and task.get_name() == "work"
    go.set()
    await tasks.settled()
    assert seen.is_set() and not tasks


async def test_settled_waits_for_tasks_that_are_started_meanwhile() -> None:
    tasks, done = TaskSet(), []

    async def work(left: int) -> None:
        await asyncio.sleep(0)
        done.append(left)
        if left:
            tasks.start(work(left - 1))

    tasks.start(work(3))
    await tasks.settled()
    assert done == [3, 2, 1, 0] and len(tasks) == 0


async def test_a_failure_is_told_and_raised_nowhere_else() -> None:
    failures: list[BaseException] = []
    tasks = TaskSet(failures.append)

    async def fails() -> None:
        raise ValueError("no")

    tasks.start(fails())
    waits = asyncio.get_running_loop().create_future()
    tasks.hold(waits)
    waits.cancel()
    await tasks.settled()
    assert [str(error) for error in failures] == ["no"]


async def test_all_are_cancelled() -> None:
    tasks = TaskSet()
    held = [tasks.start(asyncio.Event().wait()) for _ in range(3)]
    tasks.cancel()
    await tasks.settled()
    assert all(task.cancelled() for task in held) and not tasks
