"""The operator's API below `/admin`: every run and agent of the gateway, in the gateway's own words.

It belongs to whoever operates the gateway, and is no protocol: no token of a protocol's clients opens it.

operators.py  who an operator is
api.py        the operations; openapi.json describes them
console.py    the console at `/ui`, which asks them; its files are in ui/
"""

from gateway.admin.api import AdminApi
from gateway.admin.console import Console
from gateway.admin.operators import Operators, open_near

__all__ = ["AdminApi", "Console", "Operators", "open_near"]
