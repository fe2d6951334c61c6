"""Calls an agent's HTTP interface: its paths, its answers as messages, its errors as ours."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from adapters.agent_protocol import wire
from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.upstream import error_text
from gateway.core.delta import encode
from gateway.core.errors import AgentBroken, AgentFailed, AgentTimeout, Conflict, Invalid, NotFound
from gateway.core.types import JsonObject
from gateway.transport.http import FilePart, HttpClient, HttpResponse, StreamResponse, away, credentials_of, segment
from gateway.transport.refusal import page_title

_M = TypeVar("_M", bound=BaseModel)
AP_V1 = "/ap/v1"
PAGE_SIZE = 100
MAX_PAGES = 1000
DOWNLOAD_IDLE_SECONDS = 60.0
"""The longest silence within a file."""
_NO_STEP_LEFT = (404, 500)
"""The statuses that servers in use answer to a step after the last. Any other is about the request or the server."""


class StepRefused(AgentFailed):
    """The agent answered a step with an error that does not tell whether it failed or has no step left."""


class StepUnfit(AgentFailed):
    """The agent refused the body of a step (422) and has not executed it. `detail` is its reason."""


class Api:
    """One agent's operations; made once a route, used by many runs at once.

    Every call raises what HttpClient raises, AgentFailed with the agent's own words where it answers an error, and
    AgentBroken where its answer is not what the operation gives. `trace` is a `traceparent` header.
    """

    def __init__(self, target: AgentProtocolTarget) -> None:
        root = target.url.removesuffix(AP_V1)
        given = AP_V1 if root != target.url else ""
        if target.agent:
            root = f"{root}/{segment(target.agent)}"
        both = {"auto": (AP_V1, ""), "ap_v1": (AP_V1,), "legacy": ("",)}[target.base_path]
        self._prefixes = (given,) if given else both
        self._prefix = self._prefixes[0] if len(self._prefixes) == 1 else None
        self._artifacts: str | None = None
        self._client = HttpClient(root, auth=credentials_of(target), timeout=target.request_timeout)
        self._slow = target.step_timeout

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def probe(self) -> None:
        """Find out whether the agent is there, and below which path. Raises NotFound if below none."""
        for prefix in self._prefixes:
            path = f"{prefix}/agent/tasks"
            response = await self._client.request("GET", path, params={"current_page": 1, "page_size": 1})
            if response.status == 404:
                continue
            if response.status in (401, 403):
                raise AgentBroken(f"the agent refuses the gateway's credentials ({response.status})")
            _there(response, "the list of its tasks")
            if response.status < 300:
                _json(response, "the list of its tasks")
            elif response.status not in (405, 501):  # a server that cannot list its tasks may do the rest
                said = _said(response)
                raise AgentBroken(f"the agent answers {response.status} to the list of its tasks{said}")
            self._prefix = prefix
            return
        tried = " and ".join(f"{prefix}/agent/tasks" for prefix in self._prefixes)
        raise NotFound(f"there is no Agent Protocol agent at this address (404 for {tried})")

    async def create_task(self, body: JsonObject, trace: str | None) -> wire.Task:
        """`POST tasks`."""
        response = await self._request("POST", "", trace, body, timeout=self._slow)
        return _read(wire.Task, _checked(response, "the task"), "the task")

    async def task(self, task: str, trace: str | None) -> wire.Task:
        """`GET tasks/{task_id}`. Raises NotFound."""
        response = await self._request("GET", f"/{_id(task)}", trace)
        if response.status == 404:
            raise NotFound(f"the agent does not know the task {task} any more")
        return _read(wire.Task, _checked(response, "the task"), "the task")

    async def execute(self, task: str, body: JsonObject, trace: str | None) -> wire.Step:
        """`POST steps`. Raises AgentFailed if the agent says it failed, StepRefused where that may be its end.

        Raises StepUnfit for a body that it does not take, Conflict while it executes another step.
        """
        try:
            response = await self._request("POST", f"/{_id(task)}/steps", trace, body, timeout=self._slow)
        except AgentTimeout as error:
            raise AgentTimeout(f"the agent's step was not done within {self._slow:g} s", detail=str(error)) from error
        if response.status == 422:
            raise StepUnfit(f"the agent answered 422 to a step{_said(response)}", detail=_said(response)[2:])
        if response.status == 409:
            raise Conflict(f"the agent is busy: it answered 409 to a step{_said(response)}")
        _there(response, "a step")
        if response.status >= 400:
            refused = StepRefused if response.status in _NO_STEP_LEFT else AgentFailed
            raise refused(f"the agent answered {response.status} to a step{_said(response)}")
        data = _checked(response, "a step")
        if isinstance(data, dict) and "step_id" not in data and data.get("error"):
            raise StepRefused(f"the agent failed: {error_text('', response.body)}")
        return _read(wire.Step, data, "a step")

    async def step(self, task: str, step: str, trace: str | None) -> wire.Step | None:
        """`GET steps/{step_id}`, None if it is not known; from the list where the server answers with another one."""
        response = await self._request("GET", f"/{_id(task)}/steps/{_id(step)}", trace)
        if response.status == 200:
            found = _read(wire.Step, _checked(response, "a step"), "a step")
            if found.step_id == step:
                return found
        return next((listed for listed in await self.steps(task, trace) if listed.step_id == step), None)

    async def steps(self, task: str, trace: str | None) -> list[wire.Step]:
        """`GET steps`, all pages; old servers list ids, whose steps are then asked for one by one."""
        path = f"/{_id(task)}/steps"
        found: list[wire.Step] = []
        for item in await self._list(path, "steps", "step_id", trace):
            if isinstance(item, str):
                response = await self._request("GET", f"{path}/{_id(item)}", trace)
                step = _read(wire.Step, _checked(response, "a step"), "a step")
                if step.step_id != item:
                    raise AgentBroken("the agent answers with another step than the one asked for")
            else:
                step = _read(wire.Step, item, "a step")
            found.append(step)
        return found

    async def artifacts(self, task: str, trace: str | None) -> list[wire.TaskArtifact]:
        """`GET artifacts`, all pages or a bare array."""
        path = await self._artifacts_path(task, trace)
        items = await self._list(path, "artifacts", "artifact_id", trace)
        return [_read(wire.TaskArtifact, wire.named(item), "an artifact") for item in items]

    async def upload(
        self, task: str, file: FilePart, relative_path: str | None, trace: str | None
    ) -> wire.TaskArtifact:
        """`POST artifacts`."""
        path = await self._artifacts_path(task, trace)
        fields = {"relative_path": relative_path} if relative_path else {}
        response = await self._client.upload(
            await self._path(path), fields, [file], headers=_headers(trace), timeout=self._slow
        )
        return _read(wire.TaskArtifact, _checked(response, f"the file {file.filename!r}"), "an artifact")

    @contextlib.asynccontextmanager
    async def download(self, task: str, artifact: str, trace: str | None) -> AsyncIterator[StreamResponse]:
        """`GET artifacts/{artifact_id}`, whatever its status."""
        path = await self._path(f"{await self._artifacts_path(task, trace)}/{_id(artifact)}")
        headers = _headers(trace, "*/*")
        async with self._client.stream("GET", path, headers=headers, idle_timeout=DOWNLOAD_IDLE_SECONDS) as response:
            yield response

    # below the operations

    async def _artifacts_path(self, task: str, trace: str | None) -> str:
        """`/artifacts`, or the RFC's `/artifact` where a legacy server has only that."""
        if self._artifacts is None:
            self._artifacts = "artifacts"
            if not await self._prefix_now():
                for word in ("artifacts", "artifact"):
                    response = await self._request("GET", f"/{_id(task)}/{word}", trace)
                    if response.status < 300:
                        self._artifacts = word
                        break
        return f"/{_id(task)}/{self._artifacts}"

    async def _prefix_now(self) -> str:
        if self._prefix is None:
            await self.probe()
        return self._prefix or ""

    async def _path(self, path: str) -> str:
        return f"{await self._prefix_now()}/agent/tasks{path}"

    async def _request(
        self,
        method: str,
        path: str,
        trace: str | None,
        body: JsonObject | None = None,
        *,
        params: dict[str, str | int] | None = None,
        timeout: float | None = None,
    ) -> HttpResponse:
        return await self._client.request(
            method,
            await self._path(path),
            json=None if body is None else encode(body),
            headers=_headers(trace),
            params=params,
            timeout=timeout,
        )

    async def _list(self, path: str, name: str, key: str, trace: str | None) -> list[Any]:
        """Every item of a list, each once. `total_pages` is ignored: servers in use round it down."""
        found: dict[str, Any] = {}
        for number in range(1, MAX_PAGES + 1):
            params: dict[str, str | int] = {"current_page": number, "page_size": PAGE_SIZE}
            response = await self._request("GET", path, trace, params=params)
            data = _checked(response, f"the list of {name}")
            items = data.get(name) if isinstance(data, dict) else data
            if not isinstance(items, list):
                raise AgentBroken(f"the agent's list of {name} is none")
            before = len(found)
            for item in items:
                found.setdefault(str(item.get(key) if isinstance(item, dict) else item), item)
            pagination = data.get("pagination") if isinstance(data, dict) else None
            total = pagination.get("total_items") if isinstance(pagination, dict) else None
            bare = isinstance(data, list) or pagination is None
            if bare or len(found) == before or (isinstance(total, int) and len(found) >= total):
                return list(found.values())
        raise AgentBroken(f"the agent's list of {name} does not end")


