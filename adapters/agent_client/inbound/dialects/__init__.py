"""What differs between the versions of the protocol, for the inbound half: everything else of it knows no version.

Between the halves of the adapter, and in the gateway's records, requests, states and questions are version 1's. A
`Dialect` is one connection's: it turns what the client asks into that, and answers back. A `Voice` is one session's: it
says what happens there, and answers prompts. An `Account` is a Voice's of one run.

v1.py           nothing to turn; a prompt is answered when its run has ended
v2/             voice.py, account.py: a prompt is answered when it is taken, and states are told
negotiation.py  which of them a connection speaks
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw

from adapters.agent_client import wire
from gateway.contract import Snapshot
from gateway.core import events as e
from gateway.core.errors import Invalid
from gateway.core.types import Agent, Answer, Interrupt, JsonObject, Run, ThreadUpdate
from gateway.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from adapters.agent_client.inbound.asking import Form, Questions
    from adapters.agent_client.inbound.session import Session
    from adapters.agent_client.inbound.turns import Turn


class Encoder(Protocol):
    """What makes updates of a run's events (`codec.updates_out.UpdateEncoder`)."""

    @property
    def lossy(self) -> bool:
        """Whether there are losses."""

    @property
    def losses(self) -> Counter[str]:
        """What could not be said so far, by name."""

    def feed(self, events: Sequence[tuple[int, e.Event]], snapshot: Snapshot | None = None) -> list[bytes]:
        """The updates that events make."""

    def finish(self, run: Run) -> list[bytes]:
        """What is still to be said when the run has ended."""


class Account(Protocol):
    """One run, as one client is told of it."""

    @property
    def encoder(self) -> Encoder:
        """Makes updates of the run's events, for `tell`."""

    async def begin(self, *, quiet: bool) -> None:
        """The run is about to be told from its first event on: say what started it. `quiet`: say nothing."""

    async def tell(self, updates: Sequence[bytes]) -> None:
        """Say updates of the run."""

    def skip(self, updates: Sequence[bytes]) -> None:
        """The same of updates that this client is not told."""

    def state_of(self, event: e.Custom) -> list[bytes] | None:
        """Updates for an agent's word of the session's state that the encoder is not to see; None for all else."""

    def resumed(self, answer: Answer, *, open: bool) -> list[bytes]:
        """Updates for a question that has been answered. `open`: others are not."""

    def replied(self, interrupt: Interrupt, said: str | None, *, here: bool) -> list[bytes]:
        """Updates for an answer in words: what the person said, if anything. `here`: by a prompt of this client."""

    def waiting(self) -> None:
        """The client is being asked: say that the run waits for it."""

    def snapshot(self, *, asks: bool) -> None:
        """Everything that has happened by now was told; say how it stands. `asks`: questions are open."""

    async def close(self, run: Run) -> None:
        """The run has ended, and was told."""

    def over(self, run: Run) -> None:
        """The very last: how it ended. Answers the prompt, or says it."""


class Voice(Protocol):
    """What the client of one session is told: `session/update`s as bytes, without their envelope."""

    async def prepare(self) -> None:
        """A session is about to be opened that is not new. Raises what looking at it raises."""

    @property
    def unanswered(self) -> bool:
        """Whether a prompt waits for its answer."""

    def account(self, run: Run, agent: Agent | None, *, mine: bool, past: bool) -> Account:
        """`mine`: a prompt of this client started the run. `past`: it is history."""

    async def prompt(self, asked: wire.Prompt, params: Raw, *, cancelled: bool) -> JsonObject:
        """The answer of `session/prompt`. See `Session.prompt`, and `Session.take` for what it raises."""

    def news(self, update: ThreadUpdate) -> list[bytes]:
        """The updates that a word about the session is, an agent's or the gateway's own; none if it is no update."""

    def is_mode(self, option: str) -> bool:
        """Whether the client sets the session's mode when it sets this option."""

    def completed(self, update: bytes) -> bytes:
        """An update of an encoder's where the client chooses the agent: the choice is put in."""

    def text(self, said: str, id: str) -> list[bytes]:
        """A text of the gateway's own. `id` names it, the same for every client and each time it is told."""

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        """What a person said."""

    def call(self, update: bytes | None) -> list[bytes]:
        """An update about a tool call in version 1's words."""

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> Form | None:
        """How a client that declared these modes of elicitation is asked; None if it cannot be."""

    def asked(self, turn: Turn | None) -> None:
        """The client was told a question that its next prompt answers. `turn` is its prompt that waits, if one does."""

    def misunderstood(self, turn: Turn, questions: Questions, question: Interrupt, why: Invalid) -> None:
        """A prompt was no answer to the question that is open: say so, and end the turn."""

    def over(self, turn: Turn | None, how: JsonObject | RpcError) -> None:
        """A run came to an end that was not told (it could not be)."""

    def standing(self) -> None:
        """Nothing goes on; say so, if that is said before a session that is resumed is answered for."""

    async def settled(self) -> None:
        """Wait until the end of what was cancelled is told."""


class Dialect(Protocol):
    """One connection's version."""

    version: int

    def request(self, method: str, params: Raw) -> tuple[str, Raw]:
        """A client's request in version 1's words. Raises RpcError for a method that its version has not."""

    def result(self, method: str, params: Raw, result: Any) -> Any:
        """The answer of a request that is called `method` in version 1, in the client's words."""

    def capabilities(self, asked: wire.Initialize, params: Raw) -> JsonObject:
        """What the client declared that it can do, in version 1's words."""

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        """The answer of `initialize`, given version 1's."""

    async def ask(self, method: str, params: Raw, ask: Asker) -> Raw:
        """A request to the client in version 1's words, which `ask` sends; the answer. Raises as `Caller.ask`."""

    def voice(self, session: Session) -> Voice:
        """What a session is told with."""


Asker = Callable[[str, Raw], Any]
"""Sends a request as it is, and awaits its answer."""
