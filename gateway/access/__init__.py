"""Who a client is, and what is there for it: what the doors have in common that tell their clients apart.

options.py         what a section of routes.yaml says of it: clients with tokens, whoever signs JSON Web Tokens
credentials.py     how that is checked
patterns.py        names that are meant by pattern
authentication.py  `authentication`: the option that means the same at every door
people.py          whose token it is, by that option; visit.py: how long somebody may stay
scoped_gateway.py  the gateway scoped to one of them
time_left.py       waits that end with a token
door.py            who sends a request, found out in front of a protocol's routes

Nothing here says which part of a credential was wrong, or logs any of it.
"""

from __future__ import annotations

from gateway.access.authentication import Asking, Authentication, Person, Signed
from gateway.access.credentials import Subjects, TokenOwners, bearer
from gateway.access.door import identifying, refusal_headers, serving, visit_of
from gateway.access.options import ANONYMOUS, Algorithm, Credentials, JwtOptions, each_its_own
from gateway.access.patterns import Patterns, fits
from gateway.access.people import EXPIRED, Created, People, Principal, challenge, roles_of, uncreated
from gateway.access.scoped_gateway import ScopedGateway
from gateway.access.visit import Visit
from gateway.core.types import OWNER

__all__ = [
    "ANONYMOUS",
    "EXPIRED",
    "OWNER",
    "Algorithm",
    "Asking",
    "Authentication",
    "Created",
    "Credentials",
    "JwtOptions",
    "Patterns",
    "People",
    "Person",
    "Principal",
    "ScopedGateway",
    "Signed",
    "Subjects",
    "TokenOwners",
    "Visit",
    "bearer",
    "challenge",
    "each_its_own",
    "fits",
    "identifying",
    "refusal_headers",
    "roles_of",
    "serving",
    "uncreated",
    "visit_of",
]
