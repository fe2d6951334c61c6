"""Asking a client of this protocol with a form (docs: elicitation; schema: ElicitationSchema).

Forms are MCP's, whose implementation this is (gateway/mcp/forms.py), with a pattern for texts. A client declares each
mode by an object of its own, and what an agent of this protocol asks is asked verbatim.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gateway.core.types import Interrupt, JsonObject
from gateway.mcp import forms
from gateway.mcp.fields import Dialect
from gateway.mcp.forms import elicitation_answer, elicitation_result

__all__ = ["as_elicitation", "elicitation", "elicitation_answer", "elicitation_modes", "elicitation_result"]

_DIALECT: Final = Dialect(pattern=True)


def elicitation_modes(capabilities: JsonObject) -> frozenset[str]:
    """The modes a client declared in its `clientCapabilities`; `{}` and null declare none (docs: elicitation)."""
    declared = capabilities.get("elicitation")
    if not isinstance(declared, dict):
        return frozenset()
    return frozenset(mode for mode in (forms.FORM, forms.URL) if isinstance(declared.get(mode), dict))


def as_elicitation(interrupt: Interrupt, modes: Collection[str]) -> JsonObject | None:
    """Params of an `elicitation/create` (without `sessionId`), None if no form fits or its mode is not in `modes`.

    See `gateway.mcp.forms.as_elicitation`. What an agent of this protocol asked is asked verbatim, less the id of a
    request of its own that it may name.
    """
    payload = interrupt.payload
    if interrupt.kind == forms.KIND and isinstance(payload, dict) and payload.get("mode") in (forms.FORM, forms.URL):
        asked = {key: value for key, value in payload.items() if key != "requestId"}
        return asked if asked["mode"] in modes else None
    return forms.as_elicitation(interrupt, modes, _DIALECT)


def elicitation(params: JsonObject, id: str) -> Interrupt:
    """The question of an `elicitation/create`, form or url. `payload` is `params` less `sessionId`.

    See `gateway.mcp.forms.elicitation`. Raises Invalid.
    """
    return forms.elicitation({key: value for key, value in params.items() if key != "sessionId"}, id, mode=None)
