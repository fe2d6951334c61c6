"""Who is it, and what may it do (sections 5.3 and 7.1).

access.py       Access, made of the options: a principal for credentials. Principal: what it may
credentials.py  how Ed25519 signatures are checked; tokens and JSON Web Tokens: gateway.access

Whatever does not hold is Denied (-32003), in words that tell nothing of a token, key or signature. Nothing is logged.
"""

from __future__ import annotations

from adapters.agent_context.security.access import Access, Principal
from gateway.access import ANONYMOUS

__all__ = ["ANONYMOUS", "Access", "Principal"]
