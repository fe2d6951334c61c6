"""Artifacts of a task: listed, uploaded in bounded memory, downloaded."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator

from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from adapters.agent_protocol import codec
from adapters.agent_protocol.inbound.http import answer, page
from gateway.contract import Gateway
from gateway.core.errors import Invalid, NotFound, TooLarge, Unavailable
from gateway.core.types import Artifact, Thread
from gateway.transport.asgi import HttpRequest, Reply, WhileConnected

CHUNK = 256 * 1024
_FORM_SLACK = 64 * 1024  # boundaries, part headers and relative_path beside the file itself
_FIELD = 16 * 1024


class _Oversized(MultiPartException):
    """The form outgrew its limit. A MultiPartException, so that the parser closes its temporary files."""


async def listed(request: HttpRequest, gateway: Gateway, task: Thread) -> Reply:
    """`GET artifacts`."""
    wanted = page(request)
    artifacts = list(await gateway.files.list(thread=task.id))
    items = [codec.artifact_json(artifact) for artifact in wanted.of(artifacts)]
    return answer(codec.page_json("artifacts", items, len(artifacts), wanted.number, wanted.size))


async def upload(request: HttpRequest, gateway: Gateway, task: Thread, limit: int) -> Reply:
    """`POST artifacts`: multipart `file` and perhaps `relative_path`.

    The form goes to a temporary file first, since `relative_path` may follow `file`. Raises Invalid, TooLarge, and
    Unavailable where there is no room for that file.
    """
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
        return answer(codec.artifact_json(await gateway.files.add(artifact, _chunks(file))))
    finally:
        await form.close()


async def download(request: HttpRequest, gateway: Gateway, task: Thread, artifact_id: str) -> None:
    """`GET artifacts/{artifact_id}`: the bytes, with headers that keep a browser from showing them."""
    artifacts = await gateway.files.list(thread=task.id)
    artifact = next((found for found in artifacts if found.id == artifact_id), None)
    if artifact is None:
        raise NotFound(f"Artifact with {artifact_id} not found.")
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
        content = gateway.files.open(artifact.id)
        try:
            async for chunk in content:
                await request.sent(chunk)
        finally:
            if isinstance(content, AsyncGenerator):
                await content.aclose()
        await request.end()


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
