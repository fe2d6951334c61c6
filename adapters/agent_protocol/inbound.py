"""Serves clients of Agent Protocol (openapi.yml v1, and the RFC): a task is a thread, a step one leg of a run."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from adapters.agent_protocol import codec, requests, wire
from adapters.agent_protocol.codec import ERRORS
from adapters.agent_protocol.options import AgentProtocolServe
from adapters.agent_protocol.steps import Leg, announced, cut, listed, run_steps, step_json
from adapters.agent_protocol.upstream import CreatedTask
from gateway.access import serving
from gateway.contract import Gateway
from gateway.core.delta import encode
from gateway.core.errors import (
    Conflict,
    InterlinguaError,
    Invalid,
    NotFound,
    TooLarge,
    Unavailable,
    Unsupported,
    let_go_of,
    lookup,
)
from gateway.core.types import (
    Agent,
    Answer,
    Artifact,
    JsonObject,
    Run,
    RunQuery,
    RunRequest,
    RunStatus,
    Thread,
    ThreadQuery,
    agent_id,
)
from gateway.transport.asgi import ClientGone, HttpRequest, Reply, RestEndpoint, RestOperation, WhileConnected, refusals
from gateway.wire import strict

# --- bodies, pages and errors ----------------------------------------------------------------------------------------

_M = TypeVar("_M", bound=BaseModel)
INT32 = 2**31 - 1


def refusal(error: InterlinguaError) -> Reply:
    """An error before the run: `{"message": ...}`, with what is wrong where in `detail` if a value is."""
    content: JsonObject = {"message": str(error)}
    if isinstance(error, Invalid) and error.path:
        content["detail"] = [{"loc": error.path.strip("/").split("/"), "msg": str(error)}]
    return Reply(lookup(ERRORS, error), encode(content), refusals.headers(error))


def answer(content: JsonObject) -> Reply:
    return Reply(200, encode(content))


async def body(request: HttpRequest, model: type[_M], limit: int) -> _M:
    """The body as `model`; an absent, empty or `null` one is the empty object. Raises Invalid, TooLarge, ClientGone."""
    raw = (await request.body(limit)).strip()
    if raw in (b"", b"null"):
        return model()
    try:
        found = model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = "".join(f"/{step}" for step in first["loc"])
        raise Invalid(f"{path or 'body'}: {first['msg']}", path=path) from error
    strict.check(raw, "body: Invalid JSON")
    return found


@dataclass(frozen=True)
class PageAsked:
    """The page of a list that a client asks for: `number` from 1, `size` items."""

    number: int
    size: int

    @property
    def start(self) -> int:
        """How many items come before it."""
        return (self.number - 1) * self.size

    def of(self, items: list[Any]) -> list[Any]:
        """The page's items."""
        return items[self.start : self.start + self.size]


def page(request: HttpRequest) -> PageAsked:
    """`current_page` (default 1) and `page_size` (default 10). Raises Invalid for anything but int32 from 1 up."""

    def number(name: str, default: int) -> int:
        text = request.query(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= INT32):
            raise Invalid(f"{name} must be a number from 1 up", path=f"/{name}")
        return int(text)

    return PageAsked(number("current_page", 1), number("page_size", 10))


log = logging.getLogger(__name__)

BUSY = "a step of this task is being executed; wait until it has ended"


# --- the operations --------------------------------------------------------------------------------------------------


