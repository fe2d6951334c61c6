"""Options: who operates the gateway, beside the clients of its doors."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from gateway.access.options import Credentials, JwtOptions, each_its_own
from gateway.contract.options import Options


class OperatorClient(Credentials):
    """Somebody who operates the gateway.

    roles: by them an operator may approve what a governed agent asks approval for.
    """

    roles: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class OperatorTokens(JwtOptions):
    """JSON Web Tokens (RFC 7519) of operators. `exp`, `nbf`, `aud` and `iss` are checked: choose an audience that no
    client's token has.

    roles: the claim that names the roles: a list, or a text with blanks between them.
    """

    roles: Annotated[str, Field(min_length=1)] = "roles"


class OperatorOptions(Options):
    """Who may use `/admin`: look at every run, answer and cancel it. Tokens of protocols' clients open nothing here.

    clients: who there is.
    jwt: for tokens that are JWTs.
    """

    clients: tuple[OperatorClient, ...] = ()
    jwt: OperatorTokens | None = None

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        each_its_own(self.clients)
        if not self.clients and self.jwt is None:
            raise ValueError("name clients, or jwt: else nobody could operate the gateway")
        return self
