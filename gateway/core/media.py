"""Which property of a JSON Schema takes a file, and how: as base64, as a data URI, or as a link."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from gateway.core.types import Record

Form = Literal["base64", "data_url", "link"]

ANY: Final = "*/*"
IMAGE: Final = "image/*"
AUDIO: Final = "audio/*"
_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("image", "picture", "photo", "img", "screenshot"), IMAGE),
    **dict.fromkeys(("audio", "sound", "recording"), AUDIO),
    **dict.fromkeys(("file", "attachment", "blob"), ANY),
    "pdf": "application/pdf",
}
_FORMS: Final[Mapping[str, Form]] = {
    **dict.fromkeys(("url", "uri", "link", "href"), "link"),
    **dict.fromkeys(("base64", "b64", "data", "bytes", "content"), "base64"),
}
_DATA_FORMATS: Final = ("data-url", "data-uri", "data_url", "dataurl")
_BYTE_FORMATS: Final = ("base64", "byte", "binary", "base64url")
_LINK_FORMATS: Final = ("uri", "url", "uri-reference", "iri")


class Taking(Record, frozen=True, kw_only=True):
    """Files that a string takes: `media`, a media range, in one form. `sure`: the schema says so, not its name."""

    media: str
    form: Form
    sure: bool = False


def within(media_type: str, media: str) -> bool:
    """Whether a media type is in a media range (`image/*`, `*/*`, `text/csv`)."""
    given = media_type.partition(";")[0].strip().lower()
    return media in (ANY, given) or (media.endswith("/*") and given.startswith(media[:-1]))


def taking(name: str, view: Mapping[str, Any]) -> Taking | None:
    """How the property `name` takes a file, None if it takes none. `view`: see `projection.views`.

    Its schema tells (`contentEncoding`, `contentMediaType`, `format`), or its name does: words for a file (image,
    audio, file, attachment, ...), for how it is written (url, base64, data, ...), or both (`image_url`). Any other
    word in the name (`image_path`, `file_name`) makes it no file.
    """
    if view.get("type") not in ("string", None) or "enum" in view or "const" in view:
        return None
    words = re.findall(r"[a-z]+[0-9]*|[0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower())
    kinds = [_NAMES[word] for each in words if (word := _singular(each)) in _NAMES]
    forms = [_FORMS[each] for each in words if each in _FORMS]
    other = [each for each in words if _singular(each) not in _NAMES and each not in _FORMS]
    media = _media(view) or (kinds[0] if kinds else None)
    format_ = view.get("format")
    if str(view.get("contentEncoding", "")).lower() in ("base64", "base64url") or format_ in _BYTE_FORMATS:
        return Taking(media=media or ANY, form="base64", sure=True)
    if format_ in _DATA_FORMATS:
        return Taking(media=media or ANY, form="data_url", sure=True)
    if view.get("type") != "string" or (other and not _media(view)):
        return None
    if format_ in _LINK_FORMATS:
        return Taking(media=media, form=_told(view, "link"), sure=True) if media else None
    alone = words in (["url"], ["uri"]) or (words == ["data"] and "base64" in _description(view))
    if format_ is not None or not (kinds or _media(view) or alone):
        return None
    if "path" in _description(view) and "base64" not in _description(view):
        return None
    return Taking(media=media or ANY, form=_told(view, forms[-1] if forms else "base64"))


def _singular(word: str) -> str:
    return word.removesuffix("s")


def _media(view: Mapping[str, Any]) -> str | None:
    said = view.get("contentMediaType")
    return said.lower() if isinstance(said, str) and "/" in said else None


def _description(view: Mapping[str, Any]) -> str:
    said = view.get("description")
    return said.lower() if isinstance(said, str) else ""


def _told(view: Mapping[str, Any], form: Form) -> Form:
    """The form that the description names, else `form`."""
    said = _description(view)
    if re.search(r"data[: -]?ur[il]|data:", said):
        return "data_url"
    if "base64" in said:
        return "base64"
    return "link" if re.search(r"\bur[il]\b|\blink\b", said) else form
