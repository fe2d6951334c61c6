"""The interface by which a session's client is told what happens; `v1.py` and `v2/` implement it for their versions.

`SessionUpdates` serves one session: updates, and the answers of prompts. `RunUpdates` serves one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from adapters.agent_client import wire
from adapters.agent_client.inbound.turns import PromptTurn
from gateway.contract import Snapshot
from gateway.core import events as e
from gateway.core.types import Agent, Answer, Interrupt, Json, JsonObject, Run, ThreadUpdate
from gateway.wire.jsonrpc import RpcError

STATES = frozenset({"available_commands_update", "current_mode_update", "config_option_update", "session_info_update"})
"""Updates of which only the newest counts: history leaves them out, and the newest are told after it."""

Form = tuple[str, JsonObject, Callable[[Interrupt, Any], Answer]]
"""Method, params without the session, and what reads the answer."""

Take = Callable[[PromptTurn], Awaitable[bool]]
"""Begins what a prompt asks for. See `EditorSession.take`."""


class UpdatesEncoder(Protocol):
    """Makes updates of a run's events (`codec.updates_out.UpdateEncoder`)."""

    @property
    def lossy(self) -> bool:
        """Whether there are losses."""

    @property
    def losses(self) -> Counter[str]:
        """Losses so far, by name."""

    def feed(self, events: Sequence[tuple[int, e.Event]], snapshot: Snapshot | None = None) -> list[bytes]:
        """The updates that events make."""

    def finish(self, run: Run) -> list[bytes]:
        """The updates that are left when the run has ended."""


class RunUpdates(Protocol):
    """Tells one client of one run."""

    @property
    def encoder(self) -> UpdatesEncoder:
        """Makes updates of the run's events, for `tell`."""

    async def begin(self, *, quiet: bool) -> None:
        """The run is about to be told from its first event on: say what started it. `quiet`: say nothing."""

    async def tell(self, updates: Sequence[bytes]) -> None:
        """Say updates of the run."""

    def skip(self, updates: Sequence[bytes]) -> None:
        """Pass over updates that this client does not get."""

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
        """Answer the prompt, or say how the run ended. Called last."""


class SessionUpdates(Protocol):
    """Makes the `session/update`s of one session, as bytes without their envelope.

    tells_ends: whether an update behind the prompt's answer says how its work ended.
    """

    tells_ends: bool

    async def prepare(self) -> None:
        """Prepare for a session that is not new. Raises what reading it raises."""

    def say(self, *updates: bytes) -> None:
        """Send updates, in this order. Dropped if the client has gone."""

    def run(self, run: Run, agent: Agent | None, *, mine: bool, past: bool) -> RunUpdates:
        """`mine`: a prompt of this client started the run. `past`: it is history."""

    async def prompt(self, asked: wire.Prompt, take: Take, *, cancelled: bool) -> JsonObject:
        """The answer of `session/prompt`. `cancelled`: it was given up before. Raises what `take` does."""

    def news(self, update: ThreadUpdate) -> list[bytes]:
        """The updates that a word about the session is, an agent's or the gateway's own; none if it is no update."""

    def remember(self, said: JsonObject) -> Json:
        """Note what an answer says of the session. Returns its modes as they are then, if they count."""

    def is_mode(self, option: str) -> bool:
        """Whether the client sets the session's mode when it sets this option."""

    def text(self, said: str, id: str) -> list[bytes]:
        """A text of the gateway's own. `id` names it, the same for every client and each time it is told."""

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        """The updates for the words of a person."""

    def call(self, update: bytes | None) -> list[bytes]:
        """An update about a tool call in version 1's words."""

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> Form | None:
        """How a client that declared these modes of elicitation is asked; None if it cannot be."""

    def asked(self, turn: PromptTurn | None) -> None:
        """The client was told a question that its next prompt answers. `turn` is its prompt that waits, if one does."""

    def misunderstood(self, turn: PromptTurn, said: Sequence[bytes]) -> None:
        """A prompt was no answer to the question that is open: say so, in these updates, and end the turn."""

    def over(self, turn: PromptTurn | None, how: JsonObject | RpcError) -> None:
        """A run came to an end that was not told (it could not be)."""

    def standing(self) -> None:
        """Nothing goes on; say so, if that is said before a session that is resumed is answered for."""
