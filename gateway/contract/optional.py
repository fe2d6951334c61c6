"""Abilities that an adapter may offer beyond `Inbound` and `Outbound`. A half offers one by having its methods.

Inbound halves:

| ability | asked by | when |
|---|---|---|
| `Hosting` | `agents.roster` | at the start, at every `hosted_changed`, and once a second for other processes' agents |
| `Informed` | `app` | whenever the list of agents changes |
| `Conversing` | `app` | for `interlingua stdio` |
| `Knowing` | `app` | for pages that name agents only to those who may use them, and to count each client's requests |
| `Leaving` | `app` | once, when the gateway begins to stop |
| `CallingBack` | `runs.webhooks` | for every attempt to deliver a callback |

Outbound halves:

| ability | asked by | when |
|---|---|---|
| `Discovering` | `agents.entry` | for every route, once it is made |
| `Supervised` | `agents.entry` | for readiness, and before a list is described |
| `Relay` | `runs` | for every `backchannel.relay` and `forward` |
| `Stateful` | `runs.states` | before a turn of another agent, and for `threads.state`, `states`, `patch` and `copy` |
| `Demanding` | `agents.entry` | before every run, and for readiness |
| `Extended` | `agents.entry` | for `agents.extension` |
| `Placed` | `agents.entry` | before every run |
| `Preparing` | `runs` | before a new run without a thread is stored |
| `Intercepting` (interception.py) | `agents.entry` | for every run |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from gateway.contract.backchannel import ThreadContext
from gateway.contract.outbound import Outbound, RunContext
from gateway.core.types import Agent, ChatMessage, Checkpoint, Json, JsonObject, Run
from gateway.transport.pipe import Pipe


class Hosted(msgspec.Struct, frozen=True):
    """One agent that an inbound half brings, as much of a route as it needs.

    `outbound` is the same object as long as it is the same agent. Another object under the name is another agent:
    runs under way keep the one they began with. The engine closes it (`Outbound.aclose`, once) when it is hosted no
    longer and its last run has ended, or when the gateway stops: an agent that was left out of `hosted()` and comes
    back needs a new one. It may be `Supervised`: then `reachable` False says that the agent is away.
    """

    outbound: Outbound
    protocols: tuple[str, ...] = ()
    """Only clients of these may call it. Empty: those of all."""
    timeout: float | None = 600.0
    """Longest run in seconds, not counting the time a person is asked. None: as long as it likes."""
    lossy: bool = False
    """Whether a request that needs what the agent cannot do is sent without it, instead of being refused."""
    reserved: bool = False
    """Whether only the route table may take its name: an agent found under it is called `ROUTE-NAME`."""


@runtime_checkable
class Hosting(Protocol):
    """Offered by inbound adapters whose clients may be agents themselves, or that bring agents of their own.

    A hosted agent is listed like any route: every protocol's clients see it and may run it, it may be the template of
    others, its runs have a log and are recovered. The inbound half keeps what it must remember of them in the store
    (`Gateway.records.keep`), where the gateway's other processes see it too.

        client registers -> Inbound -> records.keep, agents.hosted_changed -> the engine asks Hosting.hosted()
        run of its name  -> engine  -> Hosted.outbound -> the connection that it registered over
    """

    async def open(self) -> None:
        """Called once, when the store is open and no run has been taken up yet: read what was kept.

        Unfinished runs of what `hosted` names from then on are attached (`Outbound.attach`); those of others fail.
        """

    def hosted(self) -> Mapping[str, Hosted]:
        """The agents there are now, by name (letters, digits, _ and -), in the order of listings. Must not raise.

        Asked after `open` and after every `Gateway.agents.hosted_changed`. A name that the route table has, or that was
        given to an agent found (see `Hosted.reserved`) or created, is not served here; nor is one of another inbound
        half that came first.
        """

    async def refresh(self) -> None:
        """See what other processes kept, forgot or renewed. Called every second or so, never twice at once, and
        before an unknown name is refused: it may ask `Gateway.records.kept`, but for no agent. Errors are logged.
        """

    async def aclose(self) -> None:
        """Let go of everything. Called once at the stop: no run goes on any more, the store is still open."""


@runtime_checkable
class Informed(Protocol):
    """Offered by inbound adapters that tell their clients when the list of agents has changed."""

    def agents_changed(self) -> None:
        """Called when the set of agents changes: by a reload, a discovery, `agents.create`. Must not raise."""


@runtime_checkable
class Conversing(Protocol):
    """Offered by inbound adapters whose protocol runs over one two-way connection: a WebSocket, or stdin and stdout."""

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        """Serve the client at the other end until it has gone, then close the pipe.

        `agent` is the only one it may talk to, None for any. What it left unfinished goes on.
        """


@runtime_checkable
class Knowing(Protocol):
    """Offered by inbound adapters that find out themselves who their clients are."""

    def sees(self, headers: Iterable[tuple[bytes, bytes]]) -> Callable[[str], bool] | None:
        """A test of which agents, by name, the sender of these headers (as in ASGI) may see.

        None where they hold no valid token, or the door asks for none. The gateway's own pages call it, and name agents
        only to those who may see them.
        """

    def known(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The name of whoever sends a request with these headers; None as above. Its requests are counted by it."""


