"""Version 1: what the halves of the adapter speak with each other. A prompt is answered when its run has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client import wire
from adapters.agent_client.codec import newer, questions, turn
from adapters.agent_client.codec import updates_out as out
from adapters.agent_client.codec.updates_out import UpdateEncoder
from adapters.agent_client.codec.v2.requests import OPTIONS
from adapters.agent_client.codec.v2.wire import UPDATE
from adapters.agent_client.inbound import choices, turns
from adapters.agent_client.inbound.dialects import Account, Asker
from adapters.agent_client.inbound.turns import Turn
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL, JsonObject
from gateway.core import events as e
from gateway.core.errors import InterlinguaError, Invalid, Unsupported
from gateway.core.types import Agent, Answer, Interrupt, Run, ThreadUpdate
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from adapters.agent_client.inbound.asking import Form, Questions
    from adapters.agent_client.inbound.connection import Connection
    from adapters.agent_client.inbound.session import Session

V2_ONLY: Final = frozenset(("auth/login", "auth/logout"))
_V2: Final = ORIGIN_V2.encode()


class V1:
    """See `Dialect`."""

    version = 1

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def request(self, method: str, params: Raw) -> tuple[str, Raw]:
        """See `Dialect.request`."""
        if method in V2_ONLY:
            raise unknown(method)
        return method, params

    def result(self, method: str, params: Raw, result: Any) -> Any:
        """See `Dialect.result`. Only what is said of options can be more than version 1 knows."""
        if method not in OPTIONS or (isinstance(result, Raw) and _V2 not in bytes(result)):
            return result
        said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
        return newer.told(said)[0] if isinstance(said, dict) else said

    def capabilities(self, asked: wire.Initialize, params: Raw) -> JsonObject:
        """See `Dialect.capabilities`."""
        return wire.capabilities_of(asked)

    def initialized(self, agent: Agent | None, answer: JsonObject) -> JsonObject:
        """See `Dialect.initialized`."""
        return answer

    async def ask(self, method: str, params: Raw, ask: Asker) -> Raw:
        """See `Dialect.ask`."""
        answer: Raw = await ask(method, params)
        return answer

    def voice(self, session: Session) -> V1Voice:
        """See `Dialect.voice`."""
        return V1Voice(session)


class V1Voice:
    """See `Voice`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def prepare(self) -> None:
        """See `Voice.prepare`."""

    @property
    def unanswered(self) -> bool:
        """See `Voice.unanswered`."""
        return self._session.turn is not None

    def account(self, run: Run, agent: Agent | None, *, mine: bool, past: bool) -> Account:
        """See `Voice.account`."""
        return V1Account(self._session, run, agent, mine=mine, past=past)

    async def prompt(self, asked: wire.Prompt, params: Raw, *, cancelled: bool) -> JsonObject:
        """See `Voice.prompt`. Nothing but "cancelled" once the turn was cancelled."""
        session = self._session
        mine = session.turn = Turn(cancelled=cancelled)
        try:
            how = await mine.over if await session.take(mine, asked, params) else turns.CANCELLED
        except InterlinguaError as error:
            if mine.cancelled:
                return turns.CANCELLED
            raise as_answer(error) from error
        finally:
            session.turn = None
        if isinstance(how, RpcError):
            raise how
        return how

    def news(self, update: ThreadUpdate) -> list[bytes]:
        """See `Voice.news`."""
        said = update.data
        if update.protocol != PROTOCOL or not isinstance(said, dict) or UPDATE not in said:
            return []
        return [out.update(said)]

    def is_mode(self, option: str) -> bool:
        """See `Voice.is_mode`."""
        return False

    def completed(self, update: bytes) -> bytes:
        """See `Voice.completed`."""
        return choices.completed(self._session, update)

    def text(self, said: str, id: str) -> list[bytes]:
        """See `Voice.text`."""
        return [out.text(said)]

    def user(self, blocks: Sequence[JsonObject], id: str) -> list[bytes]:
        """See `Voice.user`."""
        return out.user(blocks)

    def call(self, update: bytes | None) -> list[bytes]:
        """See `Voice.call`."""
        return [] if update is None else [update]

    def form(self, interrupt: Interrupt, modes: frozenset[str]) -> Form | None:
        """See `Voice.form`."""
        if interrupt.kind == "elicitation" and (params := questions.as_elicitation(interrupt, modes)) is not None:
            return "elicitation/create", params, questions.elicitation_answer
        if (params := questions.as_permission(interrupt)) is not None:
            return "session/request_permission", params, questions.permission_answer
        if (params := questions.as_elicitation(interrupt, modes)) is not None:
            return "elicitation/create", params, questions.elicitation_answer
        return None

    def asked(self, turn: Turn | None) -> None:
        """See `Voice.asked`."""
        if turn is not None:
            turn.end(turns.END_TURN)

    def misunderstood(self, turn: Turn, questions: Questions, question: Interrupt, why: Invalid) -> None:
        """See `Voice.misunderstood`."""
        self._session.say(*questions.again(question, why))
        turn.end(turns.END_TURN)

    def over(self, turn: Turn | None, how: JsonObject | RpcError) -> None:
        """See `Voice.over`."""
        if turn is not None:
            turn.end(how)

    def standing(self) -> None:
        """See `Voice.standing`."""

    async def settled(self) -> None:
        """See `Voice.settled`."""


