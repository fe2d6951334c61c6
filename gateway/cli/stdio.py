"""`interlingua stdio`: acts as an agent on standard input and output, over a route table or a running gateway."""

from __future__ import annotations

import asyncio
import logging
import os
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway import registry
from gateway.cli import loop
from gateway.cli.codes import FAILED, OK, USAGE, chosen, leave, read
from gateway.cli.pipe_bridge import PipeBridge
from gateway.contract import Adapter
from gateway.core.errors import InterlinguaError
from gateway.transport.guard import local
from gateway.transport.pipe import LIMIT
from gateway.transport.stdio.own_stdio import OwnPipe

if TYPE_CHECKING:
    from gateway.config import Config

log = logging.getLogger("interlingua")

TOKEN_VARIABLE = "INTERLINGUA_TOKEN"


def serve_stdio(
    agent: str | None, protocol: str | None, routes: Path | None, gateway: str | None, token_file: Path | None
) -> int:
    """Serve until standard input ends. Exits with USAGE for a wrong file, agent or protocol."""
    table = chosen(routes, gateway)
    if table is None:
        assert gateway is not None
        work = _remote(_adapter(registry.scan(), protocol), agent, gateway.rstrip("/"), token(gateway, token_file))
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


def token(gateway: str, file: Path | None) -> str | None:
    """The user's token for the gateway, if any. Warns if it would be sent in clear text.

    Exits with USAGE for a file without a token.
    """
    found = _token(file)
    address = urlsplit(gateway)
    if found and address.scheme in ("http", "ws") and not local(address.hostname or ""):
        log.warning("the token goes to %s unencrypted: use https", gateway)
    return found


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip() or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        leave(USAGE, f"--token-file: {file}: {getattr(error, 'strerror', None) or 'not UTF-8'}")
    if not token:
        leave(USAGE, f"--token-file: {file} is empty")
    return token


async def _local(config: Config, adapter: Adapter, agent: str | None) -> int:
    """Serve the agents of a route table in this process, with its store, so that sessions are there the next time."""
    from gateway import tracing
    from gateway.app import App

    pipe = OwnPipe(LIMIT)
    app = App(config)
    tracing.configure(config.telemetry)
    try:
        await app.start()
    except InterlinguaError as error:
        leave(USAGE, f"the gateway cannot start: {error}" + (f" ({error.detail})" if error.detail else ""))
    try:
        names = app.gateway.agents.names(adapter.name)
        if agent is not None and agent not in names:
            leave(USAGE, f"no agent '{agent}' for {adapter.name}; have {', '.join(names) or 'none'}")
        loop.settled()
        conversing = await app.conversing(adapter.name)
        await conversing.converse(pipe, agent)
    finally:
        await app.stop()
        await asyncio.to_thread(tracing.shutdown)
    return OK


async def _remote(adapter: Adapter, agent: str | None, gateway: str, token: str | None) -> int:
    """Connect to a running gateway: every line is a message of its WebSocket, and vice versa."""
    from gateway.transport.websocket import UpgradeRefused, connect

    assert adapter.socket is not None
    scheme, _, rest = gateway.partition("://")
    below = adapter.socket.replace("/{agent}", f"/{agent}" if agent else "")
    url = f"{scheme.replace('http', 'ws')}://{rest}{adapter.path}{below}"
    own = OwnPipe(LIMIT)
    try:
        far = await connect(url, headers={"Authorization": f"Bearer {token}"} if token else None, limit=LIMIT)
    except InterlinguaError as error:
        unknown = isinstance(error, UpgradeRefused) and error.status == HTTPStatus.NOT_FOUND
        leave(USAGE if unknown else FAILED, f"{gateway}: {error}")
    try:
        if await PipeBridge(own, far).run():
            return OK
        log.error("%s has closed the connection", gateway)
        return FAILED
    finally:
        await far.aclose()
        await own.aclose()
