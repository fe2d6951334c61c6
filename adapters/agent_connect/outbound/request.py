"""Core to Agent Connect, pure: the body that starts a run (openapi 0.2.3 `RunCreate...`)."""

from __future__ import annotations

from adapters.agent_connect.wire import PROTOCOL
from gateway.core.types import Json, JsonObject, RunRequest

_OURS = {
    "agent_id",
    "input",
    "metadata",
    "config",
    "webhook",
    "stream_mode",
    "on_disconnect",
    "on_completion",
    "multitask_strategy",
    "after_seconds",
    "if_not_exists",
}


def run_create(
    request: RunRequest, agent_id: str, given: Json, *, threaded: bool, stream_mode: list[str] | None
) -> JsonObject:
    """The body; `given` is the input. What only the gateway may decide is decided here, whoever the client is:

    - `on_disconnect: continue`: the run must outlive this gateway;
    - `on_completion: keep`: its result is fetched after its end, perhaps by the next gateway;
    - no `webhook`, no `after_seconds`: the gateway calls back and starts late itself.

    A client of the same protocol gets everything else that it said through: `config.tags`, `recursion_limit`,
    `stream_subgraphs`, unknown fields.
    """
    creation = request.creation if request.protocol == PROTOCOL else {}
    body: JsonObject = {name: value for name, value in creation.items() if name not in _OURS}
    body["agent_id"] = agent_id
    body["input"] = given
    if request.metadata:
        body["metadata"] = request.metadata
    config = creation.get("config")
    config = {**config} if isinstance(config, dict) else {}
    if request.config:
        config["configurable"] = request.config
    if config:
        body["config"] = config
    if stream_mode:
        body["stream_mode"] = stream_mode
    body["on_disconnect"] = "continue"
    if threaded:
        body["multitask_strategy"] = request.if_busy.value
    else:
        body["on_completion"] = "keep"
        body.pop("stream_subgraphs", None)
    return body
