"""Authentication and rights of clients (sections 5.3 and 7.1).

access.py makes principals of credentials (Access), says what each may do (ClientPrincipal), and checks
Ed25519 signatures. Tokens and JSON Web Tokens are gateway.access's.

Whatever does not hold is Denied (-32003), in words that tell nothing of a token, key or signature. Nothing is logged.
"""

from __future__ import annotations

from adapters.agent_context.security.access import Access, ClientPrincipal
from gateway.access import ANONYMOUS

__all__ = ["ANONYMOUS", "Access", "ClientPrincipal"]
