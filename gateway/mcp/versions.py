"""Which revisions of the protocol there are, and how two ends agree on one.

Up to 2025-11-25 a client proposes a revision in `initialize` and the server answers with that or its own newest, for
the whole session. From 2026-07-28 there is no handshake: each request says its revision, and `server/discover` tells
what a server takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

V2024_11_05: Final = "2024-11-05"
V2025_03_26: Final = "2025-03-26"
V2025_06_18: Final = "2025-06-18"
V2025_11_25: Final = "2025-11-25"
V2026_07_28: Final = "2026-07-28"

HANDSHAKE: Final = (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25)
"""Agreed on by `initialize`, oldest first."""
MODERN: Final = (V2026_07_28,)
"""Said in every request."""
ALL: Final = (*HANDSHAKE, *MODERN)


def agreed(proposed: object) -> str:
    """The revision a server answers to an `initialize` that proposes one: the same, else the newest of a handshake."""
    return proposed if isinstance(proposed, str) and proposed in HANDSHAKE else HANDSHAKE[-1]


def dialect(proposed: object, dialects: Mapping[str, str]) -> str | None:
    """The name that an `initialize` is answered which proposes one; None where it proposes none, but a revision.

    dialects: the names there are, oldest first, and the revision that each stands for. One that begins like a name up
    to its "-" but is not known gets the newest that begins so.
    """
    if not isinstance(proposed, str) or proposed in dialects:
        return proposed if isinstance(proposed, str) else None
    family, dash, _ = proposed.partition("-")
    return next((name for name in reversed(list(dialects)) if dash and name.startswith(family + dash)), None)


def modern(version: str) -> bool:
    """Whether it is a revision without sessions."""
    return version in MODERN


def has_batches(version: str) -> bool:
    """Whether several messages may come in an array: one revision took them, the next took that back."""
    return version == V2025_03_26


def has_structured_output(version: str) -> bool:
    """Whether tools have `outputSchema` and `title`, results `structuredContent` and `resource_link` blocks."""
    return version >= V2025_06_18


def has_elicitation(version: str) -> bool:
    """Whether a server may ask its client with a form."""
    return version >= V2025_06_18


def has_progress_message(version: str) -> bool:
    """Whether `notifications/progress` carries a `message`."""
    return version >= V2025_03_26
