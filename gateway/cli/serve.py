"""`interlingua serve`: the gateway on a port, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from msgspec.structs import replace

from gateway import tracing
from gateway.app import App
from gateway.cli import loop
from gateway.cli.banner import banner
from gateway.cli.codes import FAILED, OK, USAGE, leave, read, without
from gateway.cli.file_changes import changes, digest
from gateway.cli.listening import BACKLOG, Certificate, listen
from gateway.config import Config, DocumentError, Mistake, load
from gateway.config.exposure import alone, cautions, exposed, warnings
from gateway.contract import unguessable
from gateway.core.errors import InterlinguaError, Invalid, Unavailable
from gateway.registry import OPERATOR, BrokenAdapter
from gateway.tracing import metrics
from gateway.transport.guard import local
from gateway.transport.tasks import TaskSet
from gateway.transport.websocket import HARD_LIMIT, PING_INTERVAL, PING_TIMEOUT

if TYPE_CHECKING:
    from gateway.workers.link import WorkerLink
    from gateway.workers.session_router import SessionRouter

log = logging.getLogger("interlingua")

LEAVE_SECONDS = 0.3
"""How long a worker that is to stop serves as before, when it accepts no more: a connection that it has just accepted
has its request under way.
"""


def serve(
    path: Path,
    host: str,
    port: int,
    *,
    tls: Certificate | None = None,
    watch: bool = True,
    greet: bool = True,
    link: WorkerLink | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM, over TLS if there is a certificate. Leaves with USAGE if the file is wrong or the
    port is taken.

    `greet`: print the banner once it is up; else that is one more line of the log. `link`: this is one of several
    workers, whose supervisor listens, and greets.
    """
    whole = read(path)
    config = _of_worker(whole, link)
    listener = link.listener if link is not None else listen(host, port)
    with contextlib.closing(listener):
        if _shared(listener):
            without(exposed(config))
        if link is not None:
            without(alone(config))
        warned: tuple[Mistake, ...] = ()
        if link is None or link.number == 1:  # one says it for all
            workers = 1 if link is None else link.workers
            warned = warnings(whole, shared=_shared(listener), tls=tls is not None, workers=workers)
            for caution in warned:
                log.warning("%s", caution)
        gateway: _Gateway | None = None
        try:
            gateway = _Gateway(path, config, listener, host, tls=tls, greet=greet, link=link, warned=warned)
            loop.run(gateway.serve(watch), signals=False)
            return OK
        except InterlinguaError as error:
            why = f"{error}" + (f" ({error.detail})" if error.detail else "")
            if gateway is not None and gateway.started:
                leave(FAILED, f"the gateway has stopped, and not all that happened is stored: {why}")
            leave(USAGE, f"the gateway cannot start: {why}")


def _shared(listener: socket.socket) -> bool:
    """Whether others than this machine reach it."""
    return not local(str(listener.getsockname()[0]))


