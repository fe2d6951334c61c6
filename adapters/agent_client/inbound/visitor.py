"""Identifies the client of one connection, as far as it has said, and gives it its view of the gateway.

A client is known by a token: in `Authorization` of the connection, or in `_meta.token` of `authenticate`. It owns the
sessions that it makes: to all others they do not exist. A client on standard input and output started the gateway, and
is not asked. Its sessions have no owner, nor have those that were made while clients were not asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from starlette.types import Scope

from adapters.agent_client.wire import JsonObject
from gateway.access import EXPIRED, Authenticator, Principal, Visit
from gateway.core.errors import Conflict, Denied, NotFound
from gateway.core.types import Thread

log = logging.getLogger(__name__)

LOCAL: Final = Authenticator(None)
"""The authenticator of clients that are not asked."""
METHOD: Final = "interlingua"
"""Id of the gateway's own among `authMethods`."""
OPEN: Final = frozenset({"initialize", "authenticate", "auth/login"})
"""Methods that anybody may call."""
TRIES: Final = 3
"""Wrong tokens after which a connection is ended."""
_ANNOUNCED: Final[JsonObject] = {
    "id": METHOD,
    "name": "Token",
    "description": "The token that the gateway knows you by, in `_meta.token`; or connect with Authorization: Bearer.",
}


class Visitor:
    """The client at the other end of one connection, as far as it is known.

    ended: why the connection must end, "" while it need not.
    """

    def __init__(self, people: Authenticator, principal: Principal | None = None) -> None:
        """`principal`: who the connection's own `Authorization` says it is."""
        self.ended = ""
        self.required = people.required
        self._people = people
        self._visit = None if principal is None else Visit(people, principal)
        self._by_header = principal is not None
        self._wrong = 0
        self._end: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- who it is --------------------------------------------------------------------------------------------

    @property
    def stranger(self) -> bool:
        return self.required and self.known is None

    @property
    def tools(self) -> tuple[str, ...] | None:
        """Patterns of the tools that agents may call for it, where rules decide; None where nobody asked who it is."""
        return None if self.known is None else self.known.tools

    @property
    def name(self) -> str | None:
        return None if (known := self.known) is None else known.who.id

    @property
    def known(self) -> Principal | None:
        """The client; None where clients are not asked, and for a stranger."""
        return None if self._visit is None or self._visit.expired else self._visit.principal

    # --- what is there for it ---------------------------------------------------------------------------------

    def check(self, method: str, agent: str | None) -> None:
        """Before a request: raises Denied for a stranger, NotFound where the agent of its connection is not there."""
        if not self.required or method in OPEN:
            return
        if self.stranger:
            raise Denied(f"authenticate first: with method {METHOD}, or Authorization: Bearer of the connection")
        if agent is not None and not self.may_use(agent):
            raise NotFound(f"no agent {agent}")

    def may_use(self, agent: str) -> bool:
        """Whether the agent is there for it. A stranger may see what any agent answers to `initialize`."""
        known = self.known
        return known is None or self._people.may_use(known, agent)

    def among(self, agents: Sequence[str]) -> list[str]:
        return [agent for agent in agents if self.may_use(agent)]

    def owns(self, thread: Thread) -> bool:
        """Whether the session is its own, or one that it oversees. Clients that are not asked own all unowned ones."""
        return self._people.owns(self.known, thread)

    def marks(self) -> JsonObject:
        return {} if (known := self.known) is None else known.marks

    # --- how that becomes known -------------------------------------------------------------------------------

    def announced(self, result: JsonObject) -> JsonObject:
        """The answer of `initialize` (version 1), with how to log in for who is not known by its connection."""
        if not self.required or self._by_header:
            return result
        methods = result.get("authMethods")
        others = [each for each in methods if not _ours(each)] if isinstance(methods, list) else []
        can = result.get("agentCapabilities") or {}
        auth = {**(can.get("auth") or {}), "logout": {}}
        return {**result, "authMethods": [_ANNOUNCED, *others], "agentCapabilities": {**can, "auth": auth}}

    def prove(self, token: str) -> None:
        """`authenticate`. The same client may do so again, with a token that lasts longer.

        Raises Denied, and after some of them has the connection ended; Conflict for another client's token.
        """
        if self.ended:
            raise Denied(self.ended)
        try:
            principal = self._people.principal(token)
        except Denied:
            self._wrong += 1
            if self._wrong >= TRIES:
                self._over("too many wrong tokens")
            raise
        if self._visit is not None and not self._visit.principal.same(principal):
            raise Conflict("this connection is another client's; log out first")
        self._wrong = 0
        self._become(Visit(self._people, principal))

    @property
    def proven(self) -> bool:
        """Whether it is known by `authenticate`: then it may log out."""
        return self._visit is not None and not self._by_header

    def forget(self) -> None:
        self._become(None)

    def _become(self, visit: Visit | None) -> None:
        if self._visit is not None:
            self._visit.leave()
        self._visit = visit
        self._watch()

    def fits(self, principal: Principal | None) -> bool:
        """Whether a request that shows this (None: no token) can be of this connection, which knows its own id.

        What it shows counts from then on: it may last longer.
        """
        if principal is None:
            return not self._by_header
        return self._visit is not None and self._visit.fits(principal)

    # --- until when -------------------------------------------------------------------------------------------

    def enter(self, end: Callable[[], None]) -> None:
        """The connection is served from now on: `end` it when `ended` says why."""
        self._end = end
        self._watch()

    def leave(self) -> None:
        """It is served no longer."""
        self._end = None
        if self._visit is not None:
            self._visit.leave()
        self._watch()

    def _watch(self) -> None:
        """It may stay as long as its token holds; a stranger has some time to say who it is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._end is None or not self.required:
            return
        if self._visit is not None:
            self._visit.enter(lambda: self._over(EXPIRED))
            return
        assert self._people.options is not None
        later = asyncio.get_running_loop().call_later
        self._timer = later(self._people.options.grace, self._over, "nobody has logged in")

    def _over(self, why: str) -> None:
        if self._end is not None and not self.ended:
            self.ended = why
            self._end()


def shown(people: Authenticator, scope: Scope) -> Principal | None:
    """The client that a request is of, by its `Authorization`; None without one. Raises Denied, which is logged."""
    try:
        return people.arrived(scope["headers"])
    except Denied:
        log.info("the token of a client at %s was refused", (scope.get("client") or [None])[0])
        raise


def _ours(method: Any) -> bool:
    return isinstance(method, dict) and method.get("id") == METHOD