@runtime_checkable
class Leaving(Protocol):
    """Offered by inbound adapters whose streams would go on for ever."""

    def quiet(self) -> None:
        """Called when the gateway begins to stop: end the open streams. Their runs go on."""


class Callback(msgspec.Struct, frozen=True):
    """A webhook request: POST `body` with `headers`."""

    body: bytes
    headers: Mapping[str, str]


@runtime_checkable
class CallingBack(Protocol):
    """Offered by inbound adapters whose clients may ask to be called back, with a run's `webhook`."""

    def callback(self, run: Run) -> Callback:
        """The webhook request that tells a client of this protocol what became of `run`."""


@runtime_checkable
class Discovering(Protocol):
    """Offered by outbound adapters whose target may stand for all the agents that live there."""

    @property
    def discovers(self) -> bool:
        """Whether this route's does. Then it is never asked to describe or run anything itself."""

    async def discover(self) -> Mapping[str, Outbound]:
        """The agents that are there now, by their names there, each with an outbound half of its own.

        Each becomes a route, like this one but for the name. A half that was given before for the same name is given
        again; they share this one's connections, and `aclose` of one closes none. Raises the errors of `describe`.
        """

    def on_change(self, changed: Callable[[], None]) -> None:
        """Called once. The adapter calls `changed` when `discover` should be asked again."""


@runtime_checkable
class Supervised(Protocol):
    """Offered by outbound adapters that keep a process or connection."""

    @property
    def reachable(self) -> bool | None:
        """Whether the agent is there now; None if nobody needed it yet."""


@runtime_checkable
class Relay(Protocol):
    """Offered by outbound adapters that pass on, verbatim, what clients of the same protocol say beside runs."""

    async def relay(self, context: ThreadContext, method: str, params: msgspec.Raw) -> msgspec.Raw:
        """Send a request of the protocol's own to the agent; `params` name the gateway's ids, as does the answer.

        Raises `gateway.wire.jsonrpc.RpcError` with the agent's own error, Unsupported for what it does not relay, and
        the errors of the tree.
        """

    async def forward(self, context: ThreadContext, method: str, params: msgspec.Raw) -> None:
        """The same for a notification."""


@runtime_checkable
class Stateful(Protocol):
    """Offered by outbound adapters whose agents keep the state of threads where it can be read and changed.

    `upstream` is what the adapter recorded of the thread (`RunContext.set_upstream`). Checkpoints hold the whole state:
    `values` in the agent's schema, `messages` the conversation (empty if the agent gives none), `id` the agent's own.
    Every method raises AgentGone (also where the agent has lost the thread), AgentTimeout, AgentBroken, and Unsupported
    where the agent does not offer it.
    """

    async def read_thread(self, upstream: JsonObject) -> Checkpoint:
        """The state as it is now."""

    async def read_history(self, upstream: JsonObject, *, limit: int, before: str | None) -> Sequence[Checkpoint]:
        """The states so far, newest first, those older than `before`. Raises NotFound if that is unknown."""

    async def copy_thread(self, upstream: JsonObject) -> JsonObject:
        """Copy the thread at the agent. Returns the record of the new one, which has the same state."""

    async def update_thread(
        self, upstream: JsonObject, *, base: str | None, values: Json, messages: Sequence[ChatMessage] | None
    ) -> None:
        """Change the state, starting from checkpoint `base` (None: from the newest). None leaves a part as it is.

        Raises NotFound if `base` is unknown, Invalid where the agent refuses the change.
        """


@runtime_checkable
class Demanding(Protocol):
    """Offered by outbound halves that run only agents of which something is true."""

    def unmet(self, agent: Agent) -> str:
        """Why the agent, as it describes itself, is not run; "" if it is."""


@runtime_checkable
class Placed(Protocol):
    """Offered by outbound halves whose agent one gateway process runs: it is connected there, or counts something."""

    @property
    def process(self) -> str | None:
        """Another process (`Gateway.process`) that drives the agent's runs now; None while this one does."""

    async def known(self) -> None:
        """Awaited before a new run is placed: returns once `process` can be told. Raises Unavailable."""

    def doubt(self) -> None:
        """Called when that process is dead, or does not drive them: the next `Hosting.refresh` looks who does."""


@runtime_checkable
class Preparing(Protocol):
    """Offered by outbound halves that can do some of a run's work while it is being stored.

    Nothing of the run may be sent by then: only what the agent may be asked for whether the run comes or not. It is not
    asked of a run that is held, intercepted, recorded or queued, nor of one on a thread.
    """

    def prepare(self, context: RunContext) -> None:
        """Called once, before the run is stored, in the task of whoever starts it. Must not raise."""

    def unprepare(self, context: RunContext) -> None:
        """Called once the run has ended, and where it is not stored: let go of what `run` has not taken. May be called
        for a run that was not prepared, and again. Must not raise.
        """


@runtime_checkable
class Extended(Protocol):
    """Offered by outbound halves that have something for inbound halves."""

    def extension(self, key: str) -> Any:
        """The object under a key (`GatewayAgents.extension`); None if there is none."""