def _address(listener: socket.socket, host: str, tls: Certificate | None) -> str:
    """The URL of the listener for links; empty where it listens on every address and nobody knows which is ours."""
    if host in ("", "0.0.0.0", "::"):
        return ""
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{listener.getsockname()[1]}"


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would end the process by the signal once it has stopped, before we have."""

    def __init__(self, config: uvicorn.Config, up: Callable[[], None]) -> None:
        super().__init__(config)
        self._up = up
        self._inside: tuple[str, Callable[..., asyncio.Protocol]] | None = None
        self._heard: asyncio.Server | None = None
        self._covers: dict[int, asyncio.Server] = {}

    def hear(self, path: str, make: Callable[..., asyncio.Protocol]) -> None:
        """Hear other workers, too, at a Unix socket. make: the protocol of a connection, of what uvicorn gives its own.

        Called before the start.
        """
        self._inside = path, make

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say so once clients are served. Raises Unavailable."""
        if self._inside is not None:
            path, make = self._inside
            running = asyncio.get_running_loop()
            try:
                self._heard = await running.create_unix_server(self._making(make), path, backlog=BACKLOG)
            except OSError as error:
                raise Unavailable(f"workers cannot reach each other at {path}: {error}") from None
        await super().startup(sockets)
        if self.started:
            self._up()

    async def cover(self, place: int, listener: socket.socket) -> None:
        """Accept from the listening socket of another place, too, until `uncover`."""

        make: Any = self.config.http_protocol_class
        running = asyncio.get_running_loop()
        self._covers[place] = await running.create_server(
            self._making(make), sock=listener, ssl=self.config.ssl, backlog=BACKLOG
        )
        self.servers.append(self._covers[place])

    def _making(self, make: Callable[..., asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        return partial(make, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def accept_no_more(self) -> None:
        """Leave new connections to others. Those that are open are served as before."""
        for server in self.servers:
            server.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Hear nobody any more, then let go of everybody."""
        if self._heard is not None:
            self._heard.close()
        await super().shutdown(sockets)

    def uncover(self, place: int) -> None:
        """Accept from that place's listening socket no more."""
        if (server := self._covers.pop(place, None)) is not None:
            server.close()
            self.servers.remove(server)


class _Gateway:
    """One serving: the application, its server, and the reloading of its route table."""

    def __init__(
        self,
        path: Path,
        config: Config,
        listener: socket.socket,
        host: str,
        *,
        tls: Certificate | None,
        greet: bool,
        link: WorkerLink | None = None,
        warned: Iterable[Mistake] = (),
    ) -> None:
        """warned: what was warned of before."""
        self._greet = greet
        self._link = link
        self._leaving = False
        self._tls = tls
        self._path = path
        self._config = config
        self._listener = listener
        self._host = host
        self._app = App(
            config,
            address=_address(listener, host, tls),
            private=not _shared(listener),
            reread=self._reread_by_all,
            gather=link.gather if link is not None else None,
            new_id=unguessable if link is None else link.new_id,
        )
        self._router: SessionRouter | None = None
        if link is not None:
            from gateway.workers.session_router import SessionRouter

            self._router = SessionRouter(self._app.asgi, self._app.refusal, link)
        self.started = False
        self._files = (path, *config.documents)
        self._loaded = digest(self._files)
        self._warned = {_regardless_of_line(caution) for caution in warned}
        self._busy = asyncio.Lock()
        self._tasks = TaskSet(_told)

    async def serve(self, watch: bool) -> None:
        tracing.configure(self._config.telemetry, worker=self._link.number if self._link is not None else None)
        try:
            await self._serve(watch)
        finally:
            await asyncio.to_thread(tracing.shutdown)

    async def _serve(self, watch: bool) -> None:
        metrics.routes_current.set(1)
        tls = self._tls
        from gateway.transport.asgi.uvicorn import HandedProtocol, behind_proxies

        server = _Server(
            uvicorn.Config(
                behind_proxies(self._router or self._app.asgi),
                interface="asgi3",
                proxy_headers=False,
                lifespan="off",
                http="gateway.transport.asgi.uvicorn:PieceProtocol",
                ws=_upgraded,  # type: ignore[arg-type] # uvicorn only calls it
                ws_max_size=HARD_LIMIT,
                ws_ping_interval=PING_INTERVAL,
                ws_ping_timeout=PING_TIMEOUT,
                ws_per_message_deflate=False,
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(self._config.limits.shutdown),
                ssl_context_factory=(lambda *_: tls.context) if tls else None,
                backlog=BACKLOG,
            ),
            lambda: self._announce(server),
        )
        if self._link is not None:
            server.hear(self._link.socket_of(self._link.number), partial(HandedProtocol, self._app.asgi))
        self._on_signals(server)
        await self._app.start()
        try:
            if watch:
                self._tasks.start(self._watch(str(self._path), lambda: self._files, lambda: self._loaded, self._reload))
            if watch and tls:
                self._tasks.start(self._watch(str(tls.files[0]), lambda: tls.files, lambda: tls.loaded, self._renew))
            await server.serve(sockets=[self._listener])
        finally:
            if self._router is not None:
                self._router.close()
            self._tasks.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            try:
                await self._app.stop()
            finally:
                if self._link is not None:
                    await self._link.leave(self._app.report())
            log.info("stopped")

    def _on_signals(self, server: _Server) -> None:
        running = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError):
            for number in (signal.SIGINT, signal.SIGTERM):
                running.add_signal_handler(number, self._leave, server, number)
            running.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _leave(self, server: _Server, number: int) -> None:
        """One of several workers first answers what it has accepted already: the others take all that is new."""
        if self._link is None or not server.started or self._leaving:
            if self._leaving and not server.should_exit:  # the second signal
                self._end(server, signal.SIGTERM)
            self._end(server, number)
            return
        self._leaving = True
        server.accept_no_more()
        self._link.say(replace(self._app.report(), leaves=True))
        asyncio.get_running_loop().call_later(LEAVE_SECONDS, self._end, server, signal.SIGTERM)

    def _hang_up(self, why: str = "SIGHUP") -> None:
        self._tasks.start(self._reload(why))
        if self._tls:
            self._tasks.start(self._renew(why))

    def _end(self, server: uvicorn.Server, number: int) -> None:
        """Runs stay as they are: the next start takes them up. Open requests may finish, for a while."""
        self._app.quiet()
        if self._router is not None:
            self._router.quiet()
        if not server.should_exit:
            logging.getLogger("uvicorn.error").addFilter(_of_the_stop)
            if waiting := len(server.server_state.tasks):
                seconds = self._config.limits.shutdown
                log.info("stopping; open requests may go on for %g s: %d (Ctrl-C ends them now)", seconds, waiting)
        server.handle_exit(number, None)

    def _announce(self, server: _Server) -> None:
        self.started = True
        loop.settled()
        self._app.warm()
        port, agents = self._listener.getsockname()[1], self._app.gateway.agents.names(OPERATOR)
        line = f"up at {self._host}:{port}; routes: {', '.join(agents) or 'none'}"
        if self._greet:
            line = banner(self._config, self._path, self._host, port, agents, secure=self._tls is not None)
        if self._link is not None:
            self._tasks.start(self._work(self._link, server, line))
        elif self._greet:
            print(line, flush=True)
        else:
            log.info("%s", line)
        if self._tls:
            log.info("TLS with the certificate %s", self._tls)

    # --- one of several workers ------------------------------------------------------------------------------------

    async def _work(self, link: WorkerLink, server: _Server, greeting: str) -> None:
        """Do as the supervisor says. Without it this worker stops."""
        from gateway.workers.messages import (
            Adopt,
            AskWorker,
            Cover,
            Reload,
            ToWorker,
            Uncover,
            Up,
            report_seconds,
        )

        async def done(message: ToWorker) -> None:
            if isinstance(message, Reload):
                self._hang_up(message.why)
            elif isinstance(message, Cover):
                await server.cover(message.place, link.copy_of(message.place))
            elif isinstance(message, Uncover):
                server.uncover(message.place)
            elif isinstance(message, Adopt):
                self._tasks.start(self._app.gateway.adopt())
            elif isinstance(message, AskWorker):
                link.say(self._app.report())

        limits = self._config.limits
        self._tasks.start(self._report(link, report_seconds(limits.silence)))
        await link.follow(Up(greeting, limits.shutdown, limits.silence), done)
        self._end(server, signal.SIGTERM)

    async def _report(self, link: WorkerLink, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            link.say(self._app.report())

    async def _reread_by_all(self) -> str:
        """Reload here and at all other workers. What is wrong with the file is the same everywhere."""
        why = "an operator asks for it"
        if self._link is not None:
            self._link.tell_others(why)
        return await self._reload(why)

    # --- reload --------------------------------------------------------------------------------------------------

    async def _watch(
        self,
        name: str,
        files: Callable[[], Collection[Path]],
        loaded: Callable[[], bytes | None],
        reload: Callable[[str], Awaitable[object]],
    ) -> None:
        """Reload whenever the files say something else than what is `loaded`. The first of them is called `name`."""
        try:
            async for _ in changes(files):
                if digest(files()) not in (None, loaded()):
                    await reload(f"{name}{' or a file that goes with it' * (len(files()) > 1)} has changed")
        except Exception as error:  # no watching here: no more descriptors, a file system that cannot
            log.warning("%s is not watched for changes (%s); send SIGHUP instead", name, error)

    async def _renew(self, why: str) -> None:
        """Show new connections the certificate that the files hold now. A bad pair is refused and logged."""
        assert self._tls is not None
        async with self._busy:
            try:
                await asyncio.to_thread(self._tls.load)
            except Invalid as error:
                log.error("%s; the new certificate is refused and the old one stays: %s", why, error)
            else:
                log.info("%s; new connections get the certificate %s", why, self._tls)

    def _warn(self, found: Iterable[Mistake]) -> None:
        """Log what was not so before the reload."""
        now = {_regardless_of_line(caution): caution for caution in found}
        for known, caution in now.items():
            if known not in self._warned:
                log.warning("%s", caution)
        self._warned = set(now)

    async def _reload(self, why: str) -> str:
        """Load the file, and what governs its routes. A bad one is refused and its mistakes logged, and returned."""
        wrong = ""
        async with self._busy:
            before, self._loaded = self._files, digest(self._files)
            try:
                config = _of_worker(await asyncio.to_thread(_reread, self._path), self._link)
                self._files = (self._path, *config.documents)
                if (mistakes := exposed(config, self._config.inbound)) and _shared(self._listener):
                    raise DocumentError(mistakes)
                await self._app.reload(config)
            except (DocumentError, BrokenAdapter, InterlinguaError) as error:
                self._files = (*before, *_new_to_us(error, before))
                metrics.reloads.add(1, "refused")
                metrics.routes_current.set(0)
                log.error("%s; the file is refused and the old routes stay:", why)
                wrong = str(error)
                for line in wrong.splitlines():
                    log.error("%s", line)
            else:
                metrics.reloads.add(1, "taken")
                metrics.routes_current.set(1)
                log.info("%s; routes reloaded: %s", why, ", ".join(route.name for route in config.routes) or "none")
                if self._link is None or self._link.number == 1:
                    self._warn(cautions(config))
            if self._files != before:  # what they said when they were read is not known: what they say now is
                self._loaded = digest(self._files)
        return wrong


def _regardless_of_line(caution: Mistake) -> Mistake:
    return replace(caution, line=0, column=0)


def _upgraded(**given: Any) -> asyncio.Protocol:
    """The protocol of a connection that becomes a WebSocket. Its library is loaded at the first of them."""
    from gateway.transport.websocket.uvicorn import MessageProtocol

    return MessageProtocol(**given)


def _told(error: BaseException) -> None:
    """What a task ended with that nobody awaits."""
    log.error("%s", error, exc_info=None if isinstance(error, InterlinguaError) else error)


def _of_the_stop(record: logging.LogRecord) -> bool:
    """A log filter: uvicorn would log as errors the requests that it cancels when it stops."""
    if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
        return False
    if str(record.msg).startswith("Cancel "):
        log.info("open requests were ended: %s", *(record.args or ("some",)))
        return False
    return True


def _new_to_us(error: Exception, known: Collection[Path]) -> Collection[Path]:
    """Files with mistakes that are not watched yet: what is mended next may be one of them."""
    wrong = [Path(mistake.file).absolute() for mistake in getattr(error, "mistakes", ())]
    return dict.fromkeys(file for file in wrong if file not in {each.absolute() for each in known})


def _of_worker(config: Config, link: WorkerLink | None) -> Config:
    """The config, or the part of one of several workers in it."""
    return config if link is None else config.shared_out(link.place, link.workers)


def _reread(path: Path) -> Config:
    """The config of a file that may be half written: an empty one is refused here, though not at start-up."""
    config = load(path)
    if not path.read_bytes().strip():
        raise DocumentError([Mistake(str(path), 0, "", "the file is empty")])
    return config
