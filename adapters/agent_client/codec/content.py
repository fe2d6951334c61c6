"""Content blocks (docs: content; schema: ContentBlock)."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit

from adapters.agent_client.codec import event_forms
from adapters.agent_client.wire import PROTOCOL
from gateway.core import delta, files, projection
from gateway.core.errors import Invalid
from gateway.core.types import Artifact, Json, JsonObject, RunRequest

_REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("name", "uri"),
    "resource": (),
}
EVERYTHING: Final[JsonObject] = {"image": True, "audio": True, "embeddedContext": True}
"""The `promptCapabilities` of who takes all content."""
_CAPABILITY: Final = {"image": "image", "audio": "audio", "resource": "embeddedContext"}


def kinds(capabilities: JsonObject) -> list[str]:
    """The types of the content blocks that `promptCapabilities` allow. Text and resource links always are."""
    return [kind for kind in _REQUIRED if kind not in _CAPABILITY or capabilities.get(_CAPABILITY[kind]) is True]


def check(blocks: Json, capabilities: JsonObject, path: str = "/prompt") -> list[JsonObject]:
    """The blocks of a prompt, if each is a content block that `promptCapabilities` allow.

    Text and resource links always are. Raises Invalid, with the `path` of the first one that is not.
    """
    if not isinstance(blocks, list):
        raise Invalid("a prompt is a list of content blocks", path=path)
    for at, block in enumerate(blocks):
        here = f"{path}/{at}"
        kind = block.get("type") if isinstance(block, dict) else None
        required = _REQUIRED.get(kind) if isinstance(kind, str) else None
        if kind is None or required is None:
            raise Invalid(f"not a content block; its type is one of {', '.join(_REQUIRED)}", path=here)
        for key in required:
            if not isinstance(block.get(key), str):
                raise Invalid(f"a block of type {kind} needs the string {key!r}", path=f"{here}/{key}")
        if kind == "resource":
            _check_resource(block.get("resource"), f"{here}/resource")
        capability = _CAPABILITY.get(kind)
        if capability is not None and capabilities.get(capability) is not True:
            raise Invalid(f"this agent takes no {kind} in a prompt (capability {capability})", path=here)
    return blocks


def _check_resource(value: Json, path: str) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("uri"), str):
        raise Invalid("an embedded resource needs the string 'uri'", path=path)
    if not isinstance(value.get("text"), str) and not isinstance(value.get("blob"), str):
        raise Invalid("an embedded resource needs the string 'text' or 'blob'", path=path)


def text_of(blocks: list[JsonObject], path: str = "/prompt") -> str:
    """A prompt that was checked as one text, for agents that take only that.

    A resource link is a markdown link in the text, an embedded text a fence below a line that names its uri. Raises
    Invalid (with path) for what is no text: image, audio and embedded bytes.
    """
    out = ""
    before = ""
    for at, block in enumerate(blocks):
        kind = block["type"]
        if kind == "text":
            said = block["text"]
        elif kind == "resource_link":
            said = f"[{_escaped(block['name'])}]({_target(block['uri'])})"
        elif kind == "resource" and isinstance(block["resource"].get("text"), str):
            inner = block["resource"]
            said = f"{inner['uri']}\n{event_forms.fenced(inner['text'], _language(inner['uri']))}"
        else:
            raise Invalid("this agent takes only text", path=f"{path}/{at}")
        apart = "resource" in (kind, before) or (kind == before == "text")
        if apart and out and said and not (out.endswith("\n") or said.startswith("\n")):
            out += "\n\n"
        out += said
        before = kind
    return out


def _escaped(name: str) -> str:
    return re.sub(r"([\\\[\]])", r"\\\1", name)


def _target(uri: str) -> str:
    return f"<{uri}>" if re.search(r"[\s()]", uri) and not re.search(r"[<>\n]", uri) else uri


def _language(uri: str) -> str:
    ending = re.search(r"\.([A-Za-z0-9+#]{1,12})(?:[?#].*)?$", uri)
    return ending[1].lower() if ending else ""


def blocks_of(request: RunRequest, place: str | None, capabilities: Callable[[], JsonObject]) -> list[JsonObject]:
    """The `prompt` that the outbound half sends for a run.

    A request of this protocol: `creation["prompt"]` verbatim. Else a text block of the input's text at `place` (of an
    input without text: its JSON), and then the blocks of `input["content"]`, if it has any (alone, if they say that
    text already). `capabilities` gives the agent's `promptCapabilities`. Raises Invalid for what it does not take.
    """
    prompt = request.creation.get("prompt")
    if request.protocol == PROTOCOL and isinstance(prompt, list):
        return prompt
    given = request.input
    text = projection.text_of(given, place)
    blocks: list[JsonObject] = []
    if isinstance(given, dict) and isinstance(given.get("content"), list):
        blocks = check(given["content"], capabilities(), "/input/content")
    elif text is None:
        text = delta.encode(given).decode()
    said = [block["text"] for block in blocks if block["type"] == "text"]
    if blocks and (not text or text in said or text == "".join(said)):
        return blocks
    return [block_of(text or ""), *blocks]


def block_of(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def link_of(artifact: Artifact) -> JsonObject:
    return {
        "type": "resource_link",
        "uri": artifact.url,
        "name": artifact.name,
        "mimeType": artifact.media_type,
        "size": artifact.size,
    }


def is_link(artifact: Artifact) -> bool:
    return urlsplit(artifact.url).scheme in ("http", "https")


def block_for(artifact: Artifact, data: bytes | None, capabilities: JsonObject) -> JsonObject | None:
    """The block that gives a client's file to an agent with these `promptCapabilities`; None if none can.

    An image, a sound or an embedded resource where the agent takes that; else a text as a text block, and any other
    file, or one whose content is left out (None), as a link.
    """
    kind = artifact.media_type.partition("/")[0]
    if data is not None:
        if kind in ("image", "audio") and capabilities.get(kind) is True:
            return {"type": kind, "data": _base64(data), "mimeType": artifact.media_type}
        text = _text(artifact.media_type, data)
        if capabilities.get("embeddedContext") is True:
            inner = {"blob": _base64(data)} if text is None else {"text": text}
            uri = artifact.url if is_link(artifact) else quote(artifact.name)
            return {"type": "resource", "resource": {"uri": uri, "mimeType": artifact.media_type, **inner}}
        if text is not None:
            return block_of(f"{artifact.name}\n{event_forms.fenced(text, _language(artifact.name))}")
    return link_of(artifact) if is_link(artifact) else None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _text(media_type: str, data: bytes) -> str | None:
    media = media_type.partition(";")[0].strip().lower()
    if not media.startswith("text/") and media not in ("application/json", "application/yaml", "application/xml"):
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def described(value: Json) -> JsonObject | None:
    """A `resource_link` block for another protocol's description of a file, None if it has no address."""
    if not isinstance(value, dict):
        return None
    uri = next((value[key] for key in ("uri", "url", "href") if isinstance(value.get(key), str)), None)
    if uri is None:
        return None
    name = next((value[key] for key in ("name", "file_name", "title") if isinstance(value.get(key), str)), None)
    block: JsonObject = {"type": "resource_link", "uri": uri, "name": name or files.label(uri, "", uri)}
    media = next(
        (value[key] for key in ("mimeType", "media_type", "content_type") if isinstance(value.get(key), str)), None
    )
    return block if media is None else {**block, "mimeType": media}


def file_of(block: Any, at: str | None = None) -> files.Attachment | None:
    """The file in an image, audio or resource block. None for other blocks, and for invalid base64.

    `at` points to the block, in a request that is kept.
    """
    if not isinstance(block, dict):
        return None
    kind = block.get("type")
    inner = block.get("resource") if kind == "resource" else block if kind in ("image", "audio") else None
    if not isinstance(inner, dict):
        return None
    held = "blob" if kind == "resource" else "data"
    text, data, uri = inner.get("text"), inner.get(held), inner.get("uri")
    media = inner.get("mimeType")
    media = media if isinstance(media, str) and media else "text/plain" if isinstance(text, str) else ""
    media = media or "application/octet-stream"
    if kind == "resource" and isinstance(text, str):
        content = text.encode("utf-8", "replace")
    elif isinstance(data, str):
        try:
            content = files.decoded(data)
        except Invalid:
            return None
    else:
        return None
    name = files.label(uri if isinstance(uri, str) else "", media, str(kind))
    if at is not None:
        at += f"/resource/{held}" if kind == "resource" else f"/{held}"
    return files.Attachment(name=name, media_type=media, content=content, at=at if isinstance(data, str) else None)
