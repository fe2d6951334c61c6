"""The messages of JSON-RPC 2.0 and its errors.

`params`, `result` and an error's `data` are `msgspec.Raw`: JSON text that nobody has read. An empty Raw (which is
false) stands for a member that was not there. A Raw that was decoded keeps the whole message's bytes alive; `.copy()`
it to keep a small part of a large message.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.core.errors import AgentFailed

PARSE_ERROR = -32700
"""Not JSON."""
INVALID_REQUEST = -32600
"""JSON, but no message."""
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
"""Not of JSON-RPC but of the Language Server Protocol, and used by others since."""

REASONS: Final = ("details", "message", "error", "reason")
"""Members of an error's `data` that say why: `details` of the Agent Client SDKs, the rest of what agents put there."""
MOST_REASON: Final = 500

Id: TypeAlias = int | float | str | None
"""What names a request. 1 and "1" are different ids; null names a request too, though an unwise one."""

ABSENT = Raw()

EMPTY_BATCH: Final = "an empty array"
"""The reason of a Malformed that was meant as a batch and has no message in it."""


class ErrorObject(Struct, frozen=True, gc=False):
    """The `error` member. `data` is a Raw as decoded, any value that can be encoded when made here."""

    code: int
    message: str
    data: Any = ABSENT


class Request(Struct, frozen=True, gc=False):
    """Wants an answer with the same `id`, in type and value."""

    id: Id
    method: str
    params: Raw = ABSENT


class Notification(Struct, frozen=True, gc=False):
    """Wants none, and gets none."""

    method: str
    params: Raw = ABSENT


class Response(Struct, frozen=True, gc=False):
    """An answer: `error` if it has one, else `result`. `bare` if it has neither, and `result` is null then."""

    id: Id
    result: Raw = ABSENT
    error: ErrorObject | None = None

    @property
    def bare(self) -> bool:
        """Whether it is nothing but an id: what is left of an answer whose sender drops undefined members."""
        return self.error is None and not self.result


class Malformed(Struct, frozen=True, gc=False):
    """No message. `code` and `reason` say why, `start` is how it began (at most 200 bytes), `size` in bytes.

    `id` is what it would have been the id of, as far as that can be seen: with `method` of a request, which may be
    answered with that id; with `answer` of an answer that whoever asked waits for in vain. Else UNSET.
    """

    code: int
    reason: str
    start: bytes
    size: int
    id: Id | UnsetType = UNSET
    method: str = ""
    answer: bool = False


Single: TypeAlias = Request | Notification | Response | Malformed


class Batch(Struct, frozen=True, gc=False):
    """Several messages in an array, never empty. None of them is a Batch."""

    messages: tuple[Single, ...]


Message: TypeAlias = Single | Batch


class RpcError(AgentFailed):
    """An error answer. Raised where a request is awaited; raised by who serves a request, it is the answer.

    `code` in the JSON-RPC sense, `data` and the message are in `error`: `.code` is the error tree's. As text it is
    the message with the `reason` that `data` gives.
    """

    def __init__(self, code: int, message: str, data: Any = ABSENT) -> None:
        super().__init__(message, detail=f"JSON-RPC error {code}")
        self.error = ErrorObject(code, message, data)

    def __str__(self) -> str:
        return with_reason(self.error)


def with_reason(error: ErrorObject) -> str:
    """The message, followed by the reason that only `data` gives: SDKs send any exception as "Internal error".

    A `data` that is a string, else the first string among its members REASONS; of `error` and `message` that are
    objects, the same of these. At most MOST_REASON characters of it, half characters replaced. Not repeated where the
    message has it.
    """
    data = error.data
    if isinstance(data, Raw):
        try:
            data = json.loads(bytes(data)) if data else None
        except (ValueError, RecursionError):
            return error.message
    reason = _reason(data)
    if not reason or reason in error.message:
        return error.message
    if len(reason) > MOST_REASON:
        reason = f"{reason[: MOST_REASON - 1]}…"
    sound = reason.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return f"{error.message}: {sound}" if error.message else sound


def _reason(data: Any, depth: int = 2) -> str:
    if isinstance(data, str):
        return data.strip()
    if not isinstance(data, dict) or not depth:
        return ""
    return next(filter(None, (_reason(data.get(name), depth - 1) for name in REASONS)), "")
