"""The sockets that `serve` listens on."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Sequence

from gateway.cli.codes import USAGE, leave

BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Leaves with USAGE and one line if there is none to be had."""
    return _opened(host, port, 1, shared=False)[0]


def listen_often(host: str, port: int, count: int) -> Sequence[socket.socket]:
    """Several on one port, among which the system spreads connections; elsewhere the same socket several times.

    Leaves with USAGE as `listen` does, also where the port's other listener would share it.
    """
    with contextlib.closing(listen(host, port)) as alone:
        if not sys.platform.startswith("linux"):
            return [alone.dup() for _ in range(count)]
        port = alone.getsockname()[1]
    return _opened(host, port, count, shared=True)


def _opened(host: str, port: int, count: int, *, shared: bool) -> Sequence[socket.socket]:
    with contextlib.ExitStack() as opened:
        try:
            name = host.encode() if host.isascii() else host  # a string loads the tables of international names
            places = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = places[0]
            found = [opened.enter_context(socket.socket(family, socket.SOCK_STREAM)) for _ in range(count)]
            for listener in found:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if shared:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                listener.bind(address)
                listener.listen(BACKLOG)
                listener.setblocking(False)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            leave(USAGE, f"cannot listen on {host}:{port}: {reason[0].lower()}{reason[1:]}")
        opened.pop_all()
        return found
