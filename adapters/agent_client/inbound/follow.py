"""One run as one client is told of it: its updates in order, its questions, and in the end the answer of the prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from adapters.agent_client.codec import content, turn
from adapters.agent_client.codec import updates_out as out
from adapters.agent_client.codec.updates_out import UpdateEncoder
from adapters.agent_client.inbound.asking import Questions
from adapters.agent_client.inbound.encoding import encoded
from adapters.agent_client.wire import NOTIFICATION, PROTOCOL
from gateway.adapter import Batch, Snapshot
from gateway.core import events as e
from gateway.core import projection
from gateway.core.stream import coalesce
from gateway.core.types import Agent, JsonObject, Run, RunStatus
from gateway.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from adapters.agent_client.inbound.session import Session

STATES = frozenset({"available_commands_update", "current_mode_update", "config_option_update", "session_info_update"})
"""Updates of which only the newest counts: history leaves them out, and the newest are told after it."""

LAGGING = 32
"""Events at once from which on neighbouring chunks are joined, whoever the agent is."""

_APART = frozenset({e.Interrupted, e.Resumed, e.Custom})


class Follow:
    """Made for one run, used once: `go`."""

    def __init__(self, session: Session, run: Run, agent: Agent | None, *, mine: bool, past: bool = False) -> None:
        """`mine`: the run was started by a prompt of this client, which knows what it said. `past`: it is history."""
        self.run = run
        self._session = session
        self._agent = agent
        self._mine = mine
        self._past = past
        self._native = agent is not None and PROTOCOL in agent.extra
        self._encoder = UpdateEncoder(agent, replay=not mine)
        self._counted: Counter[str] = Counter()
        self.questions = Questions(session, run.id, self._asked)

    async def go(self, *, quiet: bool = False, head: Callable[[], Awaitable[None]] | None = None) -> None:
        """Tell the client of the run from its beginning to its end.

        `head` is awaited once, where everything that has happened by now was told; with `quiet` nothing is told
        before. Returns when the run has ended and, if it was this client's prompt, that is settled. Raises AgentGone.
        """
        session = self._session
        try:
            if not (self._mine or quiet):
                session.say(*out.user(asked(self.run, self._agent)))
            async with session.gateway.watch(self.run.id) as watch:
                if head is not None and watch.run.status is RunStatus.PENDING:
                    await head()
                    head, quiet = None, False
                while (batch := await watch.next()) is not None:
                    self._take(batch, quiet)
                    if not session.connection.flowing:
                        await session.connection.drained()
                    if head is None and not self.questions.open:
                        continue
                    if batch.snapshot is None or watch.run.status.ended:
                        continue
                    if head is not None:
                        await head()
                        head, quiet = None, False
                    self.questions.ask()
                self.run = watch.run
            rest = self._encoder.finish(self.run)
            if not quiet:
                session.say(*rest)
            if head is not None:
                await head()
            session.over(self.run, self._end)
        finally:
            self.questions.leave()

    # --- inside -----------------------------------------------------------------------------------------------

    def _take(self, batch: Batch, quiet: bool) -> None:
        if _APART.isdisjoint([type(event) for _, event in batch.events]):
            updates = self._encoder.feed(self._packed(batch.events), batch.snapshot)
        else:
            updates = self._pieces(batch, quiet)
        if self._encoder.lossy and self._session.owns(self.run):
            self._count()
        if updates and not quiet:
            self._session.say(*updates)

    def _packed(self, events: Sequence[tuple[int, e.Event]]) -> Sequence[tuple[int, e.Event]]:
        """An agent of this protocol is told chunk by chunk as it spoke, unless this client lags."""
        return events if self._native and len(events) < LAGGING else coalesce(events)

    def _pieces(self, batch: Batch, quiet: bool) -> list[bytes]:
        """A batch cut where a question comes or goes, or the agent notifies: each has its place among the updates."""
        updates: list[bytes] = []
        piece: list[tuple[int, e.Event]] = []

        def flush(snapshot: Snapshot | None = None) -> None:
            updates.extend(self._encoder.feed(self._packed(piece), snapshot))
            piece.clear()

        for number, event in batch.events:
            if isinstance(event, e.Interrupted):
                flush()
                updates += self.questions.opened(event)
            elif isinstance(event, e.Resumed):
                flush()
                updates += self.questions.closed(event)
            elif isinstance(event, e.Custom) and event.name == PROTOCOL and NOTIFICATION in (event.data or ()):
                flush()
                if not (quiet or self._past):
                    self._session.say(*updates)
                    updates.clear()
                    self._session.connection.tell(event.data[NOTIFICATION], encoded(event.data["params"]))
            elif not isinstance(event, e.Custom) or self._is_told(event):
                piece.append((number, event))
        flush(batch.snapshot)
        return updates

    def _is_told(self, event: e.Custom) -> bool:
        """Not what the halves of the adapter note for each other. Of history no state: the newest is told after it."""
        if event.name != PROTOCOL:
            return True
        kind = event.data.get("sessionUpdate") if isinstance(event.data, dict) else None
        return kind is not None and not (self._past and kind in STATES)

    def _count(self) -> None:
        """Have what could not be said counted, by the client that asked for it."""
        losses = self._encoder.losses
        for what, count in (losses - self._counted).items():
            self._session.gateway.lost(self.run.id, what, count)
        self._counted = losses

    def _end(self) -> JsonObject | RpcError:
        """How the prompt is answered."""
        encoder = self._encoder
        losses = {**encoder.losses, **self.run.losses}  # the last ones came too late to be counted in the record
        try:
            run = replace(self.run, losses=losses)
            return turn.prompt_result(run, encoder.end, agent=self._agent, usage=encoder.usage)
        except RpcError as error:
            return error

    def _asked(self) -> None:
        self._session.asked(self.run)


def asked(run: Run, agent: Agent | None) -> list[JsonObject]:
    """What was said to start the run, as blocks, whatever protocol it was said in."""
    request = run.request
    if request.protocol == PROTOCOL and isinstance(request.creation.get("prompt"), list):
        return [block for block in request.creation["prompt"] if isinstance(block, dict)]
    said = projection.text_of(request.input, agent.text_input if agent else None)
    return [content.block_of(said)] if said else []
