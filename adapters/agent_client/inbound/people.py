"""How this protocol's door refuses an unknown token, and which clients it never asks for one.

A client is known by a token: in `Authorization` of the connection, or in `_meta.token` of `authenticate`. It owns the
sessions that it makes: to all others they do not exist. A client on standard input and output started the gateway, and
is not asked. Its sessions have no owner, nor have those that were made while clients were not asked.
"""

from __future__ import annotations

from typing import Final

from gateway.access import Authenticator, challenge
from gateway.core.errors import Unauthenticated

UNAUTHORIZED: Final = b'{"error":"the token is not valid"}'
CHALLENGE: Final = challenge(Unauthenticated("the token is not valid"))
LOCAL: Final = Authenticator(None)
"""The authenticator of clients that are not asked."""
