"""The page at `/`: what is served here, and a call of each protocol to copy. HTML for a browser, else JSON."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from html import escape
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from gateway.contract import Adapter
from gateway.health import VisibleAgents

PROMPT = "Hello"
PAGES = ("/ui/", "/readyz", "/healthz", "/metrics")


class Door(msgspec.Struct, frozen=True):
    """A protocol that is served here."""

    protocol: str
    title: str
    url: str
    call: str = ""
    """A shell line that calls an agent; empty where the client may know none."""


class FrontPage:
    """The page at `/`."""

    def __init__(
        self,
        doors: Mapping[str, tuple[Adapter, str]],
        agents: Callable[[str], Sequence[str]],
        visible: VisibleAgents,
        public_url: str,
    ) -> None:
        """doors: adapter and mount path by protocol. agents: the names that are there for a protocol's clients."""
        self._doors = doors
        self._agents = agents
        self._visible = visible
        self._public_url = public_url

    def route(self) -> Route:
        return Route("/", self._answer)

    async def _answer(self, request: Request) -> Response:
        sees = self._visible.to(request) or _nothing
        here = str(request.base_url).rstrip("/")
        if request.base_url.netloc == urlsplit(self._public_url).netloc:  # where a proxy ends TLS, we do not see it
            here = self._public_url
        served = {name: [agent for agent in self._agents(name) if sees(agent)] for name in self._doors}
        doors = [self._door(name, here, agents) for name, agents in served.items()]
        agents = list(dict.fromkeys(agent for names in served.values() for agent in names))
        pages = [request.base_url.path.rstrip("/") + page for page in PAGES]
        headers = {"vary": "Accept", "cache-control": "no-store"}
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(_html(doors, agents, pages), headers=headers | _GUARDED)
        found = {"name": "interlingua", "agents": agents, "protocols": msgspec.to_builtins(doors), "pages": pages}
        return JSONResponse(found, headers=headers)

    def _door(self, name: str, here: str, agents: Sequence[str]) -> Door:
        adapter, path = self._doors[name]
        call = ""
        if agents and adapter.example:
            call = adapter.call_line(here, path, agents[0], document={"message": PROMPT}, prompt=PROMPT)
        return Door(name, adapter.title, f"{here}{path}", call)


def _nothing(agent: str) -> bool:
    """The view of an unknown client."""
    return False


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 3rem auto; padding: 0 1rem }
h2 { font-size: 1.1rem; margin: 2rem 0 0 }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8886; border-radius: .4rem; font-size: .85rem }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_GUARDED = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def _html(doors: Sequence[Door], agents: Sequence[str], pages: Sequence[str]) -> str:
    """The page. Names of agents are text of others: all of it is escaped."""
    named = ", ".join(map(escape, agents)) or "none that you may see"
    sections = "".join(
        f"<h2>{escape(door.title)}</h2>\n<p><code>{escape(door.url)}</code></p>\n"
        + (f"<pre><code>{escape(door.call)}</code></pre>\n" if door.call else "")
        for door in doors
    )
    links = " ".join(f'<a href="{page}">{page}</a>' for page in map(escape, pages))
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Interlingua</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>Interlingua</h1>\n"
        f"<p>Agents: {named}</p>\n{sections}<p>{links}</p>\n</body>\n</html>\n"
    )
