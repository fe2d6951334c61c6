"""A server on stdio made with the official Python SDK `acp-sdk` 0.0.6, whose agents take files in their input.

| agent | input | what it returns in `text` |
|---|---|---|
| `look` | `{question, image}`, the image in base64 | `N bytes: QUESTION` |
| `see` | `{messages: [{role, content}]}`, the content text or blocks | of each message its role, texts and pictures |
| `read` | `{prompt, files: [{name, content_type, content, content_encoding}]}` | the names and sizes, then the prompt |
"""

import base64
from typing import Literal

from acp.server.highlevel import Context, Server
from pydantic import BaseModel


class Look(BaseModel):
    question: str
    image: str


class Text(BaseModel):
    type: Literal["text"]
    text: str


class Url(BaseModel):
    url: str


class Picture(BaseModel):
    type: Literal["image_url"]
    image_url: Url


class Message(BaseModel):
    role: Literal["user", "assistant"]
    content: str | list[Text | Picture]


class Chat(BaseModel):
    messages: list[Message]


class File(BaseModel):
    name: str
    content_type: str
    content: str
    content_encoding: Literal["plain", "base64"] = "plain"


class Read(BaseModel):
    prompt: str
    files: list[File] = []


class Said(BaseModel):
    text: str = ""


server = Server("pictures")


@server.agent("look", "Says how large a picture is", input=Look, output=Said)
async def look(input: Look, ctx: Context) -> Said:
    return Said(text=f"{len(base64.b64decode(input.image, validate=True))} bytes: {input.question}")


@server.agent("see", "Says what is said and shown", input=Chat, output=Said)
async def see(input: Chat, ctx: Context) -> Said:
    return Said(text=" / ".join(f"{one.role}: {shown(one.content)}" for one in input.messages))


def shown(content: str | list[Text | Picture]) -> str:
    if isinstance(content, str):
        return content
    return ", ".join(one.text if isinstance(one, Text) else size(one.image_url.url) for one in content)


def size(url: str) -> str:
    head, _, data = url.partition(",")
    return f"{head} of {len(base64.b64decode(data, validate=True))} bytes"


@server.agent("read", "Says which files it got", input=Read, output=Said)
async def read(input: Read, ctx: Context) -> Said:
    names = [f"{one.name} ({len(base64.b64decode(one.content))})" for one in input.files]
    return Said(text=f"{', '.join(names)}: {input.prompt}")


if __name__ == "__main__":
    server.run("stdio")
