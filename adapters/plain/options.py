"""What routes.yaml may say about plain targets."""

from __future__ import annotations

from pydantic import Field

from gateway.adapter import HttpUrl, TargetOptions


class PlainTarget(TargetOptions):
    """A plain agent over HTTP."""

    url: HttpUrl = Field(description="Where the agent takes its runs (POST).")
    idle_timeout: float = Field(60.0, description="Seconds without a line after which the agent is given up.")
