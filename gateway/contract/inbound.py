"""The inbound half: serving clients. What it may offer beyond this is in optional.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.responses import Response
from starlette.routing import BaseRoute

from gateway.core.errors import InterlinguaError
from gateway.core.types import Run


@dataclass(frozen=True)
class Callback:
    """A webhook request: POST `body` with `headers`."""

    body: bytes
    headers: Mapping[str, str]


class Inbound(Protocol):
    """Serves one protocol's clients."""

    def routes(self) -> Sequence[BaseRoute]:
        """Starlette routes below the protocol's mount point. Called once."""

    def refusal(self, error: InterlinguaError) -> Response:
        """An error as this protocol answers it; for requests below the mount point that reach no route."""

    def callback(self, run: Run) -> Callback:
        """The webhook request that tells a client of this protocol what became of `run`."""
