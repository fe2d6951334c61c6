"""What an idle WebSocket takes of a server's memory: `python -m bench.idle [--connections N]`.

Beside the gateway stand servers that do nothing, each a process of its own on the gateway's event loop: *tcp* takes
connections and says nothing, *websockets* is that library's server, *uvicorn* an application that has accepted and
waits. They are the floor. *gateway* is a connection to the gateway, *session* one with a session of an editor.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench import growth
from bench.stage import Broken, Child, Stage, free_port, run

FLOORS = ("tcp", "websockets", "uvicorn")
WARM = 20
UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: YmVuY2gtYmVuY2gtYmVuYw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


async def serve(kind: str, port: int) -> None:
    """One of FLOORS, until it is ended."""
    if kind == "tcp":
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", port)
        await server.serve_forever()
    elif kind == "websockets":
        from websockets.asyncio.server import serve as served

        async with served(lambda connection: connection.wait_closed(), "127.0.0.1", port, compression=None) as server:
            await server.serve_forever()
    else:
        import uvicorn

        options: dict[str, Any] = {"ws": "websockets-sansio", "ws_per_message_deflate": False, "log_level": "error"}
        await uvicorn.Server(uvicorn.Config(accepting, port=port, lifespan="off", **options)).serve()


async def accepting(scope: Any, receive: Any, send: Any) -> None:
    """The application of *uvicorn*."""
    await receive()
    await send({"type": "websocket.accept"})
    await receive()


def opened(port: int, path: str, count: int) -> list[socket.socket]:
    """So many connections; upgraded, if there is a path."""
    sockets = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", port), timeout=30)
        sockets.append(client)
        if path:
            client.sendall(UPGRADE.format(path=path).encode())
            if b" 101 " not in client.recv(4096):
                raise Broken(f"port {port} does not upgrade {path}")
    return sockets


def each(child: Child, count: int, hold: Callable[[int], contextlib.AbstractContextManager[object]]) -> float:
    """KB that one of so many takes, which `hold` opens and keeps for its block."""
    with hold(WARM):
        child.at_rest()
    before = child.rss()
    with hold(count):
        child.at_rest()
        return (child.rss() - before) / count / 1e3


@contextlib.contextmanager
def connections(port: int, path: str, count: int) -> Iterator[None]:
    """They are open in the block."""
    sockets = opened(port, path, count)
    try:
        yield
    finally:
        for client in sockets:
            client.close()


@contextlib.contextmanager
def sessions(stage: Stage, url: str, count: int) -> Iterator[None]:
    """Editors are there in the block, each with a WebSocket and a session of its own."""
    stage.do(kind="occupy", place={"url": url}, sessions=count)
    try:
        yield
    finally:
        stage.do(kind="vacate")


def measure(count: int) -> dict[str, float]:
    """KB each, by name. Raises Broken."""
    found: dict[str, float] = {}
    with Stage(()) as stage:
        for kind in FLOORS:
            port = free_port()
            child = stage.start(kind, ["-m", "bench.idle", "--serve", kind, str(port)])
            child.until_listens(port)
            found[kind] = each(child, count, partial(connections, port, "" if kind == "tcp" else "/"))
        with stage.gateway(table=growth.table_of(stage)) as gateway:
            path = "/agent-client/editor"
            found["gateway"] = each(gateway.child, count, partial(connections, gateway.port, path))
        with stage.gateway(table=growth.table_of(stage)) as gateway:
            found["session"] = each(
                gateway.child, count, partial(sessions, stage, f"ws://127.0.0.1:{gateway.port}{path}")
            )
    return found


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--connections", type=int, default=900, metavar="N", help="how many of each")
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.serve:
        run(serve(options.serve[0], int(options.serve[1])))
        return 0
    try:
        for name, kilobytes in measure(options.connections).items():
            print(f"{name:>10}: {kilobytes:.1f} KB", flush=True)
    except Broken as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return 0


if __name__ == "__main__":
    sys.exit(main())
