"""How this protocol's door says that a token is nobody's, and who is never asked for one.

A client is known by a token: in `Authorization` of the connection, or in `_meta.token` of `authenticate`. What it makes
is its own: to everybody else its sessions are not there. A client on standard input and output is whoever started the
gateway, and nobody asks; its sessions are nobody's, as are those that were made while nobody was asked.
"""

from __future__ import annotations

from typing import Final

from gateway.access import Authenticator, challenge
from gateway.core.errors import Unauthenticated

UNAUTHORIZED: Final = b'{"error":"the token is not valid"}'
CHALLENGE: Final = challenge(Unauthenticated("the token is not valid"))
LOCAL: Final = Authenticator(None)
"""Of clients that nobody asks."""
