"""Which version a connection speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.agent_client.inbound.dialects import Dialect
from adapters.agent_client.inbound.dialects.v1 import V1
from adapters.agent_client.inbound.dialects.v2 import V2

if TYPE_CHECKING:
    from adapters.agent_client.inbound.connection import Connection


def negotiated(asked: int, *, v2: bool) -> int:
    """The version that a client which asks for one is answered. `v2`: whether version 2 is served."""
    return 2 if v2 and asked >= 2 else 1


def spoken(version: int, connection: Connection) -> Dialect:
    """The dialect of a connection that speaks this version."""
    return V2(connection) if version == 2 else V1(connection)
