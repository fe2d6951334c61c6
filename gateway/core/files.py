"""Files that clients give: where an agent's input has a place for them, and what in a client's input is one.

An agent takes files in one of two ways. Its protocol has a place for them (`AgentCapabilities.files`: uploads, content
blocks), or its input schema has: a string in base64, a data URI, a link, an array of these, or a list of message parts.
In the second case `place` writes a reference to the file into the input when the run is created, and `fill` puts the
content there when the run is sent: the record of a run stays small, and what fits the schema is known at the door.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.media import ANY, AUDIO, IMAGE, Taking, taking, within
from gateway.core.projection import CHATS, LAST, Schema, chat_pointer, views_of
from gateway.core.types import Agent, Artifact, Json, JsonObject, Record

LOST: Final = "uploads"
"""Counts, by run, the files that a client gave and the agent did not get."""

_REFERENCE: Final = "interlinguaFile/"
"""The start of a reference, before the file's id in 32 hex digits: valid base64, as patterns may demand."""
_REFERENCES: Final = re.compile(rf"{_REFERENCE}([0-9a-f]{{32}})")
_MEDIA_KEYS: Final = ("mimeType", "mime_type", "content_type", "contentType", "media_type", "mediaType")
_DATA_KEYS: Final = ("data", "blob", "base64", "bytes", "content")
_NAME_KEYS: Final = ("name", "filename", "file_name", "fileName")
_KINDS: Final[Mapping[str, str]] = {"image": IMAGE, "audio": AUDIO, "file": ANY, "document": ANY, "blob": ANY}
_ENDINGS: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/mp3": ".mp3",
    "audio/ogg": ".ogg",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "text/plain": ".txt",
    "text/markdown": ".md",
}


class Attachment(Record, frozen=True, kw_only=True):
    """A file that comes with a request for a run.

    `at` points to its base64 in `RunRequest.creation`, if it is there, too: a reference takes its place, so that the
    file is stored once.
    """

    name: str
    media_type: str
    content: bytes
    at: str | None = None


class Slot(Record, frozen=True, kw_only=True):
    """A place of an input that takes a file. `path` leads to it, with "-" for the last message of a conversation.

    `many`: it is a list. `part`: the keys of an object that holds one file, where no plain string does.
    """

    path: tuple[str, ...]
    taking: Taking
    many: bool = False
    part: JsonObject | None = None


# --- what an agent takes ---------------------------------------------------------------------------------------------


def ranges(agent: Agent) -> Sequence[str]:
    """The media ranges of the files that an agent takes, none if it takes none."""
    return agent.capabilities.files or list(dict.fromkeys(slot.taking.media for slot in slots(agent)))


def takes(agent: Agent, media_type: str) -> bool:
    """Whether an agent takes files of a media type, as far as it is known."""
    return any(within(media_type, media) for media in ranges(agent))


def slots(agent: Agent) -> Sequence[Slot]:
    """The places for files in an agent's input; none where its protocol has a place of its own."""
    return () if agent.capabilities.files else _slots(msgspec.json.encode(agent.input_schema), agent.text_input)


@lru_cache(maxsize=1024)
def _slots(encoded: bytes, text: str | None) -> tuple[Slot, ...]:
    schema: JsonObject = msgspec.json.decode(encoded)
    found: dict[tuple[str, ...], Slot] = {}
    for slot in (*_inside(schema, schema, (), deep=True), *_in_chat(schema)):
        if slot.part is not None or slot.taking.sure or delta.join(slot.path) != text:
            found.setdefault(slot.path, slot)
    return tuple(found.values())


def _inside(part: Schema, root: Schema, path: tuple[str, ...], *, deep: bool) -> Iterator[Slot]:
    """The places among the properties of an object, and of the objects in it."""
    for view in views_of(part, root):
        for name, inner in view["properties"].items():
            for each in views_of(inner, root):
                yield from _at(name, each, root, (*path, name))
                if deep and each["type"] == "object" and name not in CHATS:
                    yield from _inside(inner, root, (*path, name), deep=False)


def _at(name: str, view: Mapping[str, Any], root: Schema, path: tuple[str, ...]) -> Iterator[Slot]:
    found = taking(name, view)
    if found is not None:
        yield Slot(path=path, taking=found)
    elif view["type"] == "array":
        for item in views_of(view.get("items"), root):
            found = taking(name, item)
            part = _part(item, root) if found is None else None
            if found is not None:
                yield Slot(path=path, taking=found, many=True)
            elif part is not None:
                yield Slot(path=path, taking=part[0], many=True, part=part[1])
    elif view["type"] == "object" and (part := _part(view, root)) is not None:
        yield Slot(path=path, taking=part[0], part=part[1])


