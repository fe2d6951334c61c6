"""The example protocol: the folder to copy for a new one."""

from __future__ import annotations

from typing import Any

from adapters.example.options import ExampleServe, ExampleTarget
from gateway.contract import Adapter, Gateway, Inbound, Outbound


def _serve(options: Any, gateway: Gateway) -> Inbound:
    from adapters.example.inbound import ExampleInbound

    return ExampleInbound(options, gateway)


def _call(target: Any) -> Outbound:
    from adapters.example.outbound import ExampleOutbound

    return ExampleOutbound(target)


ADAPTER = Adapter(
    name="example",
    formerly="plain",
    unnamed=False,
    title="Example (a small protocol of this project, to copy)",
    path="/example",
    serve=_serve,
    serve_options=ExampleServe,
    call=_call,
    target_options=ExampleTarget,
    losses={
        "tool_call": "there is no line for tool calls",
        "plan": "there is no line for plans",
        "usage": "there is no line for token counts",
        "custom": "there is no line for other protocols' extras",
    },
    late=True,
)
