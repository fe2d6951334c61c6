"""Authenticates clients by their tokens (`authentication` of an inbound section), and says what each may use."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gateway.access.credentials import AUTHORIZATION, TokenOwners, bearer
from gateway.access.issuer import AwaitsKeys
from gateway.access.options import ANONYMOUS, Authentication, Person
from gateway.access.patterns import fits
from gateway.core.errors import Unauthenticated, Unavailable
from gateway.core.types import OWNER, Identity, JsonObject, Thread
from gateway.transport.asgi.refusals import NoToken

NOT_VALID: Final = "the token is not valid"
EXPIRED: Final = "the token has expired"
API_KEY: Final = b"x-api-key"
"""Header with the token of clients that cannot send `Authorization`."""


class Principal(msgspec.Struct, frozen=True):
    """A client with a valid token.

    agents: patterns of the agents that it may use. oversees: whether it also sees what other clients made. tools:
    patterns of the tools that governed agents may call for it. expires: of the token, in seconds since the epoch.
    """

    who: Identity
    agents: tuple[str, ...] = ("*",)
    expires: float = math.inf
    oversees: bool = False
    tools: tuple[str, ...] = ("*",)

    def same(self, other: Principal) -> bool:
        """Whether it is the same client with the same rights."""
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

    @property
    def marks(self) -> JsonObject:
        """Attributes of the threads that it makes."""
        return {OWNER: self.who.id}

    def has(self, owner: object) -> bool:
        """Whether it may see what `owner` made. What has no owner (None, ANONYMOUS) it may not."""
        return owner == self.who.id or (self.oversees and isinstance(owner, str) and owner != ANONYMOUS)


class Authenticator:
    """The clients of one door. `now`: the clock, in seconds since the epoch. `created`: `Gateway.agents.created`."""

    def __init__(
        self,
        options: Authentication | None,
        now: Callable[[], float] = time.time,
        created: Callable[[str], tuple[str, str | None] | None] = lambda agent: None,
    ) -> None:
        self.options = options
        self.required = options is not None
        """Whether clients have to authenticate."""
        self.now = now
        self._created = created
        self._holders = TokenOwners(options.clients, options.jwt, now) if options is not None else None

    def arrived(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal | None:
        """The client of a connection with these headers, by `Authorization` alone; None without a token, or where none
        is required. Raises Unauthenticated.
        """
        token = bearer(headers) if self.required else None
        return None if token is None else self.principal(token)

    def identify(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """The client of a request with these headers, as ASGI has them.

        Its token is in `Authorization: Bearer`, else in `X-API-Key`. Raises Unauthenticated.
        """
        given = [(name, value) for name, value in headers if name in (AUTHORIZATION, API_KEY)]
        only_key = len(given) == 1 and given[0][0] == API_KEY
        token = given[0][1].decode("latin-1").strip() if only_key else bearer(given)
        if not token:
            raise NoToken
        return self.principal(token)

    def may_use(self, known: Principal, agent: str) -> bool:
        """Whether the client may use the agent, which may be one that was created."""
        return known.may_use(agent, self._created(agent))

    def owns(self, known: Principal | None, thread: Thread) -> bool:
        """Whether a thread is the client's own, or one that it oversees. None: who has not said who it is, to whom all
        belongs that has no owner where nobody is asked.
        """
        owner = thread.attributes.get(OWNER)
        return known.has(owner) if known is not None else not self.required and owner is None

    def sees(self, headers: Iterable[tuple[bytes, bytes]]) -> Callable[[str], bool] | None:
        """Which agents, by name, the client of a request may see; None without a valid token."""
        try:
            known = self.identify(headers)
        except (Unauthenticated, Unavailable):
            return None
        return partial(self.may_use, known)

    async def awaited(self, token: str) -> None:
        """Wait until a token can be judged, where the keys of its issuer have to be fetched for that."""
        try:
            self.principal(token)
        except AwaitsKeys as awaits:
            await awaits.fetched()
        except (Unauthenticated, Unavailable):
            pass

    def principal(self, token: str) -> Principal:
        """The owner of a token: a client of the list has the rights that the list gives it, others those of the token.

        Raises Unauthenticated; AwaitsKeys and Unavailable where the keys of its issuer are not known.
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
    """The roles in a claim: a list of texts, or one text with blanks between them."""
    given = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    return tuple(dict.fromkeys(role for role in given if isinstance(role, str) and role))
