"""Files in payloads: read in every form that clients write them in, written in the one that the draft names (NLIP's).

    {"type": "image" | "audio" | "resource", ...}     a content block of MCP, or any object with bytes and a media type
    "data:image/png;base64,..."                       a data URI
    {"format": "binary", "subformat", "content"}      a part of NLIP; this is what agents are sent, in `submessages`
    {"type": "resource_link", "uri", "name"?}         a link: text, since the gateway fetches none

Each may be the payload, a member of it or an item of a list there (`messages`, `parts`, `files`, ...), and likewise of
a message. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from gateway.core import files
from gateway.core.files import Attachment
from gateway.core.types import Agent, Artifact, Json, JsonObject

Uploads = Sequence[tuple[Artifact, bytes | None]]
"""Files of clients with what is in them; None for one that is sent as a link."""

MESSAGES: Final = "messages"
PARTS: Final = "submessages"
_KEPT: Final = frozenset(("input", "output", "context", "requirements"))
"""Members of a payload that hold no files of its own: documents are the agent's, the others are about the payload."""
_LINKS: Final = ("resource_link", "link", "image", "audio", "video", "file", "document")
"""`type` of an object that is a link where it has an address and no bytes."""
_UNKNOWN: Final = "application/octet-stream"


def taken(payload: Json, named: Collection[str] = (), *, at: str = "") -> tuple[Json, list[Attachment]]:
    """A payload without its files, and these; the payload itself where it has neither files nor links.

    Members in `named` are left alone. Raises Invalid with a path below `at` for a file whose base64 is none.
    """
    reading = _Reading(at)
    if isinstance(payload, list):
        rest: Json = {MESSAGES: reading.messages(payload, "")}
    elif _is_file(payload):
        rest = {}
        reading.add(payload, "", "file")
    elif isinstance(payload, dict):
        rest = reading.members(payload, named)
    else:
        return payload, []
    return (rest, reading.files) if reading.files or reading.links else (payload, [])


def any_in(payload: Json, levels: int = 5) -> bool:
    """Whether a payload has a file or a link where one is read. Nearly none has: it is left alone then."""
    if _is_file(payload) or _link(payload) is not None:
        return True
    inner = payload.values() if isinstance(payload, dict) else payload if isinstance(payload, list) else ()
    return levels > 0 and any(any_in(each, levels - 1) for each in inner)


def part_of(file: Artifact, content: bytes | None) -> JsonObject:
    """A file as a part of NLIP; without content a link to it."""
    if content is None:
        return {"format": "structured", "subformat": "uri", "content": file.url, "label": file.name}
    encoded = base64.b64encode(content).decode("ascii")
    return {"format": "binary", "subformat": file.media_type, "content": encoded, "label": file.name}


def with_parts(payload: Json, given: Uploads) -> Json:
    """A payload in the draft's form with files beside what it says; one that is no object stays as it is."""
    parts = [part_of(file, content) for file, content in given]
    if not parts or not isinstance(payload, dict):
        return payload
    before = payload.get(PARTS)
    return {**payload, PARTS: [*(before if isinstance(before, list) else []), *parts]}


def placed(agent: Agent, document: Json, given: Iterable[Attachment]) -> Json:
    """An input as it will be once the engine has put the files into its places for them."""
    stand_ins = [
        Artifact(id=f"{number:032x}", name=each.name, media_type=each.media_type, url="https://localhost/")
        for number, each in enumerate(given)
    ]
    return files.place(agent, document, stand_ins)[0] if stand_ins else document


