"""The messages of JSON-RPC 2.0 and its errors.

`params`, `result` and an error's `data` are `msgspec.Raw`: JSON text that is not decoded. An empty Raw (which is
false) stands for a missing member. A Raw from the decoder keeps the whole message's bytes alive; `.copy()`
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
"""JSON, but not a message."""
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
LIMITED = -32029
"""Of the range that JSON-RPC leaves to servers; in memory of HTTP's 429. The data says when to come again."""
REQUEST_CANCELLED = -32800
"""From the Language Server Protocol, not JSON-RPC. Others have used it since."""

REASONS: Final = ("details", "message", "error", "reason")
"""Members of an error's `data` that hold the reason: `details` in the Agent Client SDKs, the others in agents."""
MOST_REASON: Final = 500

Id: TypeAlias = int | float | str | None
"""The id of a request. 1 and "1" differ. A request may have the id null, though that is unwise."""

ABSENT = Raw()

EMPTY_BATCH: Final = "an empty array"
"""The reason of a Malformed for an empty batch."""


class ErrorObject(Struct, frozen=True, gc=False):
    """The `error` member. `data` is a Raw as decoded, any value that can be encoded when made here."""

    code: int
    message: str
    data: Any = ABSENT


class Request(Struct, frozen=True, gc=False):
    """A message that wants an answer with the same `id`, in type and value."""

    id: Id
    method: str
    params: Raw = ABSENT


class Notification(Struct, frozen=True, gc=False):
    """A message that gets no answer."""

    method: str
    params: Raw = ABSENT


class Response(Struct, frozen=True, gc=False):
    """An answer: `error` if it has one, else `result`. `bare` if it has neither, and `result` is null then."""

    id: Id
    result: Raw = ABSENT
    error: ErrorObject | None = None

    @property
    def bare(self) -> bool:
        """Whether it has only an id, as an answer has whose sender drops undefined members."""
        return self.error is None and not self.result


class Malformed(Struct, frozen=True, gc=False):
    """Input that is not a message. `code` and `reason` say why, `start` is its first 200 bytes, `size` its bytes.

    `id` is its id as far as that can be seen. With `method` it is a request's, which may be
    answered with that id; with `answer` it is an answer's, whose request waits in vain. Otherwise UNSET.
    """

    code: int
    reason: str
    start: bytes
    size: int
    id: Id | UnsetType = UNSET
    method: str = ""
    answer: bool = False


Single: TypeAlias = Request | Notification | Response | Malformed


class MessageBatch(Struct, frozen=True, gc=False):
    """A non-empty array of messages, none of which is a MessageBatch."""

    messages: tuple[Single, ...]


Message: TypeAlias = Single | MessageBatch


class RpcError(AgentFailed):
    """An error answer. Awaiting a request raises it; a handler raises it to answer its request with it.

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
