"""`interlingua serve`: the gateway on a port, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import uvicorn

from gateway import tracing
from gateway.app import App
from gateway.cli import loop
from gateway.cli.banner import banner
from gateway.cli.codes import OK, USAGE, leave
from gateway.cli.files import read
from gateway.config import Config, ConfigError, Mistake, load
from gateway.core.errors import InterlinguaError
from gateway.registry import OPERATOR, BrokenAdapter
from gateway.tracing import metrics
from gateway.transport.websocket import HARD_LIMIT, PING_INTERVAL, PING_TIMEOUT

log = logging.getLogger("interlingua")

BACKLOG = 2048
DEBOUNCE_MS, STEP_MS = 200, 50
"""Several writes in a row are one change."""
GONE_SECONDS = 0.2
KUBERNETES_DATA = "..data"
"""What a mounted ConfigMap swaps when it changes, instead of the file."""


def serve(path: Path, host: str, port: int, *, watch: bool = True) -> int:
    """Serve until SIGINT or SIGTERM. Leaves with USAGE if the file is wrong or the port is taken."""
    config = read(path)
    listener = _listen(host, port)
    with contextlib.closing(listener):
        try:
            loop.run(_Gateway(path, config, listener, host).serve(watch))
            return OK
        except InterlinguaError as error:
            leave(USAGE, f"the gateway cannot start: {error}" + (f" ({error.detail})" if error.detail else ""))


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Leaves with USAGE and one line if there is none to be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        return listener
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        leave(USAGE, f"cannot listen on {host}:{port}: {reason[0].lower()}{reason[1:]}")


def _address(listener: socket.socket, host: str) -> str:
    """The URL of the listener for links; empty where it listens on every address and nobody knows which is ours."""
    if host in ("", "0.0.0.0", "::"):
        return ""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would end the process by the signal once it has stopped, before we have."""

    def __init__(self, config: uvicorn.Config, up: Callable[[], None]) -> None:
        super().__init__(config)
        self._up = up

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See the class."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say so once clients are served."""
        await super().startup(sockets)
        if self.started:
            self._up()


class _Gateway:
    """One serving: the application, its server, and the reloading of its route table."""

    def __init__(self, path: Path, config: Config, listener: socket.socket, host: str) -> None:
        self._path = path
        self._config = config
        self._listener = listener
        self._host = host
        self._app = App(config, address=_address(listener, host))
        self._loaded = _digest(path)
        self._busy = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, watch: bool) -> None:
        tracing.configure(self._config.telemetry)
        server = _Server(
            uvicorn.Config(
                self._app.asgi,
                lifespan="off",
                http="httptools",
                ws="gateway.transport.websocket.uvicorn:MessageProtocol",
                ws_max_size=HARD_LIMIT,
                ws_ping_interval=PING_INTERVAL,
                ws_ping_timeout=PING_TIMEOUT,
                ws_per_message_deflate=False,
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(self._config.limits.shutdown),
            ),
            self._announce,
        )
        self._on_signals(server)
        await self._app.start()
        try:
            if watch:
                self._keep(self._watch())
            await server.serve(sockets=[self._listener])
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._app.stop()
            await asyncio.to_thread(tracing.shutdown)
            log.info("stopped")

    def _on_signals(self, server: uvicorn.Server) -> None:
        running = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                running.add_signal_handler(number, self._end, server, number)
            running.add_signal_handler(signal.SIGHUP, lambda: self._keep(self._reload("SIGHUP")))

    def _end(self, server: uvicorn.Server, number: int) -> None:
        """Runs stay as they are: the next start takes them up. Open requests may finish, for a while."""
        self._app.quiet()
        server.handle_exit(number, None)

    def _announce(self) -> None:
        loop.settled()
        port, agents = self._listener.getsockname()[1], self._app.gateway.names(OPERATOR)
        print(banner(self._config, self._path, self._host, port, agents), flush=True)

    def _keep(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- reload --------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        try:
            async for _ in _changes(self._path):
                if (now := _digest(self._path)) not in (None, self._loaded):
                    await self._reload(f"{self._path} has changed", now)
        except Exception as error:  # no watching here: no more descriptors, a file system that cannot
            log.warning("%s is not watched for changes (%s); send SIGHUP instead", self._path, error)

    async def _reload(self, why: str, digest: bytes | None = None) -> None:
        """Take the file as it is now. A bad one is refused, its mistakes are logged, and the old table stays."""
        async with self._busy:
            self._loaded = digest or _digest(self._path)
            try:
                config = await asyncio.to_thread(_reread, self._path)
                await self._app.reload(config)
            except (ConfigError, BrokenAdapter, InterlinguaError) as error:
                metrics.reloads.add(1, "refused")
                log.error("%s; the file is refused and the old routes stay:", why)
                for line in str(error).splitlines():
                    log.error("%s", line)
            else:
                metrics.reloads.add(1, "taken")
                log.info("%s; routes reloaded: %s", why, ", ".join(route.name for route in config.routes) or "none")


def _reread(path: Path) -> Config:
    """The config of a file that may be half written: an empty one is refused here, though not at start-up."""
    config = load(path)
    if not path.read_bytes().strip():
        raise ConfigError([Mistake(str(path), 0, "", "the file is empty")])
    return config


def _digest(path: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).digest()
    return None


def _changes(path: Path) -> AsyncIterator[object]:
    """Yields whenever the file may have changed: written, replaced, or swapped as a mounted ConfigMap is.

    The folder is watched only where the file is a link in it. Else the file alone is: the store usually lies beside it,
    and each of its writes would wake us.
    """
    path = path.absolute()
    return _link_changes(path) if path.is_symlink() else _file_changes(path)


def _link_changes(path: Path) -> AsyncIterator[object]:
    from watchfiles import awatch

    names = {path.name, path.resolve().name, KUBERNETES_DATA}
    return awatch(
        *{path.parent, path.resolve().parent},
        watch_filter=lambda _, changed: Path(changed).name in names,
        recursive=False,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
    )


async def _file_changes(path: Path) -> AsyncIterator[object]:
    from watchfiles import awatch

    while True:  # a file that was replaced is another one: it is watched anew
        yield None
        try:
            changes = awatch(path, watch_filter=None, recursive=False, debounce=DEBOUNCE_MS, step=STEP_MS)
            async with contextlib.aclosing(changes):
                await anext(changes)
        except (FileNotFoundError, StopAsyncIteration):
            await asyncio.sleep(GONE_SECONDS)  # between two files
