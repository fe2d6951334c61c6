"""Whose token it is (`authentication` of an inbound section), and what is there for them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.access.authentication import Authentication, Person
from gateway.access.credentials import TokenOwners, bearer
from gateway.access.options import ANONYMOUS
from gateway.access.patterns import fits
from gateway.core.errors import Unauthenticated
from gateway.core.types import Identity

NOT_VALID: Final = "the token is not valid"
MISSING: Final = "a token is missing: send Authorization: Bearer"
EXPIRED: Final = "the token has expired"
API_KEY: Final = b"x-api-key"
"""Header of a token for clients that can send no other."""


class NoToken(Unauthenticated):
    """None came."""

    def __init__(self) -> None:
        super().__init__(MISSING)


def challenge(error: Unauthenticated) -> dict[str, str]:
    """The header that a 401 has (RFC 6750, 3)."""
    told = 'realm="interlingua"' if isinstance(error, NoToken) else 'error="invalid_token"'
    return {"www-authenticate": f"Bearer {told}"}


Created = Callable[[str], tuple[str, str | None] | None]
"""See `Gateway.agents.created`."""


def uncreated(agent: str) -> None:
    """`Created` where no client creates agents."""


@dataclass(frozen=True)
class Principal:
    """Somebody whose token held.

    agents: patterns of those that are there for it. oversees: whether what others made is. tools: patterns of those
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

    def may_use(self, agent: str, made: tuple[str, str | None] | None = None) -> bool:
        """Whether the principal may use the agent.

        `made` is what `Gateway.agents.created` says of it. A created agent is its owner's, and whoever may use its
        template may use it; one without an owner is for everybody who may use the template.
        """
        if made is None:
            return fits(agent, self.agents)
        template, owner = made
        return (owner is None or self.has(owner)) and (fits(agent, self.agents) or fits(template, self.agents))

    def has(self, owner: object) -> bool:
        """Whether what `owner` made is there for it. What is nobody's (None, ANONYMOUS) is not."""
        return owner == self.who.id or (self.oversees and isinstance(owner, str) and owner != ANONYMOUS)


class People:
    """One per door and gateway process. `now`: the clock, in seconds since the epoch."""

    def __init__(self, options: Authentication | None, now: Callable[[], float] = time.time) -> None:
        self.options = options
        self.now = now
        self._holders = TokenOwners(options.clients, options.jwt, now) if options is not None else None

    @property
    def required(self) -> bool:
        """Whether clients have to say who they are."""
        return self.options is not None

    def arrived(self, authorization: Sequence[str]) -> Principal | None:
        """Whose `Authorization` headers these are; None without a token, or where nobody is asked.

        Raises Unauthenticated.
        """
        token = bearer(authorization) if self.required else None
        return None if token is None else self.principal(token)

    def enters(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """Whose request has these headers, as ASGI has them: the token is that of `Authorization: Bearer`, else
        `X-API-Key`. Raises Unauthenticated.
        """
        bearers: list[str] = []
        keys: list[str] = []
        for name, value in headers:
            if name == b"authorization":
                bearers.append(value.decode("latin-1"))
            elif name == API_KEY:
                keys.append(value.decode("latin-1").strip())
        token = bearer(bearers) if bearers or len(keys) != 1 else keys[0]
        if not token:
            raise NoToken
        return self.principal(token)

    def sees(self, headers: Iterable[tuple[bytes, bytes]], created: Created) -> Callable[[str], bool] | None:
        """Which agents, by name, are there for whoever shows a token with a request, as `enters` has it; None where it
        is nobody's, or nobody is asked. `created`: see `Gateway.agents.created`.
        """
        try:
            known = self.enters(headers)
        except Unauthenticated:
            return None
        return lambda agent: known.may_use(agent, created(agent))

    def principal(self, token: str) -> Principal:
        """Whose token it is: a client of the list has the rights that the list gives it, others those of the token.

        Raises Unauthenticated.
        """
        found = self._holders.find(token) if self._holders is not None else None
        if found is None:
            raise Unauthenticated(NOT_VALID)
        if found.subject is None:
            assert found.client is not None, "a token that is no JWT is a client's"
            return _listed(found.client)
        assert self.options is not None and self.options.jwt is not None
        jwt = self.options.jwt
        expires = found.subject.expires + jwt.leeway
        if found.client is not None:
            return _listed(found.client, expires)
        who = Identity(id=found.subject.name, roles=roles_of(found.subject.claims.get(jwt.roles)))
        return Principal(who, jwt.agents, expires, tools=jwt.tools)


def _listed(client: Person, expires: float = math.inf) -> Principal:
    who = Identity(id=client.name, roles=client.roles)
    return Principal(who, client.agents, expires, client.oversees, client.tools)


def roles_of(claim: Any) -> tuple[str, ...]:
    """What a claim says: a list of texts, or one text with blanks between them."""
    given = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    return tuple(dict.fromkeys(role for role in given if isinstance(role, str) and role))
