"""Files that clients give, to agents whose input has a place for them."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core import projection
from gateway.core.errors import Unsupported
from gateway.core.files import Attachment, reference
from gateway.core.types import Agent, AgentCapabilities, Answer, Artifact, Json, JsonObject, Run, Thread
from gateway.runs import Engine
from tests.support.scripted import Scripted, engine, request, route

PNG = b"\x89PNG and so on"
BASE64 = base64.b64encode(PNG).decode()
DATA_URL = f"data:image/png;base64,{BASE64}"
STRING: JsonObject = {"type": "string"}
BLOCK: JsonObject = {
    "type": "object",
    "properties": {"type": {"const": "image_url"}, "image_url": {"type": "object", "properties": {"url": STRING}}},
}


def chat(content: JsonObject) -> JsonObject:
    """The schema of an agent whose messages have such content."""
    message = {
        "type": "object",
        "properties": {"role": {"enum": ["user", "assistant"]}, "content": content},
        "required": ["role", "content"],
    }
    return {"type": "object", "properties": {"messages": {"type": "array", "items": message}}, "required": ["messages"]}


BLOCKS = chat({"anyOf": [STRING, {"type": "array", "items": {"anyOf": [BLOCK, {"type": "object"}]}}]})
LOOK: JsonObject = {
    "type": "object",
    "properties": {"question": STRING, "image": STRING},
    "required": ["question", "image"],
}


def picture(name: str = "a.png", content: bytes = PNG, at: str | None = None) -> Attachment:
    return Attachment(name=name, media_type="image/png", content=content, at=at)


class Taker(Scripted):
    """An agent that notes what it is sent: its input, or what a client uploaded."""

    def __init__(self, schema: JsonObject, *, files: tuple[str, ...] = (), threads: bool = True) -> None:
        made = Agent(
            name="scripted",
            input_schema=schema,
            output_schema=projection.MESSAGE_OUTPUT_SCHEMA,
            text_input=projection.text_pointer(schema),
            capabilities=AgentCapabilities(threads=threads, interrupts=True, files=files),
        )
        super().__init__(self._take, agent=made)
        self.asks = False
        self.sent: list[Json] = []
        self.uploads: list[list[str]] = []

    async def _take(self, context: RunContext) -> None:
        self.sent.append((await context.recall(fresh=True)).input)
        self.uploads.append([file.name for file in await context.uploads()])
        context.emit(e.RunFinished())


@asynccontextmanager
async def taking(taker: Taker, **options: Any) -> AsyncIterator[Engine]:
    async with engine((route(**options), taker)) as gateway:
        now = time.time()
        await gateway.threads.create(Thread(id="t1", created_at=now, updated_at=now))
        yield gateway


async def said(gateway: Engine, words: str, *files: Attachment, thread: str | None = "t1", **more: Any) -> Run:
    """The run of a prompt with these files, once it has stopped."""
    started = await gateway.runs.start(request(input=None, prompt=words, thread=thread, **more), files=files)
    stopped = await gateway.runs.wait(started.id, 30)
    assert stopped is not None
    return stopped


async def test_a_prompt_is_a_message_before_its_picture_is_put_beside_it() -> None:
    taker = Taker(BLOCKS, threads=False)
    async with taking(taker, memory={"mode": "none"}) as gateway:
        stopped = await said(gateway, "what is it", picture())
        assert stopped.status == "success" and "uploads" not in stopped.losses
        blocks = [{"type": "text", "text": "what is it"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
        assert taker.sent == [{"messages": [{"role": "user", "content": blocks}]}]


async def test_a_picture_that_an_input_requires_is_not_asked_for_where_it_comes_with_the_prompt() -> None:
    taker = Taker(LOOK)
    async with taking(taker) as gateway:
        assert (await said(gateway, "what is it", picture())).status == "success"
        assert taker.sent == [{"question": "what is it", "image": BASE64}]


async def test_a_picture_that_an_input_requires_is_asked_for_in_a_form_and_taken_from_its_answer() -> None:
    taker = Taker(LOOK)
    async with taking(taker) as gateway:
        asking = await said(gateway, "what is it")
        (question,) = asking.interrupts
        assert question.answer_schema["required"] == ["image"]
        assert "image" in (question.message or "")
        await gateway.runs.answer(asking.id, Answer(value={"image": BASE64}))
        assert (await gateway.runs.wait(asking.id, 30)).status == "success"  # type: ignore[union-attr]
        assert taker.sent == [{"question": "what is it", "image": BASE64}]


async def test_a_file_too_many_is_refused_or_counted_and_the_rest_is_sent() -> None:
    async with taking(Taker(LOOK)) as gateway:
        with pytest.raises(Unsupported, match=r"no place for one more file \(b.png\)"):
            await said(gateway, "what", picture(), picture("b.png"))
    taker = Taker(LOOK)
    async with taking(taker, lossy="allow") as gateway:
        stopped = await said(gateway, "what", picture(), picture("b.png", b"b"), picture("c.png", b"c"))
        assert stopped.losses == {"uploads": 2}
        assert taker.sent == [{"question": "what", "image": BASE64}]
        assert len(await gateway.files.list(thread="t1")) == 1, "what the agent does not get is not kept"


async def test_a_file_in_the_request_that_is_kept_is_a_reference_there() -> None:
    async with taking(Taker(LOOK)) as gateway:
        text = {"type": "text", "text": "x"}
        creation: JsonObject = {"prompt": [text, {"type": "image", "data": BASE64}], "more": 1}
        stopped = await said(gateway, "x", picture(at="/prompt/1/data"), creation=creation)
        (stored,) = await gateway.files.list(thread="t1")
        kept = stopped.request.creation
        assert kept == {**creation, "prompt": [text, {"type": "image", "data": reference(stored)}]}
        assert BASE64.encode() not in msgspec.json.encode(stopped)


async def test_a_file_that_a_lossy_route_leaves_out_stays_in_the_request() -> None:
    async with taking(Taker({"type": "object", "properties": {"question": STRING}}), lossy="allow") as gateway:
        creation = {"prompt": [{"type": "image", "data": BASE64}]}
        stopped = await said(gateway, "x", picture(at="/prompt/0/data"), creation=creation)
        assert stopped.request.creation == creation and stopped.losses == {"uploads": 1}


async def test_a_file_that_found_no_place_stays_in_the_request() -> None:
    async with taking(Taker(LOOK), lossy="allow") as gateway:
        creation: JsonObject = {"prompt": [{"type": "image", "data": BASE64}, {"type": "image", "data": BASE64}]}
        given = picture(at="/prompt/0/data"), picture("b.png", at="/prompt/1/data")
        stopped = await said(gateway, "x", *given, creation=creation)
        first, second = stopped.request.creation["prompt"]
        assert first["data"] != BASE64 and second["data"] == BASE64 and stopped.losses == {"uploads": 1}


async def upload(gateway: Engine, name: str) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield name.encode()

    file = Artifact(id="", name=name, thread="t1", media_type="image/png", agent_created=False)
    await gateway.files.add(file, content())


async def test_a_copied_thread_has_the_files_that_clients_gave() -> None:
    taker = Taker(projection.MESSAGE_SCHEMA, files=("*/*",))
    async with taking(taker) as gateway:
        await upload(gateway, "up.png")
        await said(gateway, "x", picture())
        copy = await gateway.threads.copy("t1")
        await gateway.threads.delete("t1")
        await said(gateway, "y", thread=copy.id)
        assert [sorted(names) for names in taker.uploads] == [["a.png", "up.png"]] * 2
        found = await gateway.files.list(thread=copy.id)
        assert all(copy.id in file.url and file.url.endswith(file.id) and not file.agent_created for file in found)
        contents = [b"".join([chunk async for chunk in gateway.files.open(file.id)]) for file in found]
        assert sorted(contents) == sorted([PNG, b"up.png"])


async def test_on_a_copied_thread_the_newest_file_of_an_earlier_turn_is_taken_and_none_is_lost() -> None:
    taker = Taker(LOOK)
    async with taking(taker, memory={"mode": "none"}) as gateway:
        await said(gateway, "x", picture(content=b"old"))
        await said(gateway, "y", picture("b.png"))
        for thread in ("t1", (await gateway.threads.copy("t1")).id):
            stopped = await said(gateway, "z", thread=thread)
            assert "uploads" not in stopped.losses
            assert taker.sent[-1] == {"question": "z", "image": BASE64}
