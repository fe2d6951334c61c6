"""Streamable HTTP's client end: each message a POST, of which there may be many at once.

Not for anything else, as rpc/wires.py, where the other wires are.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from bench.http import ClientConnection, Failed
from bench.rpc import wires
from bench.rpc.wires import Lost, Take, Wire

SESSION = b"mcp-session-id"
ACCEPT = b"accept: application/json, text/event-stream\r\n"
_DATA = b"data: "


class Post(ClientConnection):
    """A kept connection that notes of which session an answer is."""

    session = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == SESSION:
            self.session = value


class Events:
    """Messages out of one answer: a stream of events, or one message."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """A piece of the body."""
        *events, self._rest = (self._rest + piece if self._rest else piece).split(b"\n\n")
        messages = []
        for event in events:
            at = event.find(_DATA)
            if at >= 0 and len(event) > at + len(_DATA):
                messages.append(event[at + len(_DATA) :])
        if messages:
            self._take(messages)

    def close(self) -> None:
        """The body is over."""
        if self._rest.startswith(b"{"):
            self._take([self._rest])


class Streamable:
    """See `Wire`."""

    def __init__(self, url: str, take: Take, lost: Lost) -> None:
        self.pid: int | None = None
        self._parts = urlsplit(url)
        self._take = take
        self._lost = lost
        self._session = b""
        self._free: list[Post] = []
        self._all: set[Post] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, message: bytes) -> None:
        task = asyncio.ensure_future(self._post(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _post(self, message: bytes) -> None:
        try:
            await self._request("POST", message)
        except (Failed, OSError) as error:
            self._lost(f"a POST of {message[:200]!r}: {error}")

    async def _request(self, method: str, message: bytes = b"") -> None:
        post = await self._connected()
        headers = ACCEPT + (SESSION + b": " + self._session + b"\r\n" if self._session else b"")
        events = Events(self._take)
        await post.request(method, self._parts.path, message, events.feed, headers)
        self._session = self._session or post.session
        events.close()
        self._free.append(post)

    async def _connected(self) -> Post:
        while self._free:
            post = self._free.pop()
            if post.fresh:
                return post
            self._all.discard(post)
        assert self._parts.hostname is not None and self._parts.port is not None
        _, post = await asyncio.get_running_loop().create_connection(Post, self._parts.hostname, self._parts.port)
        self._all.add(post)
        return post

    async def close(self) -> None:
        self._lost = lambda why: None
        if self._session:
            await self._request("DELETE")
        for post in self._all:
            post.close()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def connect(place: dict[str, Any], take: Take, lost: Lost) -> Wire:
    """As agent_client's, and `{"url": http://...}`. Raises Failed."""
    if str(place.get("url")).startswith("http:"):
        return Streamable(place["url"], take, lost)
    return await wires.connect(place, take, lost)
