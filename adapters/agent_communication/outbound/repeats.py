"""An agent whose call is sent again, with an answer, says again what it has said: watchers are told it once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from adapters.agent_communication.codec.deltas_in import PART
from gateway.core import delta
from gateway.core import events as e
from gateway.core.delta import NO_DIFF, Fold

MOST = 10_000
"""Events beside the output that are known again; of more, those after them are told again."""


class RepeatFilter:
    """Of one run. All that the agent says goes through `new`; `again` is called when its call is sent again."""

    def __init__(self) -> None:
        self._before: Fold | None = None  # the output as it was told, while the agent is behind that
        self._now = Fold()
        self._seen: Counter[int] = Counter()  # beside the output, in this call
        self._seen_before: Counter[int] = Counter()

    def again(self, said: Fold) -> None:
        """From now on the agent begins anew. `said` is the output of the call before, which is not grown any more."""
        if self._before is None and not said.absent:
            self._before = said
        self._now = Fold()
        self._seen_before |= self._seen
        self._seen.clear()

    def new(self, events: Iterable[e.Event]) -> list[e.Event]:
        """Those of a notification's events that say something new.

        The output is held back until there is as much of it as before: then it goes on from there, or, if the agent
        says something else now, is replaced. Where it never gets as long, the result says it.
        """
        out: list[e.Event] = []
        for event in events:
            if isinstance(event, e.PartStarted | e.PartDelta | e.PartReplaced) and event.part == PART:
                if self._before is None:
                    out.append(event)
                elif isinstance(event, e.PartDelta):
                    self._now.apply(event.delta)
                elif isinstance(event, e.PartReplaced):
                    self._now.replace(event.pointer, event.value)
            elif not self._repeated(event):
                out.append(event)
        if self._before is not None:
            out += self._caught_up(self._before)
        return out

    def _caught_up(self, before: Fold) -> list[e.Event]:
        now = self._now
        if now.absent or now.size < before.size or len(now.encoded()) < len(before.encoded()):
            return []
        self._before = None
        change = delta.diff(before.document(), now.document())
        if change is NO_DIFF:
            return [e.PartReplaced(part=PART, value=now.document())]
        return [] if change is None else [e.PartDelta(part=PART, delta=change)]

    def _repeated(self, event: e.Event) -> bool:
        if len(self._seen) >= MOST:
            return False
        key = hash(e.encode(event))
        self._seen[key] += 1
        return self._seen[key] <= self._seen_before[key]