class TaskOperations:
    """The operations, on the gateway as one client may see it."""

    def __init__(self, options: AgentProtocolServe, gateway: Gateway) -> None:
        self._options = options
        self._gateway = gateway

    # tasks

    async def create_task(self, request: HttpRequest) -> Reply:
        """`POST tasks` (createAgentTask). Nothing is executed; an agent of this protocol gets the task at once."""
        agent = self._agent_name(request)
        asked = await body(request, wire.TaskRequestBody, self._options.max_body)
        given = asked.model_dump(exclude_unset=True)
        made = await self._created(agent, given)
        now = time.time()
        thread = Thread(
            id=str(uuid.uuid4()),
            created_at=now,
            updated_at=now,
            protocol=codec.PROTOCOL,
            agent=agent,
            attributes={codec.TASK: given} | ({codec.STEPS: made.steps} if made and made.steps else {}),
            upstream={agent: made.record} if made else {},
        )
        return answer(codec.task_json(await self._gateway.threads.create(thread), []))

    async def _created(self, agent: str, given: JsonObject) -> CreatedTask | None:
        """Create the task at an agent that speaks this protocol; None if it gets the task with its first step."""
        try:
            found = await self._gateway.backchannel.relay(
                agent, codec.PROTOCOL, codec.CREATE, msgspec.Raw(encode(given))
            )
        except Unsupported:
            return None
        except InterlinguaError as error:
            log.info("agent_protocol: agent %s has not been given a task: %s", agent, error)
            return None
        return msgspec.json.decode(found, type=CreatedTask)

    async def list_tasks(self, request: HttpRequest) -> Reply:
        """`GET tasks` (listAgentTasks), oldest first."""
        agent, wanted = self._agent_name(request), page(request)
        query = ThreadQuery(
            agent=agent, protocol=codec.PROTOCOL, limit=wanted.size, offset=wanted.start, oldest_first=True
        )
        total = await self._gateway.threads.count(query)
        found = await self._gateway.threads.list(query) if wanted.start < total else []
        tasks = [codec.task_json(thread, await self._gateway.files.list(thread=thread.id)) for thread in found]
        return answer(codec.page_json("tasks", tasks, total, wanted.number, wanted.size))

    async def get_task(self, request: HttpRequest) -> Reply:
        """`GET tasks/{task_id}` (getAgentTask)."""
        thread = await self._task(request)
        return answer(codec.task_json(thread, await self._gateway.files.list(thread=thread.id)))

    # steps

    async def execute_step(self, request: HttpRequest) -> Reply:
        """`POST steps` (executeAgentTaskStep): start a run, or answer its question, and wait until it stops.

        Raises Conflict while a step is being executed, Invalid if the answer does not fit (it can be given again).
        """
        task = await self._task(request)
        asked = await body(request, wire.StepRequestBody, self._options.max_body)
        agent = await self._agent(task)
        newest = await self._gateway.runs.list(RunQuery(thread=task.id, limit=1))
        if not newest or newest[0].status.ended:
            run = await self._start(request, task, agent, asked, first=not newest)
            question = None
        elif newest[0].status is RunStatus.INTERRUPTED and newest[0].interrupts:
            run, question = newest[0], newest[0].interrupts[0]
            value = requests.answer_value(question, asked.input, asked.additional_input or {})
            try:
                await self._gateway.runs.answer(run.id, Answer(value=value), question.id)
            except Invalid as error:  # its path is inside of the answer
                given = "/additional_input" if asked.input is None else "/input"
                said = str(error).removeprefix("/: ")
                raise Invalid(f"the answer does not fit: {said}", path=given + error.path) from error
        else:
            raise Conflict(BUSY)
        await self._wait(request, run.id)
        run, legs = await self._legs(run.id)
        begun = [leg.index for leg in legs if question and leg.answered and leg.answered.id == question.id]
        last = begun[-1] if begun else 0 if question is None else len(legs) - 1
        return answer(step_json(task.id, run, legs[: last + 1], agent))

    async def _start(
        self, request: HttpRequest, task: Thread, agent: Agent, asked: wire.StepRequestBody, *, first: bool
    ) -> Run:
        created = codec.task_body(task)
        text = requests.prompt(created.get("input"), asked.input, first=first)
        more = {**(created.get("additional_input") or {}), **(asked.additional_input or {})}
        fields, config, metadata = requests.sorted_out(agent, more)
        planned = first and codec.planned(task) is not None
        step = RunRequest(
            agent=agent.name,
            input=fields or None,
            prompt=text,
            protocol=codec.PROTOCOL,
            thread=task.id,
            config=config,
            metadata=metadata,
            traceparent=request.header("traceparent"),
            creation=asked.model_dump(exclude_unset=True),
            attributes={codec.STEPS: task.id} if planned else {},
        )
        try:
            return await self._gateway.runs.start(step)
        except Conflict:  # another one began meanwhile
            raise Conflict(BUSY) from None

    async def _wait(self, request: HttpRequest, run_id: str) -> None:
        """Wait until the run stops. If the client goes first the run is cancelled, where so configured.

        Raises ClientGone then.
        """
        try:
            with WhileConnected(request):
                await self._gateway.runs.wait(run_id)
        except ClientGone:
            if self._options.on_disconnect == "cancel":
                await self._gateway.runs.cancel(run_id, reason="the client went away")
            raise
        except asyncio.CancelledError:  # by the server: the gateway stops, and the request has had its time
            raise let_go_of(run_id) from None

    async def list_steps(self, request: HttpRequest) -> Reply:
        """`GET steps` (listAgentTaskSteps): executed ones in order, then what the agent has announced."""
        task, wanted = await self._task(request), page(request)
        steps = await self._steps(task)
        items = cast("list[JsonObject]", wanted.of(steps))
        return answer(codec.page_json("steps", items, len(steps), wanted.number, wanted.size))

    async def get_step(self, request: HttpRequest) -> Reply:
        """`GET steps/{step_id}` (getAgentTaskStep)."""
        task, wanted = await self._task(request), request.path_params["step_id"]
        for step in await self._steps(task):
            if step["step_id"] == wanted:
                return answer(step)
        raise NotFound(f"Step with {wanted} not found.")

    async def _steps(self, task: Thread) -> list[JsonObject]:
        agent = await self._agent(task)
        count = await self._gateway.runs.count(RunQuery(thread=task.id))
        query = RunQuery(thread=task.id, limit=max(count, 1), oldest_first=True)
        steps: list[JsonObject] = []
        runs = await self._gateway.runs.list(query) if count else []
        if not runs:
            return listed(task)
        for found in runs:
            run, legs = await self._legs(found.id)
            steps += run_steps(task.id, run, legs, agent)
            if found is runs[-1]:
                steps += announced(task, run, legs)
        return steps

    async def _legs(self, run_id: str) -> tuple[Run, list[Leg]]:
        events = await self._gateway.runs.events(run_id)
        run = await self._gateway.runs.get(run_id)  # after its events, so that its output is there if its end is
        return run, cut(event for _, event in events)

    # artifacts

    async def list_artifacts(self, request: HttpRequest) -> Reply:
        """`GET artifacts` (listAgentTaskArtifacts)."""
        task = await self._task(request)
        wanted = page(request)
        artifacts = list(await self._gateway.files.list(thread=task.id))
        items = [codec.artifact_json(artifact) for artifact in wanted.of(artifacts)]
        return answer(codec.page_json("artifacts", items, len(artifacts), wanted.number, wanted.size))

    async def upload_artifact(self, request: HttpRequest) -> Reply:
        """`POST artifacts` (uploadAgentTaskArtifacts): multipart `file` and perhaps `relative_path`.

        The form goes to a temporary file first, since `relative_path` may follow `file`. Raises Invalid, TooLarge, and
        Unavailable where there is no room for that file.
        """
        task, limit = await self._task(request), self._options.max_upload
        form = await _form(request, limit)
        try:
            file = form.get("file")
            path = form.get("relative_path")
            if not isinstance(file, UploadFile):
                raise Invalid("file: a file is required", path="/file")
            if isinstance(path, UploadFile):
                raise Invalid("relative_path: text is required", path="/relative_path")
            if (file.size or 0) > limit:
                raise TooLarge(f"the file is larger than {limit} bytes")
            name = codec.file_label(file.filename)
            media = codec.media_type(file.content_type)
            if media == codec.UNKNOWN_MEDIA:
                media = codec.media_type(mimetypes.guess_type(name)[0])
            artifact = Artifact(
                id="",
                name=name,
                thread=task.id,
                relative_path=codec.relative_path(path),
                media_type=media,
                agent_created=False,
            )
            return answer(codec.artifact_json(await self._gateway.files.add(artifact, _chunks(file))))
        finally:
            await form.close()

    async def download_artifact(self, request: HttpRequest) -> None:
        """`GET artifacts/{artifact_id}` (downloadAgentTaskArtifact): the bytes, with headers that keep a browser from
        showing them.
        """
        task, wanted = await self._task(request), request.path_params["artifact_id"]
        artifacts = await self._gateway.files.list(thread=task.id)
        artifact = next((found for found in artifacts if found.id == wanted), None)
        if artifact is None:
            raise NotFound(f"Artifact with {wanted} not found.")
        with WhileConnected(request):
            await request.begin(
                200,
                [
                    (b"content-disposition", codec.disposition(artifact.name).encode("latin-1")),
                    (b"content-length", b"%d" % artifact.size),
                    (b"x-content-type-options", b"nosniff"),
                    (b"content-type", codec.media_type(artifact.media_type).encode("latin-1")),
                ],
            )
            content = self._gateway.files.open(artifact.id)
            try:
                async for chunk in content:
                    await request.sent(chunk)
            finally:
                if isinstance(content, AsyncGenerator):
                    await content.aclose()
            await request.end()

    # who is meant

    def _agent_name(self, request: HttpRequest) -> str:
        """The agent of the path, or the only one there is. Raises NotFound with the names."""
        names = self._gateway.agents.names(codec.PROTOCOL)
        wanted = request.agent
        for name in names:
            if wanted in (name, agent_id(name)) or (wanted is None and len(names) == 1):
                return name
        have = f"have {', '.join(names)}" if names else "there are none"
        if wanted is not None:
            raise NotFound(f"Agent with {wanted} not found; {have}.")
        raise NotFound(f"The path must name the agent, as in /{{agent}}/ap/v1/agent/tasks; {have}.")

    async def _agent(self, task: Thread) -> Agent:
        return await self._gateway.agents.get(task.agent or "", codec.PROTOCOL)

    async def _task(self, request: HttpRequest) -> Thread:
        """The task of the path. Raises NotFound, also for a thread of another agent or protocol."""
        agent, wanted = self._agent_name(request), request.path_params["task_id"]
        try:
            thread = await self._gateway.threads.get(wanted)
        except NotFound:
            thread = None
        if thread is None or thread.protocol != codec.PROTOCOL or thread.agent != agent:
            raise NotFound(f"Task with {wanted} not found.")
        return thread


