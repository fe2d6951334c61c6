"""Core to Agent Connect, pure: a stream's updates, each one line. Which are sent when is in `codec_stream.py`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from adapters.agent_connect import wire
from adapters.agent_connect.codec import CANCELLED, beyond, cancelled, errcode, interrupt_payload
from adapters.agent_connect.codec_thread import link
from gateway.core import events as e
from gateway.core.stopping import cut_short
from gateway.core.types import Interrupt, JsonObject, StopReason
from gateway.wire.sse import CR, LF, escape_separators

_dump = msgspec.json.Encoder().encode


def values_update(
    run_id: str, status: str, document: bytes, origin: JsonObject | None = None, *, folded: bool = False
) -> tuple[bytes, ...]:
    """`ValueRunResultUpdate`, one line, in pieces. A document that is null is `{}`: the member is required.

    `folded`: the document was encoded by a fold of deltas, on one line and with the separators escaped.
    """
    if not folded:
        if LF in document or CR in document:  # outside strings, where JSON has them raw
            document = document.replace(b"\r", b" ").replace(b"\n", b" ")
        document = escape_separators(document)
    shown = b"{}" if document == b"null" else document
    extra = beyond(origin) if origin else None
    if not extra:
        return _values_head(run_id, status), shown, b"}"
    return _values_head(run_id, status), shown, b",", escape_separators(_dump(extra))[1:]


@lru_cache(maxsize=1024)
def _values_head(run_id: str, status: str) -> bytes:
    return b'{"type":"values","run_id":"%b","status":"%b","values":' % (run_id.encode(), status.encode())


def custom_update(run_id: str, event: e.Event, origin: JsonObject | None = None) -> bytes:
    """`CustomRunResultUpdate`, one line: an agent's own update as it came, any other event by its name as `type`."""
    update: Any
    if isinstance(event, e.Custom):
        if event.name == wire.PROTOCOL and isinstance(event.data, dict):
            update = event.data
        else:
            update = {"type": "custom", "name": event.name, "data": event.data}
    elif isinstance(event, e.ArtifactAdded):
        update = {"type": "artifact_added", "artifact": {"id": event.artifact.id, **link(event.artifact)}}
    else:
        told = msgspec.structs.replace(event, origin=None) if event.origin else event
        update = msgspec.Raw(b'{"type":' + e.encode(told).removeprefix(b'{"event":'))
    line = {"type": "custom", "run_id": run_id, "status": "pending", "update": update}
    return escape_separators(_dump({**beyond(origin), **line}))


def stop_update(run_id: str, reason: StopReason) -> bytes:
    """`CustomRunResultUpdate`, one line: the run stops, and before its work is done."""
    update = {"type": "run_finished", "stop_reason": reason.value, "message": cut_short(reason)}
    return _dump({"type": "custom", "run_id": run_id, "status": "pending", "update": update})


def interrupt_update(run_id: str, interrupt: Interrupt, origin: JsonObject | None = None) -> bytes:
    """`ValueRunInterruptUpdate`, one line."""
    line = {"type": "interrupt", "run_id": run_id, "status": "interrupted", "interrupt": interrupt_payload(interrupt)}
    return escape_separators(_dump({**beyond(origin), **line}))


def error_update(run_id: str, end: e.RunFailed | e.RunCancelled, origin: JsonObject | None = None) -> bytes:
    """`ValueRunErrorUpdate`, one line, for a run that ended without success."""
    if isinstance(end, e.RunCancelled):
        code, text, status = CANCELLED, cancelled(end.reason), "error"
    else:
        code, text, status = errcode(end.failure), end.failure.message, "timeout" if end.timeout else "error"
    line = {"type": "error", "run_id": run_id, "errcode": code, "description": text, "status": status}
    line["transient"] = isinstance(end, e.RunFailed) and end.failure.retryable
    return escape_separators(_dump({**line, **beyond(origin)}))