def _part(view: Mapping[str, Any], root: Schema) -> tuple[Taking, JsonObject] | None:
    """How an object holds a file: with its media type and content, or as an `image_url`. None if it holds none."""
    properties = view["properties"]
    words = [word for each in views_of(properties.get("type"), root) for word in _words(each)]
    if "image_url" in words and "image_url" in properties:
        inner = any(each["type"] == "object" for each in views_of(properties["image_url"], root))
        return Taking(media=IMAGE, form="data_url", sure=True), {"image_url": "url" if inner else ""}
    media = next((key for key in _MEDIA_KEYS if key in properties), None)
    data = next((key for key in _DATA_KEYS if key in properties), None)
    kind = next((word for word in words if word in _KINDS), None)
    if media is None or data is None or (words and kind is None):
        return None
    named = next((key for key in _NAME_KEYS if key in properties), None)
    encoding = next((key for key in ("content_encoding", "contentEncoding", "encoding") if key in properties), None)
    shape = {"type": kind, "media": media, "data": data, "name": named, "encoding": encoding}
    return Taking(media=_KINDS[kind] if kind else ANY, form="base64", sure=True), shape


def _words(view: Mapping[str, Any]) -> list[str]:
    listed = [view["const"]] if "const" in view else view.get("enum") or []
    return [word for word in listed if isinstance(word, str)]


def _in_chat(schema: Schema) -> Iterator[Slot]:
    """The places in a message: its content as a list of blocks, or a list beside it."""
    pointer = chat_pointer(schema)
    if pointer is None:
        return
    *before, last, _content = delta.split(pointer)
    part: Any = schema
    for step in before:
        part = next((view["properties"][step] for view in views_of(part, schema) if step in view["properties"]), None)
    for view in views_of(part, schema):
        yield from _inside(view.get("items"), schema, (*before, last), deep=False)


# --- into an agent's input -------------------------------------------------------------------------------------------


def place(agent: Agent, document: Json, files: Sequence[Artifact]) -> tuple[Json, list[Artifact]]:
    """The input with references to the files in its places for them, and the files that found none.

    A place that the client has filled itself stays as it is. Links are written as they are.
    """
    return _place(slots(agent), document, files)


def in_form(schema: Schema, given: Sequence[Attachment]) -> JsonObject | None:
    """The files as what they answer of a form; None where it has no place for one of them."""
    stand_ins = [Artifact(id=f"{at:032x}", name=file.name, media_type=file.media_type) for at, file in enumerate(given)]
    answer, left = _place(_slots(msgspec.json.encode(schema), None), {}, stand_ins)
    if left or not isinstance(answer, dict):
        return None
    filled: JsonObject = fill(answer, {each.id: file.content for each, file in zip(stand_ins, given, strict=True)})
    return filled


def _place(places: Sequence[Slot], document: Json, files: Sequence[Artifact]) -> tuple[Json, list[Artifact]]:
    left: list[Artifact] = []
    for file in files:
        for slot in places:
            placed = _placed(document, slot, file) if within(file.media_type, slot.taking.media) else delta.ABSENT
            if placed is not delta.ABSENT:
                document = placed
                break
        else:
            left.append(file)
    return document, left


def _placed(document: Json, slot: Slot, file: Artifact) -> Json:
    """The document with the file; ABSENT where the place is taken or not there."""
    steps: list[str] = []
    value: Json = {} if document in (None, "") else document
    document = value
    for named in slot.path[:-1]:
        if named == LAST and not (isinstance(value, list) and value):
            return delta.ABSENT
        step = str(len(value) - 1) if named == LAST else named
        steps.append(step)
        inside = delta.pointer_get(value, delta.join([step]))
        if inside is delta.ABSENT and isinstance(value, dict):
            document = delta.pointer_set(document, delta.join(steps), inside := {})
        value = inside
    if not isinstance(value, dict):
        return delta.ABSENT
    name = slot.path[-1]
    there, written = value.get(name), _written(slot, file)
    if slot.many:
        if isinstance(there, str):  # a text that becomes the first of several blocks
            there = [{"type": "text", "text": there}] if there else []
        if not isinstance(there, list | None):
            return delta.ABSENT
        written = [*(there or []), written]
    elif there not in (None, ""):
        return delta.ABSENT
    return delta.pointer_set(document, delta.join([*steps, name]), written)


def reference(file: Artifact) -> str:
    """The placeholder for a stored file's base64, which `fill` replaces."""
    return f"{_REFERENCE}{file.id.replace('-', '')}"


def _written(slot: Slot, file: Artifact) -> Json:
    written = reference(file)
    data_url = f"data:{file.media_type};base64,{written}"
    if slot.part is None:
        if slot.taking.form == "link" and urlsplit(file.url).scheme in ("http", "https"):
            return file.url
        return written if slot.taking.form == "base64" else data_url
    if "image_url" in slot.part:
        url = {"url": data_url} if slot.part["image_url"] else data_url
        return {"type": "image_url", "image_url": url}
    shape = slot.part
    found: JsonObject = {} if shape["type"] is None else {"type": shape["type"]}
    found[shape["media"]] = file.media_type
    found[shape["data"]] = written
    if shape["encoding"] is not None:
        found[shape["encoding"]] = "base64"
    if shape["name"] is not None:
        found[shape["name"]] = file.name
    return found


def referred(document: Json, ids: Sequence[str]) -> list[str]:
    """Which of the files an input refers to."""
    if not ids:
        return []
    found = set(_REFERENCES.findall(delta.encode(document).decode()))
    return [each for each in ids if each.replace("-", "") in found]