# --- uploaded files, in bounded memory ------------------------------------------------------------------------------


CHUNK = 256 * 1024
_FORM_SLACK = 64 * 1024  # boundaries, part headers and relative_path beside the file itself
_FIELD = 16 * 1024


class _Oversized(MultiPartException):
    """The form outgrew its limit. A MultiPartException, so that the parser closes its temporary files."""


async def _chunks(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(CHUNK):
        yield chunk


async def _form(request: HttpRequest, limit: int) -> FormData:
    whole = limit + _FORM_SLACK
    if not request.announces(whole):
        await request.discard()
        raise TooLarge(f"the file is larger than {limit} bytes")
    if not (request.header("content-type") or "").lower().startswith("multipart/form-data"):
        raise Invalid("the body must be multipart/form-data with a part `file`", path="/file")
    headers = Headers(scope=request.scope)
    parser = MultiPartParser(headers, _limited(request, whole), max_files=1, max_fields=20, max_part_size=_FIELD)
    try:
        return await parser.parse()
    except _Oversized as error:
        await request.discard()
        raise TooLarge(f"the file is larger than {limit} bytes") from error
    except MultiPartException as error:
        raise Invalid(f"the form cannot be read: {error.message}", path="/file") from error
    except OSError as error:
        raise Unavailable("there is no room for the file now", detail=str(error)) from error


async def _limited(request: HttpRequest, limit: int) -> AsyncGenerator[bytes, None]:
    read = 0
    async for chunk in request.chunks():
        read += len(chunk)
        if read > limit:
            raise _Oversized("too large")
        yield chunk


PREFIXES = ("/ap/v1", "", "/ap/v1/ap/v1")
"""The specification's, the RFC's older one, and what a client makes of a base address that already has it."""

UNDECLARED = "{method} is not an operation of this path"
"""See `RestEndpoint`."""


class AgentProtocolInbound:
    """See `gateway.contract.Inbound`."""

    def __init__(self, options: AgentProtocolServe, gateway: Gateway) -> None:
        self._options = options
        self._gateway = gateway

    def routes(self) -> Sequence[BaseRoute]:
        """See `Inbound.routes`. Below `[/{agent}]`, `/ap/v1/agent/tasks...` and the RFC's `/agent/tasks...`."""
        serve = serving(lambda gateway: TaskOperations(self._options, gateway), self._gateway, self._options)
        task = "/agent/tasks/{task_id}"
        paths: dict[str, dict[str, RestOperation[TaskOperations]]] = {
            "/agent/tasks": {"GET": TaskOperations.list_tasks, "POST": TaskOperations.create_task},
            task: {"GET": TaskOperations.get_task},
            f"{task}/steps": {"GET": TaskOperations.list_steps, "POST": TaskOperations.execute_step},
            f"{task}/steps/{{step_id}}": {"GET": TaskOperations.get_step},
        }
        for word in ("artifacts", "artifact"):
            paths[f"{task}/{word}"] = {"GET": TaskOperations.list_artifacts, "POST": TaskOperations.upload_artifact}
            paths[f"{task}/{word}/{{artifact_id}}"] = {"GET": TaskOperations.download_artifact}
        return [
            Route(agent + prefix + path, RestEndpoint(operations, serve, refusal, undeclared=UNDECLARED))
            for agent in ("", "/{agent}")
            for prefix in PREFIXES
            for path, operations in paths.items()
        ]

    def refusal(self, error: InterlinguaError) -> Response:
        return refusal(error).for_starlette()
