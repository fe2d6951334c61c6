"""Requests to one Agent Connect server, and what its refusals mean."""

from __future__ import annotations

import asyncio
import math
from contextlib import AbstractAsyncContextManager

import msgspec

from adapters.agent_connect.options import AgentConnectTarget
from gateway.core.errors import AgentBroken, AgentError, AgentFailed, AgentTimeout
from gateway.core.types import Json, JsonObject
from gateway.transport.http import HttpClient, HttpResponse, StreamResponse, away, credentials_of, segment
from gateway.transport.refusal import page_title

MAX_EXPLANATION = 300
MAX_REFUSAL = 64 * 1024
_STREAMS = ("text/event-stream", "", "application/json", "text/plain", "application/octet-stream")

encode = msgspec.json.encode


class NotOffered(Exception):
    """The server refused a request in a way that leaves others to try. `reply` is the refusal to `where`."""

    def __init__(self, reply: HttpResponse, where: str) -> None:
        super().__init__(f"{reply.status} from {where}")
        self.reply = reply
        self.where = where

    def complaint(self) -> AgentError:
        """The error, if nothing else is left to try."""
        return complaint(self.reply, self.where)


class RemoteRun(msgspec.Struct, frozen=True):
    """The run as the agent knows it: the ids by which it is reached, kept in `Run.upstream`.

    `thread` only where the run was started on a thread: it decides the path. `thread_id` is what the agent calls
    the thread of any run. `questions` counts those that were answered and delivered.
    """

    run_id: str
    thread: str | None = None
    thread_id: str | None = None
    questions: int = 0

    @property
    def path(self) -> str:
        """The run's path below the target's URL."""
        run = f"/runs/{segment(self.run_id)}"
        return f"/threads/{segment(self.thread)}{run}" if self.thread else run

    def record(self) -> JsonObject:
        """For `set_upstream`."""
        record: JsonObject = {"run_id": self.run_id, "thread_id": self.thread_id}
        if self.thread:
            record["thread"] = self.thread
        if self.questions:
            record["questions"] = self.questions
        return record

    @classmethod
    def of(cls, record: JsonObject) -> RemoteRun | None:
        """Reads `record()`; None if there is no run in it."""
        run_id = record.get("run_id")
        if not isinstance(run_id, str):
            return None
        return cls(run_id, record.get("thread"), record.get("thread_id"), record.get("questions", 0))


class AgentConnectClient:
    """One server. `trace` is the W3C `traceparent` header that every request carries, if there is one."""

    def __init__(self, target: AgentConnectTarget) -> None:
        self._http = HttpClient(target.url, auth=credentials_of(target), timeout=target.request_timeout)

    async def send(
        self, method: str, path: str, body: bytes | None = None, *, trace: str | None = None
    ) -> HttpResponse:
        """A request that does not wait for the agent's work. Raises AgentGone, AgentTimeout, AgentBroken."""
        return await self._http.request(method, path, json=body, headers=_headers(trace))

    async def patient(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        timeout: float | None,
        trace: str | None = None,
    ) -> HttpResponse | None:
        """A request that may take as long as the agent works; None if that is over `timeout` seconds."""
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await self._http.request(method, path, json=body, headers=_headers(trace), timeout=math.inf)
        except TimeoutError:
            if not limit.expired():
                raise
            return None

    def stream(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        trace: str | None = None,
        timeout: float = math.inf,
        after: str = "",
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """Open an event stream; `timeout` seconds for its head (some servers hold it back until the first event).

        `after` is the id of the last event seen: servers that can go on from there, others ignore it.
        """
        headers = {"Accept": "text/event-stream, application/json"}
        if trace is not None:
            headers["traceparent"] = trace
        if after and after.isascii() and after.isprintable():
            headers["Last-Event-ID"] = after
        return self._http.stream(method, path, json=body, headers=headers, timeout=timeout)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()


def _headers(trace: str | None) -> dict[str, str]:
    accept = {"Accept": "application/json"}
    return accept if trace is None else {**accept, "traceparent": trace}


async def refusal(opened: StreamResponse) -> HttpResponse:
    """The whole of an answer that is not the stream that was asked for."""
    return HttpResponse(opened.status, opened.headers, await opened.read(MAX_REFUSAL))


def expect_stream(opened: StreamResponse, where: str) -> None:
    """Raises AgentBroken for what cannot be a stream. Servers that mislabel one are forgiven."""
    if opened.content_type not in _STREAMS:
        raise AgentBroken(f"{where} answered {opened.content_type} where an event stream was asked for")


def complaint(reply: HttpResponse, where: str) -> AgentError:
    """A refusal as an error: says which request, which status and why, as far as the agent told."""
    status = reply.status
    why = explanation(reply)
    said = f"{where} answered {status}{': ' if why else ''}{why}"
    if status in (401, 403):
        return AgentFailed(
            f"the agent does not accept the gateway's credentials: {where} answered {status}", detail=why
        )
    if status in (408, 504):
        return AgentTimeout(said)
    if status in (429, 502, 503):
        return away(said, status, reply.headers)
    if reply.redirected:
        return AgentBroken(f"{where} answered {status}: {reply.redirected}")
    if status < 400:
        return AgentBroken(said)
    return AgentFailed(said)


def explanation(reply: HttpResponse) -> str:
    """The agent's reason in a line: the string of the specification, or what servers in use send instead."""
    try:
        value = msgspec.json.decode(reply.body)
    except (ValueError, RecursionError):
        if reply.content_type not in ("", "text/plain", "application/json"):
            return page_title(reply.body) if "html" in reply.content_type else ""
        value = reply.body.decode("utf-8", "replace")
    text = " ".join(_reason(value).split())
    return text if len(text) <= MAX_EXPLANATION else f"{text[:MAX_EXPLANATION]}..."


def _reason(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, map(_mistake, value)))
    if isinstance(value, dict):
        for name in ("detail", "message", "description", "error", "title"):
            if value.get(name):
                return _reason(value[name])
    return ""


def _mistake(value: Json) -> str:
    """One entry of FastAPI's list of mistakes; the input it quotes is left out."""
    if not isinstance(value, dict):
        return str(value) if isinstance(value, str) else ""
    at = value.get("loc")
    place = "/".join(map(str, at)) if isinstance(at, list) else ""
    return f"{place}: {value['msg']}" if place and "msg" in value else str(value.get("msg", ""))