def fill(document: Json, contents: Mapping[str, bytes]) -> Json:
    """The input with the content of these files, by id, in place of the references to them."""
    written = {id_.replace("-", ""): base64.b64encode(content).decode("ascii") for id_, content in contents.items()}

    def filled(value: Json) -> Json:
        if isinstance(value, dict):
            return {key: filled(each) for key, each in value.items()}
        if isinstance(value, list):
            return [filled(each) for each in value]
        if isinstance(value, str) and _REFERENCE in value:
            return _REFERENCES.sub(lambda found: written.get(found[1], found[0]), value)
        return value

    return filled(document)


# --- out of what a client sends --------------------------------------------------------------------------------------


def taken(agent: Agent, document: Json) -> tuple[Json, list[Attachment]]:
    """An input without the files that its client put into it, and these: for an agent whose protocol has a place for
    files. A member that the agent's schema does not name is a file, or a list of files, if it is a data URI or a
    content block (`image`, `audio`, `resource`; see `file_in`). Raises Invalid for one whose base64 is none.
    """
    if not isinstance(document, dict):
        return document, []
    known = agent.input_schema.get("properties")
    known = known if isinstance(known, dict) else {}
    kept: JsonObject = {}
    found: list[Attachment] = []
    for name, value in document.items():
        listed = value if isinstance(value, list) and value else [value]
        if name in known or not all(map(is_file, listed)):
            kept[name] = value
            continue
        for at, each in enumerate(listed):
            place = f"/input/{name}/{at}" if listed is value else f"/input/{name}"
            found.append(file_in(each, name, path=place))
    return (kept, found) if found else (document, [])


def is_file(value: Json) -> bool:
    """Whether a value is a data URI in base64, or an object that holds bytes and says of what type."""
    if isinstance(value, str):
        return value[:5].lower() == "data:" and "," in value[:300] and "/" in value[:100]
    return isinstance(value, dict) and _held(value) is not None


def file_in(value: Json, name: str = "file", *, path: str = "") -> Attachment:
    """The file that such a value is. Raises Invalid where its base64 is none."""
    if isinstance(value, str):
        return _of_data_url(value, name, path)
    held = _held(value)
    assert held is not None
    media, said, content = held
    if content is None:
        raise Invalid(f"{path or '/'}: it holds no content", path=path)
    content_ = content if isinstance(content, bytes) else decoded(content, path)
    return Attachment(name=label(said, media, name), media_type=media, content=content_)


def _held(value: JsonObject) -> tuple[str, str, str | bytes] | None:
    """Media type, name and content (base64, or bytes of a text) of a content block or part; None if it is none."""
    inner = value.get("resource") if value.get("type") == "resource" else value
    if not isinstance(inner, dict):
        return None
    media = next((inner[key] for key in _MEDIA_KEYS if isinstance(inner.get(key), str)), None)
    named = next((inner[key] for key in (*_NAME_KEYS, "uri") if isinstance(inner.get(key), str)), "")
    url = inner.get("image_url")
    url = url.get("url") if isinstance(url, dict) else url
    if isinstance(url, str) and is_file(url):
        found = _of_data_url(url, "image", "")
        return found.media_type, named, found.content
    content = next((inner[key] for key in _DATA_KEYS if isinstance(inner.get(key), str)), None)
    if content is not None and media is not None and "/" in media:
        encoding = next((inner[k] for k in ("content_encoding", "contentEncoding", "encoding") if k in inner), None)
        plain = encoding == "plain" or (encoding is None and "data" not in inner and "blob" not in inner)
        if plain and "content" in inner:
            if not named:  # what is said, not a file
                return None
            return media, named, content.encode("utf-8", "replace")
        return media, named, content
    if inner is not value and isinstance(inner.get("text"), str):
        return media or "text/plain", named, inner["text"].encode("utf-8", "replace")
    return None


def _of_data_url(value: str, name: str, path: str) -> Attachment:
    head, _, data = value.partition(",")
    said = head[5:].split(";")
    media = said[0].strip().lower() or "text/plain"
    content = decoded(data, path) if said[-1].strip().lower() == "base64" else unquote_to_bytes(data)
    return Attachment(name=label("", media, name), media_type=media, content=content)


def decoded(data: str, path: str = "") -> bytes:
    """The bytes that base64 stands for. Raises Invalid (with path) for what is none."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(f"{path or '/'}: is not base64", path=path) from None


def label(uri: str, media_type: str, kind: str = "file") -> str:
    """A file's name: the end of its uri or name, else its kind with the ending of its type."""
    try:
        path = urlsplit(uri).path
    except ValueError:
        path = ""
    name = re.split(r"[\\/]", unquote_to_bytes(path).decode("utf-8", "replace").rstrip("/\\"))[-1]
    name = "" if name in (".", "..") else re.sub(r"[\x00-\x1f\x7f]", "", name)[-255:]
    return name or f"{kind}{_ENDINGS.get(media_type.partition(';')[0].strip().lower(), '')}"
