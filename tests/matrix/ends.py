"""How a run looked to a client of the matrix."""

from __future__ import annotations

from dataclasses import dataclass

PATIENCE = 60.0


@dataclass(frozen=True)
class End:
    """How a run looked to the client. `status`: success, error, asks or cancelled."""

    status: str
    text: str
    run: str