def _headers(trace: str | None, accept: str = "application/json") -> dict[str, str]:
    return {"Accept": accept} | ({"traceparent": trace} if trace else {})


def _id(given: str) -> str:
    """An agent's id as a path segment. Raises AgentBroken if it cannot be one."""
    try:
        return segment(given)
    except Invalid as error:
        raise AgentBroken(f"the agent uses {given!r} as an id") from error


def _there(response: HttpResponse, what: str) -> None:
    """Raises AgentGone, AgentTimeout for the answers of a proxy that does not reach the agent, or of one overloaded;
    AgentBroken for a redirect.
    """
    said = f"the agent answered {response.status} to {what}{_said(response)}"
    if response.status in (429, 502, 503):
        raise away(said, response.status, response.headers)
    if response.status in (408, 504):
        raise AgentTimeout(said)
    if response.redirected:
        raise AgentBroken(f"the agent answered {response.status} to {what}: {response.redirected}")


def _said(response: HttpResponse) -> str:
    page = "html" in response.content_type
    said = page_title(response.body) if page else error_text(response.content_type, response.body)
    return f": {said}" if said else ""


def _checked(response: HttpResponse, what: str) -> Any:
    """The JSON of a success. Raises AgentGone, AgentTimeout, AgentFailed or AgentBroken."""
    _there(response, what)
    if response.status >= 400:
        raise AgentFailed(f"the agent answered {response.status} to {what}{_said(response)}")
    return _json(response, what)


def _json(response: HttpResponse, what: str) -> Any:
    try:
        return response.json()
    except AgentBroken as error:
        raise AgentBroken(f"the agent's answer is not {what}: it is no JSON document", detail=error.detail) from error


def _read(model: type[_M], data: Any, what: str) -> _M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "/".join(map(str, first["loc"]))
        said = "should be a JSON object" if first["type"] == "model_type" else first["msg"].removeprefix("Input ")
        message = f"the agent's answer is not {what}: {f'{place}:' if place else 'it'} {said}"
        raise AgentBroken(message, detail=str(data)[:500]) from error
