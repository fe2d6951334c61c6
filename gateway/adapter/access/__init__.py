"""Who a client is: what the adapters have in common that tell their clients apart.

options.py      what a section of routes.yaml says of it: clients with tokens, whoever signs JSON Web Tokens
credentials.py  how that is checked

What somebody may do is each adapter's own. Nothing here logs, or says which part of a credential was wrong.
"""

from __future__ import annotations

from gateway.adapter.access.credentials import Subject, Subjects, Tokens, bearer
from gateway.adapter.access.options import ANONYMOUS, Algorithm, Credentials, JwtOptions, Patterns, each_its_own

__all__ = [
    "ANONYMOUS",
    "Algorithm",
    "Credentials",
    "JwtOptions",
    "Patterns",
    "Subject",
    "Subjects",
    "Tokens",
    "bearer",
    "each_its_own",
]
