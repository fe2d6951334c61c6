"""Makes the request for a run: an `agent/message` or an `agent/delegate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from adapters.agent_context.codec.content import request_of
from adapters.agent_context.codec.files import Uploads
from adapters.agent_context.wire.constants import CORRELATION, HOPS, META, PROGRESS_TOKEN, PROTOCOL, REQUEST, SELF
from gateway.contract import RunContext
from gateway.core.memory import Recalled
from gateway.core.types import Artifact, JsonObject

OURS: Final = ("io.modelcontextprotocol/", "modelcontextprotocol.io/", "interlingua/")
"""Keys of `_meta` that are about the connection they were sent on, or meant for a gateway."""
TEXTS: Final = frozenset({"traceparent", "tracestate", "baggage"})
"""Keys of `_meta` that SDKs read as headers: another value than a text ends some of them."""
OF_THE_CALL: Final = frozenset(
    {"source", "target", "content", "task", "wait", META, "inputResponses", "requestState", "name", "arguments"}
)
"""Members of `params` that the gateway says itself, or that are its client's own business."""
TASK: Final = "task"
"""Attribute of a run: the whole task that it is an attempt at."""


INLINE_BYTES: Final = 16_000_000
"""Bytes of files that are sent with one message; files beyond it are sent as links."""


async def uploads_of(context: RunContext, given: Sequence[Artifact]) -> Uploads:
    """Files of clients as they are sent to an agent."""
    left = INLINE_BYTES
    inline: list[str] = []
    for file in given:
        left -= file.size
        if left >= 0 or not file.url.startswith("http"):
            inline.append(file.id)
    contents = await context.contents(inline) if inline else {}
    return [(file, contents.get(file.id)) for file in given]


def correlation(context: RunContext) -> str:
    """The correlation id of a run's messages: its client's own where there is one."""
    request = context.run.request
    said = request.attributes.get(CORRELATION)
    if not isinstance(said, str):
        meta = request.creation.get(META) if request.protocol == PROTOCOL else None
        said = meta.get(CORRELATION) if isinstance(meta, dict) else None
    return said if isinstance(said, str) and said else context.run.id


def task_in(context: RunContext) -> JsonObject | None:
    """The task that a run is an attempt at; None if it is not one."""
    request = context.run.request
    found = request.attributes.get(TASK) if request.protocol == PROTOCOL else None
    return found if isinstance(found, dict) else None


def message(context: RunContext, given: Recalled, target: str, uploads: Uploads = ()) -> JsonObject:
    """The params of an `agent/message`. Raises Invalid for an input that cannot be said.

    What a client of the same protocol sent besides goes along as it is.
    """
    said = _said(context)
    content = said.get("content")
    content = {key: value for key, value in content.items() if key != "payload"} if isinstance(content, dict) else {}
    content = {**content, "type": REQUEST, "payload": request_of(context.agent, context.run, given, uploads)}
    return {**_envelope(context, said, target), "content": content, META: meta(context, said)}


def delegation(context: RunContext, given: Recalled, target: str | None, uploads: Uploads = ()) -> JsonObject:
    """The params of an `agent/delegate`: of the task that the run is an attempt at, or of one made of it."""
    said = _said(context)
    payload = request_of(context.agent, context.run, given, uploads)
    known = task_in(context) or said.get("task")
    known = known if isinstance(known, dict) else {}
    requirements = payload.get("requirements") if isinstance(payload, dict) else None
    task: JsonObject = {
        "id": context.run.id,
        "type": "message",
        **({"requirements": requirements} if isinstance(requirements, dict) else {}),
        **known,
        "payload": payload if given.before or uploads else known.get("payload", payload),
        "status": "pending",
    }
    return {**_envelope(context, said, target), "task": task, META: meta(context, said)}


def meta(context: RunContext, said: JsonObject) -> JsonObject:
    """`_meta` of a request for a run; `said` is what its client sent, if it speaks this protocol."""
    sent = said.get(META)
    found = sent if isinstance(sent, dict) else context.run.request.metadata
    found = {key: value for key, value in found.items() if _sent(key, value)}
    if context.traceparent is not None:
        found["traceparent"] = context.traceparent
    hops = context.run.request.attributes.get("hops") if context.run.request.protocol == PROTOCOL else None
    if isinstance(hops, int) and hops > 0:
        found[HOPS] = hops
    return found


def _said(context: RunContext) -> JsonObject:
    request = context.run.request
    return request.creation if request.protocol == PROTOCOL else {}


def _envelope(context: RunContext, said: JsonObject, target: str | None) -> JsonObject:
    attributes = context.run.request.attributes if context.run.request.protocol == PROTOCOL else {}
    source = attributes.get("source", said.get("source"))
    envelope: JsonObject = {key: value for key, value in said.items() if key not in OF_THE_CALL}
    envelope["source"] = source if isinstance(source, str) and source else SELF
    return envelope if target is None else {**envelope, "target": target}


def _sent(key: str, value: Any) -> bool:
    if key in (PROGRESS_TOKEN, CORRELATION) or key.startswith(OURS):
        return False
    return key not in TEXTS or isinstance(value, str)
