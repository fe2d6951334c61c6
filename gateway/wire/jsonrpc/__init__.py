"""JSON-RPC 2.0 without IO: decodes bytes to messages and encodes messages (jsonrpc.org/specification).

messages.py  Request, Notification, Response, MessageBatch, Malformed; the error codes; RpcError
decoding.py  bytes -> one of those; `params` and `result` are not decoded; params -> structs, for who wants them
encoding.py  messages -> bytes, never with a line break inside; params with other members; InterlinguaErrors -> error
             answers
"""

from gateway.wire.jsonrpc.decoding import Glimpse, apart, check, converted, decode, glimpse, read, unpack
from gateway.wire.jsonrpc.encoding import (
    encoded,
    error,
    failing,
    internal,
    members,
    notification,
    raw,
    replaced,
    request,
    result,
    retry,
)
from gateway.wire.jsonrpc.messages import (
    ABSENT,
    EMPTY_BATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LIMITED,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    ErrorObject,
    Id,
    Malformed,
    Message,
    MessageBatch,
    Notification,
    Request,
    Response,
    RpcError,
    with_reason,
)
