"""Options: who may come in by a door, and what is there for them. The same section below each protocol's own."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from gateway.access.options import ClientCredentials, ClientTokens, each_its_own, limits_of
from gateway.access.patterns import Patterns
from gateway.contract.options import ClientLimits, InboundOptions, Options


class Person(ClientCredentials):
    """Somebody who may connect.

    roles: what it is besides its name: by them it may approve what a governed agent asks approval for.
    agents: patterns of the names of the agents that are there for it.
    tools: patterns of the names of the tools that governed agents may call for it, of those that they may call at all.
    oversees: whether what all other clients made (sessions, threads, tasks, runs) is there for it as well, as far as
        their agents are: it may look at it, and answer what is asked there.
    """

    roles: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    agents: Patterns = ("*",)
    tools: Patterns = ("*",)
    oversees: bool = False


class Signed(ClientTokens):
    """JSON Web Tokens (RFC 7519) instead of tokens of the list. `exp`, `nbf`, `aud` and `iss` are checked.

    Whose `sub` a client of the list has is that client.

    roles: the claim that names the roles: a list, or a text with blanks between them.
    agents: patterns of the names of the agents that are there for every other bearer.
    tools: patterns of the names of the tools that governed agents may call for every other bearer.
    """

    roles: Annotated[str, Field(min_length=1)] = "roles"
    agents: Patterns = ("*",)
    tools: Patterns = ("*",)


class Authentication(Options):
    """Who may connect over the network, and what is there for whom. Whoever has no valid token may do nothing.

    clients: who there is.
    jwt: for tokens that are JWTs.
    grace: seconds that a connection may last before its client has said who it is, where the protocol has a message for
        that. Everywhere else it has to say so with its first request.
    """

    clients: tuple[Person, ...] = ()
    jwt: Signed | None = None
    grace: Annotated[float, Field(gt=0)] = 60.0

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        each_its_own(self.clients)
        if not self.clients and self.jwt is None:
            raise ValueError("name clients, or jwt: else nobody could connect")
        return self


class AuthenticatingOptions(InboundOptions):
    """The options of an inbound half that can ask who its clients are.

    authentication: who may connect over the network. Left out: everybody, and what anybody makes is everybody's.
    """

    authentication: Authentication | None = None

    @property
    def authenticates(self) -> bool:
        return self.authentication is not None

    @property
    def client_limits(self) -> Mapping[str | None, ClientLimits]:
        return {} if self.authentication is None else limits_of(self.authentication.clients, self.authentication.jwt)

    @property
    def by_request(self) -> bool:
        """Whether each request shows who sends it, so that it is found out in front of the routes (`identifying`).

        Else the inbound half finds it out itself, also from what a message says, and is `Knowing`.
        """
        return self.authenticates
