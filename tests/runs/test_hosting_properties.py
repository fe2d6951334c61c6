"""However hosted agents come, go and are replaced while runs use them: each is closed once, and only then."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agents.entry import Entry
from gateway.agents.hosts import Hosts
from gateway.contract import Hosted
from tests.runs.test_hosting import House
from tests.support import aio
from tests.support.scripted import Scripted, echo

NAMES = "abc"
steps = st.lists(
    st.one_of(
        st.tuples(st.just("host"), st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), max_size=3)),
        st.tuples(st.just("begin"), st.sampled_from(NAMES)),
        st.tuples(st.just("end"), st.integers(0, 9)),
    ),
    max_size=25,
)


class Counted(Scripted):
    closes = 0

    async def aclose(self) -> None:
        self.closes += 1


@settings(max_examples=60, deadline=None)
@given(steps=steps, close_with_runs=st.booleans())
def test_an_agent_is_closed_once_when_it_has_gone_and_its_last_run_has_ended(
    steps: list[tuple[str, object]], close_with_runs: bool
) -> None:
    async def story() -> None:
        house, hosts = House(), Hosts()
        hosts.halves = {"house": house}
        await hosts.open()
        made: dict[tuple[str, int], Counted] = {}
        runs: list[tuple[Entry, Counted]] = []

        async def end(at: int) -> None:
            if (unused := runs.pop(at)[0].end()) is not None:
                await unused.aclose()

        for step, what in steps:
            served = {entry.route.name: entry for entry in hosts.served(set())}
            if isinstance(what, dict):
                gone = {key for key, one in made.items() if one.closes or house.agents.get(key[0]) is None}
                for key in gone | {(name, n) for name, n in made if what.get(name) != n}:
                    made.pop(key)  # the same one never comes back
                house.now(**{n: Hosted(made.setdefault((n, i), Counted(echo))) for n, i in what.items()})
                everyone.update(made.values())
                hosts.ask("house")
                now = [entry.outbound for entry in hosts.served(set())]
                assert now == [hosted.outbound for hosted in house.agents.values()]
            elif step == "begin" and what in served:
                entry = served[str(what)]
                assert isinstance(entry.outbound, Counted)
                entry.begin()
                runs.append((entry, entry.outbound))
            elif step == "end" and isinstance(what, int) and what < len(runs):
                await end(what)
            await asyncio.sleep(0)
            hosted = {one.outbound for one in house.agents.values()}
            needed = {one for _, one in runs}
            assert {one for one in everyone if not one.closes} == {one for one in everyone if one in hosted | needed}
        while runs and not close_with_runs:
            await end(0)
        await hosts.close()
        while runs:
            await end(0)
        assert {one.closes for one in everyone} <= {1}

    everyone: set[Counted] = set()
    aio.run(story())
