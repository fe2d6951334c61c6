"""The text inside of a data part, followed delta by delta without folding the document.

At a pointer of keys ("/message") the text grows by what each delta has there. In a conversation ("/messages/-/content")
what counts is the item that speaks last: a delta's first item goes on with it, each further one is a new item, and what
is told are the items of the assistant's after the last of the user's. Any other pointer, text in content blocks, and a
conversation that was rewritten are looked up in the whole document: `unsure` says so, and `look` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.core import delta, projection
from gateway.core.delta import algebra
from gateway.core.types import Json

_USER: Final = ("user", "human")
_ASSISTANT: Final = ("assistant", "ai", "agent", "bot", "AIMessageChunk")


class DocumentGrowth:
    """The growth from one delta: `text` is added to the message told now, then each of `items` is a new message."""

    __slots__ = ("items", "text", "unsure")

    def __init__(self, text: str = "", items: list[str] | None = None, *, unsure: bool = False) -> None:
        self.text = text
        self.items = items or []
        self.unsure = unsure


_UNSURE: Final = DocumentGrowth(unsure=True)


class DocumentText:
    """One data part's text. `pointer` is the agent's `text_output`, None where nobody knows."""

    def __init__(self, pointer: str | None) -> None:
        self.pointer = pointer
        self.unsure = False
        """Whether the last `replace` can only be told by a `look`."""
        steps = delta.split(pointer or "")
        chats = [at for at, step in enumerate(steps) if step == projection.LAST]
        self.known = pointer is not None and len(chats) <= 1 and not any(step.isdecimal() for step in steps)
        """False where every delta is `unsure`."""
        self.chat = bool(chats)
        self._steps = steps[: chats[0]] if chats else steps
        self._rest = steps[chats[0] + 1 :] if chats else []
        self._items = 0
        self._lost = False  # the number of items is not known any more
        self._listening = True  # the item that speaks last is the assistant's

    def grow(self, delta: Json) -> DocumentGrowth | str:
        """The growth from a delta; the text alone if that is all."""
        if not self.known or self._lost:
            return _UNSURE
        value = _at(delta, self._steps)
        return self._spoken(value) if self.chat else _leaf(value)

    def begin(self, document: Json) -> DocumentGrowth | str:
        """The first value of the part."""
        if not self.known:
            return _UNSURE
        value = _at(document, self._steps)
        if self.chat:
            return self._new(value) if isinstance(value, list) else ""
        return _leaf(value)

    def replace(self, pointer: str, value: Json) -> str | None:
        """Return the text after the value at a pointer is replaced.

        "" also for a text that is gone; None where it is as it was, or where `unsure` is true now.
        """
        steps, path = delta.split(pointer), self._steps
        common = min(len(steps), len(path))
        self.unsure = False
        if self.known and steps[:common] != path[:common]:
            return None
        if not self.known or self.chat or len(steps) > len(path):
            self.unsure = True
            self._lost = self.chat
            return None
        said = _leaf(_at(value, path[common:]))
        self.unsure = not isinstance(said, str)
        return said if isinstance(said, str) else None

    def look(self, document: Json) -> tuple[str | None, bool]:
        """(the text of the whole document as it is now, whether that is a new message); None if nobody speaks."""
        text = projection.text_of(document, self.pointer)
        if not self.chat or not self.known:
            return text, False
        items = _at(document, self._steps)
        before, self._lost = self._items, False
        self._items = len(items) if isinstance(items, list) else 0
        self._listening = bool(self._items) and _speaker(items[-1]) in (None, projection.ASSISTANT)
        return (text if self._listening else None), self._items > before

    def _spoken(self, value: Json) -> DocumentGrowth | str:
        if not isinstance(value, list) or not value:
            return ""
        if self._items == 0:
            return self._new(algebra.settle_list(value))
        first, *more = value
        said = _leaf(first, self._rest) if self._listening and first is not None else ""
        if not more or not isinstance(said, str):
            return said
        following = self._new([algebra.settle(item) for item in more])
        return DocumentGrowth(said, following.items, unsure=following.unsure)

    def _new(self, items: list[Json]) -> DocumentGrowth:
        """Items that are added."""
        self._items += len(items)
        speakers = [_speaker(item) for item in items]
        start = len(items) - 1 if None in speakers else 0
        for at, speaker in enumerate(speakers):
            if speaker == projection.USER:
                start = at + 1
        texts = []
        for item, speaker in zip(items[start:], speakers[start:], strict=True):
            if speaker in (None, projection.ASSISTANT):
                said = _leaf(item, self._rest)
                if not isinstance(said, str):
                    return _UNSURE
                texts.append(said)
        if items:
            self._listening = speakers[-1] in (None, projection.ASSISTANT)
        return DocumentGrowth(items=texts)


def _at(value: Json, steps: Sequence[str]) -> Json:
    for step in steps:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _leaf(value: Json, steps: Sequence[str] = ()) -> DocumentGrowth | str:
    value = _at(value, steps) if steps else value
    if isinstance(value, str):
        return value
    return "" if value is None or value == [] else _UNSURE


def _speaker(item: Json) -> str | None:
    """The speaker of an item of a conversation: USER, ASSISTANT, "" for others, None where it does not say."""
    if not isinstance(item, dict):
        return None
    for key in ("role", "type"):
        word = item.get(key)
        if isinstance(word, str):
            if word in _USER:
                return projection.USER
            return projection.ASSISTANT if word in _ASSISTANT else ""
    return projection.ASSISTANT
