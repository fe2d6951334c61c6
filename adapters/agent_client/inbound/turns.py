"""Prompt turns: from the client's request to the run that it starts, and to the answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from adapters.agent_client import wire
from adapters.agent_client.codec import agents, content, questions
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.contract import Gateway
from gateway.core import delta, files, projection
from gateway.core.errors import InterlinguaError, Invalid, NotFound, Unsupported
from gateway.core.types import Agent, Interrupt, Run, StopReason
from gateway.wire import jsonrpc

MARK: Final = "turn"
"""The run's attribute that says which turn started it."""
FOLDER: Final = "cwd"
"""Key of a thread's metadata: where its client works, by which sessions are listed."""
OWN: Final = (FOLDER, "traceparent", "tracestate", "baggage")
"""Keys that are no metadata of runs; the others are the trace's (docs: extensibility)."""
END_TURN: Final[JsonObject] = {"stopReason": StopReason.END_TURN.value}
CANCELLED: Final[JsonObject] = {"stopReason": StopReason.CANCELLED.value}


class PromptTurn:
    """A prompt, until the work is over that it began.

    mark, run: which run it started, or answers a question of.
    answers: the id of the question that it answers.
    taken: whether it has been answered, and its work goes on: of version 2.
    over: how it is answered; of version 2, how the work ended.
    """

    run: str | None = None
    answers: str | None = None
    taken = False

    def __init__(self, *, cancelled: bool = False) -> None:
        self.mark = os.urandom(16).hex()
        self.cancelled = cancelled
        self.over: asyncio.Future[JsonObject | jsonrpc.RpcError] = asyncio.get_running_loop().create_future()

    def started(self, run: str) -> None:
        self.run = run

    def answering(self, run: str, question: str) -> None:
        self.run, self.answers = run, question

    def cancel(self) -> None:
        """Mark it as cancelled: its answer says so, whatever the run ends with."""
        self.cancelled = True

    def end(self, how: JsonObject | jsonrpc.RpcError) -> None:
        """Answer the prompt, once."""
        if self.cancelled:
            how = CANCELLED if isinstance(how, jsonrpc.RpcError) else {**how, **CANCELLED}
        if not self.over.done():
            self.over.set_result(how)


class V2PromptTurn(PromptTurn):
    """A prompt of a client of version 2, which is answered when it is taken.

    blocks: what was said.
    message: the id of what was said, where that does not follow from the run.
    accepted: how it is answered.   answered: whether that is on its way, so that the client may be told more.
    """

    def __init__(self, blocks: Sequence[JsonObject], *, cancelled: bool = False) -> None:
        super().__init__(cancelled=cancelled)
        self.blocks = blocks
        self.message: str | None = None
        self.accepted: asyncio.Future[JsonObject | jsonrpc.RpcError] = asyncio.get_running_loop().create_future()
        self.answered = asyncio.Event()

    def accept(self, how: JsonObject | jsonrpc.RpcError) -> None:
        """Answer it, once."""
        if not self.accepted.done():
            self.accepted.set_result(how)
            self.taken = True

    def heard(self) -> None:
        """Answer it with an id of its own, since it started nothing."""
        self.message = self.message or self.mark
        self.accept({"messageId": self.message})

    def end(self, how: JsonObject | jsonrpc.RpcError) -> None:
        """A prompt that was not accepted is answered now."""
        super().end(how)
        self.accept(how if isinstance(how, jsonrpc.RpcError) else {"messageId": self.message or self.mark})


class PromptInput(Struct):
    """The content of a prompt: its text, and its files, of which the first is at `place`."""

    text: str
    files: list[files.Attachment] = []
    place: str = ""


async def said(gateway: Gateway, run: Run, agent: Agent | None) -> list[JsonObject]:
    """The blocks that started a run, whatever its client's protocol. Files that are gone are left out."""
    request = run.request
    if request.protocol == PROTOCOL and isinstance(request.creation.get("prompt"), list):
        blocks = [block for block in request.creation["prompt"] if isinstance(block, dict)]
        return await _whole(gateway, blocks, request.files) if request.files else blocks
    text = request.prompt or projection.text_of(request.input, agent.text_input if agent else None)
    return [content.block_of(text)] if text else []


async def _whole(gateway: Gateway, blocks: list[JsonObject], ids: Sequence[str]) -> list[JsonObject]:
    """The blocks with their files, which are stored beside them."""
    found: list[JsonObject] = []
    for block in blocks:
        try:
            contents = {
                each: b"".join([chunk async for chunk in gateway.files.open(each)])
                for each in files.referred(block, ids)
            }
        except NotFound:
            continue
        found.append(files.fill(block, contents) if contents else block)
    return found


def refusal(error: InterlinguaError) -> Exception:
    """Make the error of a prompt that could not be taken. Unsupported content is no unknown method."""
    if isinstance(error, Unsupported):
        return jsonrpc.RpcError(jsonrpc.INVALID_PARAMS, str(error), {"code": error.code})
    return error


def message_id(run: str) -> str:
    return f"{run}-user"


def answer_id(run: str, question: str) -> str:
    return f"{run}-answer-{question}"


def metadata_of(*said: Any) -> JsonObject:
    """Keep the keys of a thread's metadata, and of a `_meta`, that are metadata of runs."""
    return {key: each[key] for each in said if isinstance(each, dict) for key in each if key not in OWN}


def words(prompt: list[Any]) -> str | None:
    """The text of a prompt that is one block of text, which every agent takes; None for any other prompt."""
    block = prompt[0] if len(prompt) == 1 and isinstance(prompt[0], dict) else {}
    return block["text"] if block.get("type") == "text" and isinstance(block.get("text"), str) else None


def read(asked: wire.Prompt, agent: Agent) -> PromptInput:
    """A prompt as text and files. Raises Invalid (with path) for what an agent of this protocol did not declare.

    Such an agent gets the blocks themselves; whether another one takes the files is for `Gateway.runs.start` to say.
    """
    native = agents.native(agent) is not None
    blocks = content.check(asked.prompt, agents.prompt_capabilities(agent) if native else content.EVERYTHING)
    given: list[files.Attachment] = []
    places: list[str] = []
    for at, block in enumerate(blocks):
        if not native and not _is_text(block):
            file = content.file_of(block, f"/prompt/{at}")
            if file is None:
                raise Invalid("the content is not base64", path=f"/prompt/{at}")
            given.append(file)
            places.append(f"/prompt/{at}")
    text = content.text_of([block for block in blocks if _is_text(block)])
    return PromptInput(text, given, places[0] if places else "")


def answer_with_files(question: Interrupt, said: PromptInput) -> str:
    """A prompt with files as the answer of a form that has places for them: JSON. Its text answers the rest.

    Raises Invalid (with path) where there is no place for one of the files.
    """
    schema = question.answer_schema
    answer = files.in_form(schema, said.files)
    if answer is None:
        raise Invalid("the question has no place for this file", path=said.place)
    left = {name: part for name, part in schema.get("properties", {}).items() if name not in answer}
    if left and said.text.strip():
        required = [name for name in schema.get("required", ()) if name in left]
        rest = {**schema, "properties": left, "required": required}
        more = questions.answer_from_text(replace(question, answer_schema=rest), said.text).value
        answer = {**more, **answer} if isinstance(more, dict) else answer
    return delta.encode(answer).decode()


def _is_text(block: JsonObject) -> bool:
    return block["type"] in ("text", "resource_link") or "text" in block.get("resource", {})
