"""`interlingua stdio`: acts as an agent on standard input and output, over a route table or a running gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from msgspec import UNSET

from gateway import registry
from gateway.cli import loop
from gateway.cli.codes import FAILED, OK, USAGE, Place, leave, perhaps_tls, read
from gateway.contract import Adapter
from gateway.core.errors import AgentGone, InterlinguaError
from gateway.transport.pipe import LIMIT, Pipe, Unreadable
from gateway.transport.stdio.own_stdio import OwnPipe
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Message, MessageBatch, Request, Response

if TYPE_CHECKING:
    from gateway.config import Config

log = logging.getLogger("interlingua")


def serve_stdio(agent: str | None, protocol: str | None, place: Place) -> int:
    """Serve until standard input ends. Exits with USAGE for a wrong file, agent or protocol."""
    if (table := place.table) is None:
        work = _remote(_adapter(registry.scan(), protocol), agent, place.url, place.token())
    else:
        config = read(table)
        work = _local(config, _adapter(config.adapters, protocol), agent)
    try:
        return loop.run(work)
    except KeyboardInterrupt:  # an editor stops it so
        return OK


def _adapter(adapters: registry.Registry, protocol: str | None) -> Adapter:
    """Return the protocol to speak: that of editors, unless another is named."""
    if protocol is None:
        return next(adapter for adapter in adapters.values() if adapter.editors)
    known = [name for name, adapter in adapters.items() if adapter.socket is not None]
    if protocol not in known:
        leave(USAGE, f"--protocol: '{protocol}' does not run over standard input and output; have {', '.join(known)}")
    return adapters[protocol]


async def _local(config: Config, adapter: Adapter, agent: str | None) -> int:
    """Serve the agents of a route table in this process, with its store, so that sessions are there the next time."""
    from gateway import tracing
    from gateway.app import App

    pipe = OwnPipe(LIMIT)
    app = App(config)
    tracing.configure(config.telemetry)
    async with contextlib.AsyncExitStack() as last:
        last.push_async_callback(asyncio.to_thread, tracing.shutdown)
        try:
            await app.start()
        except InterlinguaError as error:
            leave(USAGE, f"the gateway cannot start: {error}" + (f" ({error.detail})" if error.detail else ""))
        last.push_async_callback(app.stop)
        names = app.gateway.agents.names(adapter.name)
        if agent is not None and agent not in names:
            leave(USAGE, f"no agent '{agent}' for {adapter.name}; have {', '.join(names) or 'none'}")
        loop.settled()
        conversing = await app.conversing(adapter.name)
        await conversing.converse(pipe, agent)
    return OK


async def _remote(adapter: Adapter, agent: str | None, gateway: str, token: str | None) -> int:
    """Connect to a running gateway: every line is a message of its WebSocket, and vice versa."""
    from gateway.transport.http import Unreachable
    from gateway.transport.websocket.client import UpgradeRefused, connect

    assert adapter.socket is not None
    scheme, _, rest = gateway.partition("://")
    below = adapter.socket.replace("/{agent}", f"/{agent}" if agent else "")
    url = f"{scheme.replace('http', 'ws')}://{rest}{adapter.path}{below}"
    own = OwnPipe(LIMIT)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        far = await connect(url, headers=headers, limit=LIMIT, patience=PATIENCE_SECONDS)
    except InterlinguaError as error:
        unknown = isinstance(error, UpgradeRefused) and error.status == HTTPStatus.NOT_FOUND
        hint = perhaps_tls(gateway) if isinstance(error, AgentGone) and not isinstance(error, Unreachable) else ""
        leave(USAGE if unknown else FAILED, f"{gateway}: {error}{hint}")
    try:
        why = await PipeBridge(own, far).run()
        if why is None:
            return OK
        log.error("%s: %s", gateway, why)
        return FAILED
    finally:
        await far.aclose()
        await own.aclose()


LINGER_SECONDS = 2.0
"""How long a client that sends nothing more still gets its answers, as from a gateway in this process."""
PATIENCE_SECONDS = 30.0
"""How long a gateway that answers no ping may be silent: it never thinks for long, as an agent may."""


class PipeBridge:
    """Call `run` once, and close the pipes afterwards. Messages are read only as far as needed to find their ids."""

    def __init__(self, client: Pipe, gateway: Pipe) -> None:
        self._client = client
        self._gateway = gateway
        self._asked: set[Id] = set()
        """The client's requests without an answer."""
        self._answered = asyncio.Event()

    async def run(self) -> str | None:
        """Pass messages until one end closes. Returns None if that was the client's, else why the gateway has gone:
        with that the client's requests are answered."""
        up, down = asyncio.create_task(self._up()), asyncio.create_task(self._down())
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            finished = up.done() and up.result()
            if finished and self._asked:
                answered = asyncio.create_task(self._answered.wait())
                await asyncio.wait({answered, down}, timeout=LINGER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                answered.cancel()
            if finished:
                return None
            done, _ = await asyncio.wait({down}, timeout=LINGER_SECONDS)
            why = (down.result() if done else None) or "the gateway has closed the connection"
            await self._fail(why)
            return why
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _up(self) -> bool:
        """Pass the client's messages. Returns True at their end, False if the gateway has gone."""
        with contextlib.suppress(InterlinguaError):
            while messages := await self._client.receive():
                for message in messages:
                    if isinstance(message, bytes) and (ids := _ids(jsonrpc.decode(message), Request)):
                        self._asked |= ids
                        self._answered.clear()
                if not await _pass_on(messages, self._client, self._gateway):
                    return False
        return True

    async def _down(self) -> str | None:
        """Pass the gateway's messages, until their end or until the client has gone. Returns what has gone wrong."""
        try:
            while messages := await self._gateway.receive():
                if not await _pass_on(messages, self._gateway, self._client):
                    return None
                for message in messages:
                    if self._asked and isinstance(message, bytes) and (b'"result"' in message or b'"error"' in message):
                        self._settle(message)
        except InterlinguaError as error:
            return str(error)
        return None

    async def _fail(self, why: str) -> None:
        """Answer the client's requests, if it still reads."""
        answers = [jsonrpc.error(id, ErrorObject(jsonrpc.INTERNAL_ERROR, why)) for id in self._asked]
        with contextlib.suppress(InterlinguaError, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await self._client.send(answers)

    def _settle(self, message: bytes) -> None:
        self._asked -= _ids(jsonrpc.decode(message), Response)
        if not self._asked:
            self._answered.set()


def _ids(said: Message, kind: type[Request | Response]) -> set[Id]:
    """Return the ids of one kind in a message, which may be an array."""
    return {one.id for one in (said.messages if isinstance(said, MessageBatch) else (said,)) if isinstance(one, kind)}


async def _pass_on(messages: Sequence[bytes | Unreadable], source: Pipe, sink: Pipe) -> bool:
    """Answer a request that is too large to pass, or whose answer is. Returns False if `sink` has gone."""
    onward: list[bytes] = []
    back: list[bytes] = []
    for message in messages:
        if isinstance(message, bytes):
            onward.append(message)
            continue
        log.error("%s: %s", source.name, message.reason)
        seen = jsonrpc.glimpse(message.start, message.end)
        if seen.id is not UNSET and (seen.answer or seen.method):
            refusal = jsonrpc.error(seen.id, ErrorObject(jsonrpc.INVALID_REQUEST, message.reason))
            (onward if seen.answer else back).append(refusal)
    try:
        await sink.send(onward)
    except InterlinguaError:
        return False
    if back:
        with contextlib.suppress(InterlinguaError):
            await source.send(back)
    return True
