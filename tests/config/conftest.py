"""Two adapters that exist nowhere else, so that these tests know no protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import Field

from gateway.config import Config, DocumentError, loads
from gateway.contract import Adapter, HttpUrl, InboundOptions, TargetOptions


class DoorOptions(InboundOptions):
    """What a door takes.

    max_body: greatest request body.
    max_upload: greatest file.
    """

    max_body: int = 1000
    max_upload: int = 2000
    keep_alive: float = Field(default=15.0, gt=0, description="Seconds of silence before a comment.")
    porter: str = "porter"
    """The door's own agent."""

    @property
    def brings(self) -> tuple[str, ...]:
        return (self.porter,)


class Strategy(TargetOptions):
    """A model with models inside."""

    url: HttpUrl
    """Where the agent is."""
    steps: int = Field(default=3, ge=1)
    """How many."""
    command: list[str] | str | None = None
    """A program."""


def _never(*_: Any) -> Any:
    raise AssertionError("reading a file makes no adapter")


ADAPTERS = {
    adapter.name: adapter
    for adapter in (
        Adapter(name="both", title="Both", path="/both-ways", serve=_never, call=_never, target_options=Strategy),
        Adapter(name="door", title="Door", serve=_never, serve_options=DoorOptions),
        Adapter(name="phone", title="Phone", call=_never),
    )
}

Read = Callable[..., Config]


@pytest.fixture
def read() -> Read:
    """Reads a text with the adapters above."""
    return lambda text, **env: loads(text, ADAPTERS, env)


@pytest.fixture
def mistakes() -> Callable[..., list[str]]:
    """The lines that a wrong text gives."""

    def lines(text: str, **env: str) -> list[str]:
        with pytest.raises(DocumentError) as raised:
            loads(text, ADAPTERS, env)
        assert str(raised.value).splitlines() == [str(mistake) for mistake in raised.value.mistakes]
        return [str(mistake) for mistake in raised.value.mistakes]

    return lines
