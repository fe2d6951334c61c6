"""The toy protocol: the test double, and the template to copy for a new one."""

from adapters.plain.inbound import PlainInbound
from adapters.plain.options import PlainServe, PlainTarget
from adapters.plain.outbound import PlainOutbound
from gateway.adapter import Adapter

ADAPTER = Adapter(
    name="plain",
    title="Plain (toy protocol of this project)",
    path="/plain",
    serve=PlainInbound,
    serve_options=PlainServe,
    call=PlainOutbound,
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
