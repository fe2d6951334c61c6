"""How a search is split into ranges of indexes, so that what it costs does not grow with what it does not want.

Each part is a narrower search that one index has in the order of creation: of one protocol, and of one status where
few have it (what failed, what is under way). An engine reads the parts side by side and merges them, so a page costs
some steps down an index for each protocol that there is, however many runs have ended.

What is left to look at row by row: the metadata; how a run of success is found where nearly all others failed; any
other condition of a search for the runs of one thread or one principal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from gateway.core.types import UNFINISHED, RunQuery, RunStatus, ThreadQuery, ThreadStatus
from gateway.store.records import whose

COLUMNS: Final[Mapping[str, str]] = {"runs": "record", "threads": "record, status, updated_at"}
"""The columns of which a record is made."""
_EVERY = frozenset(RunStatus)
FAILED = tuple(status for status in RunStatus if status.ended and status is not RunStatus.SUCCESS)


class RunRange(NamedTuple):
    """The name of the index to read, and what to look for there."""

    name: str
    query: RunQuery

    @property
    def equal(self) -> dict[str, str]:
        """Columns, each with the value that a row has there."""
        query = self.query
        return _given(agent=query.agent, thread=query.thread, protocol=query.protocol, principal=query.principal)

    def terms(self, partial: Mapping[str, Sequence[RunStatus]]) -> list[str]:
        """SQL of what else a row fulfils. `partial`: an engine's words for partial indexes, and the runs in each."""
        terms = []
        if self.query.threaded is not None:
            terms.append("thread IS NOT NULL" if self.query.threaded else "thread IS NULL")
        if self.query.statuses:
            terms.append(f"status IN ({', '.join(repr(status.value) for status in self.query.statuses)})")
            terms += [words for words, statuses in partial.items() if set(self.query.statuses) <= set(statuses)]
        return terms


class ThreadRange(NamedTuple):
    """The same, of threads."""

    name: str
    query: ThreadQuery

    @property
    def equal(self) -> dict[str, str]:
        """Columns, each with the value that a row has there."""
        query = self.query
        return _given(agent=query.agent, protocol=query.protocol, whose=whose(query.attributes))

    def terms(self, partial: Mapping[str, Sequence[RunStatus]]) -> list[str]:
        """As of runs. The one partial index of threads has the same words in every engine."""
        status = self.query.status
        terms = [] if status is None else [f"status = {status.value!r}"]
        return [*terms, "status <> 'idle'"] if self.name == "threads_status" else terms


def _given(**columns: str | None) -> dict[str, str]:
    return {column: value for column, value in columns.items() if value is not None}


def needs_protocols(query: RunQuery | ThreadQuery) -> bool:
    """Whether splitting it takes the list of all protocols that there are."""
    if isinstance(query, ThreadQuery):
        return query.protocol is None and whose(query.attributes) is None
    return query.protocol is None and query.thread is None and query.principal is None


def split_runs(query: RunQuery, protocols: Sequence[str]) -> list[RunRange]:
    """Split a search for runs. No run is in two parts."""
    wanted = [] if set(query.statuses) == _EVERY else list(dict.fromkeys(query.statuses))
    under_way = tuple(status for status in wanted if status in UNFINISHED)
    over = tuple(status for status in wanted if status.ended)
    parts = [RunRange("runs_unfinished", replace(query, statuses=under_way))] if under_way else []
    if wanted and not over:
        return parts
    if query.thread is not None or query.principal is not None:
        index = "runs_thread" if query.thread is not None else "runs_principal"
        return [*parts, RunRange(index, replace(query, statuses=over))]
    for protocol in [query.protocol] if query.protocol is not None else protocols:
        one = replace(query, protocol=protocol, statuses=())
        index = "runs_protocol" if query.agent is None else "runs_agent"
        if not over or RunStatus.SUCCESS in over:
            parts.append(RunRange(index, replace(one, statuses=(RunStatus.SUCCESS,) if over else ())))
        index = "runs_failed" if query.agent is None else "runs_agent_failed"
        parts += [RunRange(index, replace(one, statuses=(status,))) for status in over if status in FAILED]
    return parts


def split_threads(query: ThreadQuery, protocols: Sequence[str]) -> list[ThreadRange]:
    """Split a search for threads. No thread is in two parts."""
    if whose(query.attributes) is not None:
        return [ThreadRange("threads_whose", query)]
    if query.agent is not None:
        index = "threads_agent"
    elif query.status not in (None, ThreadStatus.IDLE):
        index = "threads_status"
    else:
        index = "threads_protocol"
    named = [query.protocol] if query.protocol is not None else protocols
    return [ThreadRange(index, replace(query, protocol=protocol)) for protocol in named]


def split_count(query: RunQuery) -> tuple[RunQuery, RunQuery | None]:
    """Two searches whose counts are to be subtracted: no index has the runs of success, most of all, but all others."""
    if RunStatus.SUCCESS not in query.statuses:
        return query, None
    others = tuple(status for status in RunStatus if status not in query.statuses)
    return replace(query, statuses=()), replace(query, statuses=others) if others else None