class _Reading:
    """Collects the files of one payload."""

    def __init__(self, at: str) -> None:
        self.files: list[Attachment] = []
        self.links = 0
        self._at = at

    def add(self, value: Json, place: str, name: str) -> None:
        path = f"{self._at}{place}"
        if _is_binary(value):
            media = "/".join(str(value["subformat"]).lower().split("/")[:2])
            media = media if "/" in media else _UNKNOWN
            named = files.label(str(value.get("label") or ""), media, name)
            content = files.decoded(value["content"], path)
            self.files.append(Attachment(name=named, media_type=media, content=content))
            return
        kind = value.get("type") if isinstance(value, dict) else None
        self.files.append(files.file_in(value, kind if kind in ("image", "audio") else name, path=path))

    def members(self, payload: JsonObject, named: Collection[str]) -> JsonObject:
        """A payload's members, less the files among them; text beside a file in a list becomes a message."""
        rest: JsonObject = {}
        more: list[Json] = []
        for key, value in payload.items():
            if key in _KEPT or key in named:
                rest[key] = value
            elif key == MESSAGES and isinstance(value, list):
                rest[key] = self.messages(value, f"/{key}")
            elif _is_file(value):
                self.add(value, f"/{key}", key)
            elif isinstance(value, list) and any(_is_file(each) or _link(each) for each in value):
                texts, others = self.blocks(value, f"/{key}", key)
                more += [{"text": text} for text in texts]
                if others:
                    rest[key] = others
            else:
                rest[key] = value
        if more:
            before = rest.get(MESSAGES)
            said = [{"text": rest.pop("text")}] if before is None and isinstance(rest.get("text"), str) else []
            rest[MESSAGES] = [*(before if isinstance(before, list) else said), *more]
        return rest

    def messages(self, messages: list[Json], place: str) -> list[Json]:
        found: list[Json] = []
        for at, each in enumerate(messages):
            if _is_file(each):
                self.add(each, f"{place}/{at}", "file")
            elif (link := _link(each)) is not None:
                self.links += 1
                found.append({"text": link})
            elif isinstance(each, dict):
                message = self.message(each, f"{place}/{at}")
                if message:
                    found.append(message)
            else:
                found.append(each)
        return found

    def message(self, message: JsonObject, place: str) -> JsonObject:
        """One message, less its files; empty where it had no more than these."""
        rest: JsonObject = {}
        texts = [message["text"]] if isinstance(message.get("text"), str) else []
        changed = False
        for key, value in message.items():
            listed = value if isinstance(value, list) else [value]
            if key == "text" or not any(_is_file(each) or _link(each) for each in listed):
                rest[key] = value
                continue
            changed = True
            more, others = self.blocks(listed, f"{place}/{key}", "file" if key in ("parts", "content") else key)
            texts += more
            if others:
                rest[key] = others
        if not changed:
            return {"text": message["text"]} if message.keys() == {"type", "text"} else message
        if texts:
            rest["text"] = "\n".join(texts)
        return rest if rest.keys() - {"role"} else {}

    def blocks(self, blocks: list[Json], place: str, name: str) -> tuple[list[str], list[Json]]:
        """The texts and links of a list with files in it, and what is neither."""
        texts: list[str] = []
        others: list[Json] = []
        for at, each in enumerate(blocks):
            if _is_file(each):
                self.add(each, f"{place}/{at}", name)
            elif (link := _link(each)) is not None:
                self.links += 1
                texts.append(link)
            elif isinstance(each, dict) and isinstance(each.get("text"), str) and each.keys() <= {"type", "text"}:
                texts.append(each["text"])
            else:
                others.append(each)
        return texts, others


def _is_file(value: Json) -> bool:
    return _is_binary(value) or files.is_file(value)


def _is_binary(value: Json) -> bool:
    if not isinstance(value, dict) or str(value.get("format")).casefold() != "binary":
        return False
    return isinstance(value.get("content"), str) and isinstance(value.get("subformat"), str)


def _link(value: Json) -> str | None:
    """A link as text; None for anything else."""
    if not isinstance(value, dict) or (value.get("type") not in _LINKS and not _is_uri_part(value)):
        return None
    uri = next((value[key] for key in ("uri", "url", "content") if isinstance(value.get(key), str)), None)
    if uri is None:
        return None
    name = next((value[key] for key in ("name", "title", "label") if isinstance(value.get(key), str)), "")
    return f"[{name}]({uri})" if name else uri


def _is_uri_part(value: Mapping[str, Json]) -> bool:
    said = (value.get("format"), value.get("subformat"))
    return said[0] in ("structured", "generic") and str(said[1]).casefold() in ("uri", "url")
