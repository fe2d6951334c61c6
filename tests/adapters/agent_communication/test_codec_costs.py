"""What deltas cost, as a count of work: never the document for a token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from adapters.agent_communication.codec import deltas_out
from adapters.agent_communication.codec.deltas_out import DeltaEncoder
from gateway.core import events as e
from gateway.core.delta import Fold
from tests.mcp.runs.documents import MESSAGE, numbered


@pytest.mark.parametrize("kind", ["text", "data"])
@pytest.mark.parametrize("size", [1 << 10, 1 << 20])
def test_a_token_is_never_paid_for_with_the_document(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is the document made, encoded or compared, nor is more encoded than is said."""
    encoder = DeltaEncoder(MESSAGE)
    first, token = ("x" * size, "y" * 20) if kind == "text" else ({"message": "x" * size}, {"message": "y" * 20})
    start = [e.PartStarted(part="p", message="m", kind=kind), e.PartDelta(part="p", delta=first)]
    encoder.feed(numbered(start))
    encoder.feed([(9, e.PartReplaced(part="p", pointer="", value=first))] if kind == "data" else [])
    work = _count_work(monkeypatch)
    out = encoder.feed([(at, e.PartDelta(part="p", delta=token)) for at in range(10, 1010)])
    assert b"".join(out) == b'{"message":"yyyyyyyyyyyyyyyyyyyy"}' * 1000
    assert work["whole"] == 0
    assert work["encoded"] <= 1000 * 64


def test_a_status_beside_a_growing_text_is_not_paid_for_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = DeltaEncoder(MESSAGE)
    events: list[e.Event] = [
        e.PartStarted(part="p", message="m", kind="data"),
        e.PartDelta(part="p", delta={"message": "x" * (1 << 20), "state": "a"}),
        e.PartReplaced(part="p", pointer="/state", value="b"),
    ]
    encoder.feed(numbered(events))
    work = _count_work(monkeypatch)
    for at in range(500):
        encoder.feed([(at + 9, e.PartReplaced(part="p", pointer="/state", value="ab"[at % 2]))])
        encoder.feed([(at + 9, e.PartDelta(part="p", delta={"message": "y" * 20}))])
    assert work["whole"] == 0
    assert work["encoded"] <= 1000 * 64


def _count_work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts whole documents that are made or encoded, and bytes that are encoded."""
    work: Counter[str] = Counter()

    def counting(owner: Any, name: str, what: Callable[[Any], int], kind: str) -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            work[kind] += what(result)
            return result

        monkeypatch.setattr(owner, name, counted)

    for name in ("document", "encoded"):
        counting(Fold, name, lambda _: 1, "whole")
    counting(deltas_out, "_encode", len, "encoded")
    return work
