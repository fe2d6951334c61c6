"""Whose token it is (`inbound.agent_client.authentication`).

A client is known by a token: in `Authorization` of the connection, or in `_meta.token` of `authenticate`. What it makes
is its own: to everybody else its sessions are not there. A client on standard input and output is whoever started the
gateway, and nobody asks; its sessions are nobody's, as are those that were made while nobody was asked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from adapters.agent_client.options import Authentication, Person
from gateway.adapter.access import Subject, Subjects, Tokens, bearer
from gateway.core.errors import Denied
from gateway.core.types import Identity

NOT_VALID: Final = "the token is not valid"
UNAUTHORIZED: Final = b'{"error":"the token is not valid"}'
CHALLENGE: Final = {"www-authenticate": 'Bearer error="invalid_token"'}
"""RFC 6750, 3."""


@dataclass(frozen=True)
class Principal:
    """Somebody whose token held.

    agents: patterns of those that are there for it. oversees: whether others' sessions are. tools: patterns of those
    that governed agents may call for it. expires: when the token does, in seconds since the epoch.
    """

    who: Identity
    agents: tuple[str, ...] = ("*",)
    expires: float = math.inf
    oversees: bool = False
    tools: tuple[str, ...] = ("*",)

    def same(self, other: Principal) -> bool:
        """Whether it is the same somebody, who may do the same."""
        return replace(self, expires=0.0) == replace(other, expires=0.0)


class People:
    """One per gateway process. `now`: the clock, in seconds since the epoch."""

    def __init__(self, options: Authentication | None, now: Callable[[], float] = time.time) -> None:
        self.options = options
        self.now = now
        self._clients = {client.name: client for client in options.clients} if options else {}
        self._tokens = Tokens(self._clients.values())
        self._subjects = Subjects(options.jwt, now) if options and options.jwt else None

    @property
    def required(self) -> bool:
        """Whether clients have to say who they are."""
        return self.options is not None

    def arrived(self, authorization: Sequence[str]) -> Principal | None:
        """Whose `Authorization` headers these are; None without a token, or where nobody is asked. Raises Denied."""
        token = bearer(authorization) if self.required else None
        return None if token is None else self.principal(token)

    def principal(self, token: str) -> Principal:
        """Whose token it is. Raises Denied."""
        client = self._tokens.client(token)
        if client is not None:
            return _listed(client)
        found = self._subjects.find(token) if self._subjects is not None else None
        if found is None:
            raise Denied(NOT_VALID)
        return self._subject(found)

    def _subject(self, found: Subject) -> Principal:
        """A client of the list has the rights that the list gives it, others those of the token."""
        assert self.options is not None and self.options.jwt is not None
        jwt = self.options.jwt
        expires = found.expires + jwt.leeway
        client = self._clients.get(found.name)
        if client is not None:
            return _listed(client, expires)
        who = Identity(id=found.name, roles=_roles(found.claims.get(jwt.roles)))
        return Principal(who, jwt.agents, expires, tools=jwt.tools)


def _listed(client: Person, expires: float = math.inf) -> Principal:
    who = Identity(id=client.name, roles=client.roles)
    return Principal(who, client.agents, expires, client.oversees, client.tools)


def _roles(claim: Any) -> tuple[str, ...]:
    """A list of texts, or one text with blanks between them."""
    given = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    return tuple(dict.fromkeys(role for role in given if isinstance(role, str) and role))


LOCAL: Final = People(None)
"""Of clients that nobody asks."""