class V1Account:
    """See `Account`."""

    def __init__(self, session: Session, run: Run, agent: Agent | None, *, mine: bool, past: bool) -> None:
        self.encoder = UpdateEncoder(agent, replay=not mine)
        self._session = session
        self._run = run
        self._agent = agent
        self._mine = mine

    async def begin(self, *, quiet: bool) -> None:
        """See `Account.begin`. The client knows what it said itself."""
        if not (self._mine or quiet):
            self._session.say(*out.user(await turns.said(self._session.gateway, self._run, self._agent)))

    async def tell(self, updates: Sequence[bytes]) -> None:
        """See `Account.tell`."""
        self._session.say(*updates)

    def skip(self, updates: Sequence[bytes]) -> None:
        """See `Account.skip`."""

    def state_of(self, event: e.Custom) -> list[bytes] | None:
        """See `Account.state_of`."""
        return None

    def resumed(self, answer: Answer, *, open: bool) -> list[bytes]:
        """See `Account.resumed`."""
        return []

    def replied(self, interrupt: Interrupt, said: str | None, *, here: bool) -> list[bytes]:
        """See `Account.replied`."""
        return [] if here or said is None else out.user([{"type": "text", "text": said}])

    def waiting(self) -> None:
        """See `Account.waiting`."""

    def snapshot(self, *, asks: bool) -> None:
        """See `Account.snapshot`."""

    async def close(self, run: Run) -> None:
        """See `Account.close`."""

    def over(self, run: Run) -> None:
        """See `Account.over`."""
        mine = self._session.turn
        if mine is not None and self._session.owns(run):
            mine.end(self._end(run))

    def _end(self, run: Run) -> JsonObject | RpcError:
        """How the prompt is answered."""
        encoder = self.encoder
        losses = {**encoder.losses, **run.losses}  # the last ones came too late to be counted in the record
        try:
            run = replace(run, losses=losses)
            return turn.prompt_result(run, encoder.end, agent=self._agent, usage=encoder.usage)
        except RpcError as error:
            return error


def unknown(method: str) -> RpcError:
    """The answer to a method that there is not."""
    return RpcError(jsonrpc.METHOD_NOT_FOUND, f"unknown method {method}", {"method": method})


def as_answer(error: InterlinguaError) -> Exception:
    """What a prompt that could not be taken is answered: the method is not unknown."""
    if isinstance(error, Unsupported):
        return RpcError(jsonrpc.INVALID_PARAMS, str(error), {"code": error.code})
    return error
