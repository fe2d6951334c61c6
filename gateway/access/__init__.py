"""Identifies clients and scopes what they see, for all doors that authenticate their clients.

options.py         options: clients of doors and operators, with tokens of their own or of issuers
credentials.py     checks tokens against them
issuer.py          the keys of an issuer that publishes them
patterns.py        patterns of names
authenticator.py   the client of a request or a token, by that option
visit.py           an authenticated client, until its token expires, and its place in the scope of a request
scoped_gateway.py  the gateway scoped to one client, and what serves each
limits.py          what clients, doors, routes and threads use, and middleware that refuses what is too much

Nothing here says which part of a credential was wrong, or logs any of it.
"""

from __future__ import annotations

from gateway.access.authenticator import EXPIRED, Authenticator, Principal, roles_of
from gateway.access.credentials import Subjects, TokenOwners, bearer
from gateway.access.issuer import AwaitsKeys, published_by
from gateway.access.limits import Slots, UsageLimits
from gateway.access.options import ANONYMOUS, AuthenticatingOptions, Authentication, JwtOptions, Person, each_its_own
from gateway.access.patterns import Patterns
from gateway.access.scoped_gateway import ScopedGateway, serving
from gateway.access.visit import Visit, identifying, visit_of
