"""Authenticates operators: the clients of `operators` in routes.yaml, else anybody on this machine."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from gateway.access import bearer
from gateway.access.authenticator import NOT_VALID, roles_of
from gateway.access.credentials import TokenOwners
from gateway.access.options import OperatorOptions
from gateway.browser_guard import HostNames, comes_directly
from gateway.config import Config
from gateway.core.errors import Denied, Unauthenticated
from gateway.core.types import Identity
from gateway.transport.asgi.refusals import NoToken
from gateway.transport.asgi.request import headers_of

CLOSED: Final = (
    "the operator's pages are closed here: name `operators` in routes.yaml. Without it they are open on this machine "
    "alone, where the gateway listens on the loopback and neither `authentication` nor `public_url` is configured"
)
FOREIGN: Final = "pages of other sites may not ask here"


def open_near(config: Config, *, private: bool) -> bool:
    """Whether somebody on this machine needs no token. private: no other machine reaches the gateway.

    Where clients are asked who they are, or a proxy is in front, so is an operator.
    """
    asked = any(options.authenticates for options in config.inbound.values())
    return private and config.operators is None and config.public_url is None and not asked


class Operators:
    """Finds the operator of a request."""

    def __init__(self, options: OperatorOptions | None, names: HostNames, *, near: bool) -> None:
        """near: whoever asks from this machine is an operator (see `open_near`)."""
        self._names = names
        self._near = near
        self._jwt = options.jwt if options is not None else None
        self._owners = TokenOwners(options.clients, self._jwt) if options is not None else None

    def admit(self, scope: Scope) -> Identity | None:
        """The operator; None for one on this machine, whom nobody has authenticated.

        Raises Unauthenticated, Denied.
        """
        self._refuse_other_pages(scope)
        if self._owners is not None:
            return self._owner(scope)
        if not self.open_to(scope):
            raise Denied(CLOSED)
        return None

    def open_to(self, scope: Scope) -> bool:
        """Whether who sends the request is an operator, or may show that by a token."""
        return self._owners is not None or (self._near and comes_directly(scope, self._names))

    def _owner(self, scope: Scope) -> Identity:
        assert self._owners is not None
        token = bearer(scope["headers"])
        if token is None:
            raise NoToken
        found = self._owners.find(token)
        if found is None:
            raise Unauthenticated(NOT_VALID)
        if found.client is not None:
            return Identity(id=found.client.name, roles=found.client.roles)
        assert found.subject is not None and self._jwt is not None
        return Identity(id=found.subject.name, roles=roles_of(found.subject.claims.get(self._jwt.roles)))

    def _refuse_other_pages(self, scope: Scope) -> None:
        """Browsers say which page asks. Only the gateway's own may; programs say nothing."""
        headers = headers_of(scope)
        site = headers.get(b"sec-fetch-site")
        page = headers.get(b"origin")
        own = page is None or page.partition(b"://")[2] == headers.get(b"host")
        if not own or site not in (None, b"same-origin", b"none"):
            raise Denied(FOREIGN)
