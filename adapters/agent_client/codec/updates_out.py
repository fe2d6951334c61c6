"""Core events to `session/update`, as far as both versions say them alike: what one client is told of one run.

Updates are bytes: the `update` object alone; `envelope` makes whole notifications of them. Called by the inbound half:
`feed` with each batch of the run's log from its first event on, then `finish` once the run has ended. `losses` is to be
given to `Gateway.runs.lost`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.event_forms import UpdateAssembly
from adapters.agent_client.codec.output_text import Around, ForeignOutput
from adapters.agent_client.wire import PARAMS_META
from gateway.contract import Snapshot
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, Json, JsonObject, Run

_encode: Final = delta.encode
_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_PARAMS_META: Final = PARAMS_META.encode()


class UpdateEncoder:
    """One client's view of one run.

    agent: the run's agent; None where it is not known any more. What an agent of this protocol said is sent as it was.
    end: the run's terminal event, once `feed` has seen it. usage: token counts that no update can say. Both are for how
    the prompt ends.
    """

    def __init__(self, agent: Agent | None, output: ForeignOutput | None) -> None:
        """`output` follows that of an agent of another protocol."""
        self.end: e.Event | None = None
        self.usage: e.UsageReported | None = None
        self._agent = agent
        self._losses: Counter[str] = Counter()
        self._output = output
        self._assembly = UpdateAssembly(foreign=output is not None)
        self._ready: dict[str, Around] = {}  # parts whose deltas are simply chunks

    @property
    def lossy(self) -> bool:
        """Whether there are losses: cheaper than to count them."""
        return bool(self._losses) or (self._output is not None and self._output.lossy)

    @property
    def losses(self) -> Counter[str]:
        """Losses so far, by name (losses.py). A new counter each time."""
        return self._losses + (self._output.losses if self._output is not None else Counter())

    def feed(self, events: Sequence[tuple[int, e.Event]], snapshot: Snapshot | None = None) -> list[bytes]:
        """The updates that events make, in order. Interrupts, answers and ends make none."""
        out: list[bytes] = []
        ready = self._ready
        for _, event in events:
            if type(event) is e.PartDelta and event.origin is None and (around := ready.get(event.part)) is not None:
                start, end, told = around
                if told is not None:
                    told(event.delta)
                out.append(start + _encode(event.delta) + end)
            else:
                self._event(event, out)
        if self._output is not None:
            self._look(snapshot, out)
        return out

    def finish(self, run: Run) -> list[bytes]:
        """The updates still owed when the run has ended: a corrected text, a document that has no text.

        `run` is the run's last record. To be sent before the prompt's end is. A second call says nothing.
        """
        raise NotImplementedError

    def _event(self, event: e.Event, out: list[bytes]) -> None:
        """The updates of one event."""
        raise NotImplementedError

    def _look(self, snapshot: Snapshot | None, out: list[bytes]) -> None:
        """After a batch of an agent of another protocol: its output may be to be looked up."""
        raise NotImplementedError

    def _assembled(self, event: e.Event, beyond: JsonObject | None) -> JsonObject | None:
        """The update that is whole with this event, in version 1's words. Ends and other token counts are kept."""
        if isinstance(event, e.TERMINAL):
            self.end = event
        elif isinstance(event, e.UsageReported) and not event_forms.is_usage(event.detail):
            self.usage = event
        else:
            return self._assembly.add(event, beyond)
        return None


def is_update(value: Json) -> bool:
    """Whether it is an update, of whichever kind."""
    return isinstance(value, dict) and isinstance(value.get(event_forms.KEY), str)


def envelope(session_id: str) -> Callable[[Sequence[bytes]], list[bytes]]:
    """A function that makes whole `session/update` notifications (JSON-RPC text) of updates: made once a session."""
    start = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":' + _encode(session_id) + b',"update":'
    end = b"}}"

    def whole(updates: Sequence[bytes]) -> list[bytes]:
        if b"".join(updates).find(_PARAMS_META) >= 0:  # in any of them
            updates = [_beside(update) for update in updates]
        return [start + update + end for update in updates]

    return whole


def _beside(update: bytes) -> bytes:
    """Move what the agent said beside an update (`_meta` of the params) back beside it."""
    members = _members(update)
    meta = members.pop(PARAMS_META, None)
    return update if meta is None else _encode(members) + b',"_meta":' + bytes(meta)
