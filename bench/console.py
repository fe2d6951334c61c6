"""What open consoles cost a busy gateway: `python -m bench.console [--consoles N...] [--chunks N] [--runs N]`.

The gateway is a process of its own with its store in a file. Runs of an editor's agent flood it with chunks, one run
after the other, while so many consoles are open, each as the page at `/ui` is: it follows the run's events, asks for
the list of runs every two seconds, and reads what it gets; or it sleeps, as a tab in the background of a laptop may,
and reads nothing. *Heap* is what the gateway had written itself at most meanwhile, and then at rest (bench/memory.py);
*first view* how long `/admin` takes to answer what the page of the ended run asks before it shows something.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from bench.memory import heap
from bench.stage import Broken, Gateway, Stage

CONSOLES = (0, 20)
CHUNKS = 100_000
RUNS = 3
REFRESH = 2.0
LOOK = 0.02
LITTLE = 4096
"""Bytes that the system takes for a console that sleeps."""


class Figures(msgspec.Struct):
    """What was measured with so many consoles. Times in seconds, memory in bytes."""

    consoles: int
    asleep: bool
    processor: float | None
    most: int | None = None
    after: int | None = None
    first: float = 0.0
    read: int = 0
    """Bytes that the consoles have read of their streams."""


class Browser:
    """Open consoles of one gateway."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.read = 0

    async def ask(self, path: str, body: Any = None) -> Any:
        """A request on a connection of its own. Returns the JSON of the answer. Raises Broken."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(self._request(path, body, "connection: close\r\n"))
            head, _, said = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise Broken(f"{path}: {head.decode(errors='replace')}")
        return msgspec.json.decode(said)

    def _request(self, path: str, body: Any, headers: str) -> bytes:
        content = b"" if body is None else msgspec.json.encode(body)
        kind = f"content-type: application/json\r\ncontent-length: {len(content)}\r\n" if content else ""
        method = "POST" if content else "GET"
        return f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{kind}{headers}\r\n".encode() + content

    async def followed(self, run: str) -> None:
        """One console that reads the run's events to their end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(
            self._request(f"/admin/runs/{run}/events", None, "accept: text/event-stream\r\nconnection: close\r\n")
        )
        listing = asyncio.create_task(self._list())
        try:
            while piece := await reader.read(1 << 16):
                self.read += len(piece)
        finally:
            listing.cancel()
            writer.close()

    async def _list(self) -> None:
        while True:
            await self.ask("/admin/runs?limit=50")
            await asyncio.sleep(REFRESH)

    def sleeping(self, run: str) -> socket.socket:
        """One console that asks for the run's events and reads nothing."""
        asleep = socket.socket()
        asleep.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE)
        asleep.connect(("127.0.0.1", self._port))
        asleep.sendall(self._request(f"/admin/runs/{run}/events", None, "accept: text/event-stream\r\n"))
        return asleep


async def flooded(gateway: Gateway, consoles: int, chunks: int, runs: int, *, asleep: bool) -> Figures:
    """The figures of some runs. Raises Broken."""
    browser = Browser(gateway.port)
    before = gateway.child.cpu()
    most = 0
    run = ""
    for _ in range(runs):
        prompt = msgspec.json.encode({"chunks": chunks, "burst": 500}).decode()
        run = (await browser.ask("/agent-connect/runs", {"agent_id": "editor", "input": {"message": prompt}}))["run_id"]
        async with _open(browser, run, consoles, asleep=asleep):
            while (await browser.ask(f"/admin/runs/{run}"))["status"] in ("pending", "running"):
                most = max(most, heap(gateway.child) or 0)
                await asyncio.sleep(LOOK)
            most = max(most, heap(gateway.child) or 0)
    after = gateway.child.cpu()
    took = None if before is None or after is None else (after - before) / (runs * chunks)
    found = Figures(consoles, asleep, took, most or None, read=browser.read)
    began = time.perf_counter()
    await browser.ask(f"/admin/runs/{run}")
    page = await browser.ask(f"/admin/runs/{run}/events?after=0")
    found.first = time.perf_counter() - began
    if not page["events"]:
        raise Broken(f"the run {run} has no events")
    return found


@contextlib.asynccontextmanager
async def _open(browser: Browser, run: str, consoles: int, *, asleep: bool) -> AsyncIterator[None]:
    """Open consoles of a run. Those that read have read it to its end when the block is left."""
    if asleep:
        with contextlib.ExitStack() as stack:
            for _ in range(consoles):
                stack.enter_context(browser.sleeping(run))
            yield
    else:
        async with asyncio.TaskGroup() as group:
            for _ in range(consoles):
                group.create_task(browser.followed(run))
            yield


def measure(consoles: Sequence[int], chunks: int, runs: int) -> list[Figures]:
    """The figures with so many consoles, reading and asleep. Raises Broken."""
    found = []
    with Stage(()) as stage, stage.gateway(editors=True) as gateway:
        asyncio.run(flooded(gateway, 0, chunks, 1, asleep=False))  # what only the first run needs
        for count in consoles:
            for asleep in (False, True) if count else (False,):
                figures = asyncio.run(flooded(gateway, count, chunks, runs, asleep=asleep))
                gateway.child.at_rest()
                figures.after = heap(gateway.child)
                found.append(figures)
                print(_line(figures), flush=True)
    return found


def _line(figures: Figures) -> str:
    what = "asleep" if figures.asleep else "open"
    processor = "-" if figures.processor is None else f"{figures.processor * 1e6:.1f}"
    most, after = ("-" if size is None else f"{size / 1e6:.1f}" for size in (figures.most, figures.after))
    return (
        f"{figures.consoles:>4} consoles {what:<6} processor us a chunk {processor:>6}, heap MB {most:>6} at most,"
        f" {after:>6} at rest; read {figures.read / 1e6:.1f} MB; first view {figures.first * 1e3:.0f} ms"
    )


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--consoles", type=int, nargs="+", default=CONSOLES, metavar="N", help="how many are open")
    parser.add_argument("--chunks", type=int, default=CHUNKS, metavar="N", help="of each run")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help="one after the other")
    options = parser.parse_args(argv)
    try:
        measure(options.consoles, options.chunks, options.runs)
    except Broken as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
