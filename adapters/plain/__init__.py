"""The toy protocol: the test double, and the template to copy for a new one."""

from __future__ import annotations

from typing import Any

from adapters.plain.options import PlainServe, PlainTarget
from gateway.contract import Adapter, Gateway, Inbound, Outbound


def _serve(options: Any, gateway: Gateway) -> Inbound:
    from adapters.plain.inbound import PlainInbound

    return PlainInbound(options, gateway)


def _call(target: Any) -> Outbound:
    from adapters.plain.outbound import PlainOutbound

    return PlainOutbound(target)


ADAPTER = Adapter(
    name="plain",
    title="Plain (toy protocol of this project)",
    path="/plain",
    serve=_serve,
    serve_options=PlainServe,
    call=_call,
    target_options=PlainTarget,
    losses={
        "message": "lines have parts, not messages: who speaks is not said",
        "tool_call": "there is no line for tool calls",
        "plan": "there is no line for plans",
        "artifact": "files are listed in the final document only",
        "usage": "there is no line for token counts",
        "custom": "there is no line for other protocols' extras",
    },
)
