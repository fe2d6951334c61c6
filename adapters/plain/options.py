"""What routes.yaml may say about the plain protocol: the `inbound:` section and a route's target."""

from __future__ import annotations

from pydantic import Field

from gateway.contract import HttpUrl, InboundOptions, TargetOptions


class PlainServe(InboundOptions):
    """`inbound.plain`: how clients are served."""

    max_body: int = Field(1024 * 1024, gt=0, description="Largest request body in bytes; a larger one is 413.")


class PlainTarget(TargetOptions):
    """A plain agent over HTTP."""

    url: HttpUrl = Field(description="Where the agent takes its runs (POST).")
    request_timeout: float = Field(60.0, gt=0, description="Seconds the agent may take to begin its answer.")
    idle_timeout: float = Field(60.0, gt=0, description="Seconds without a line after which the agent is given up.")
