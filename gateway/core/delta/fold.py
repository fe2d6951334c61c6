"""The document that a run's deltas fold into, kept so that a small delta costs a little, however large the document.

A tree is a JSON value in containers of the fold's own, with a Text wherever a string has grown or ends in half a
character. A Plan is what a delta will do to it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.core.delta.algebra import TOO_DEEP, Clash, DeltaError, combine_scalars, kind
from gateway.core.delta.pointer import END, index, join, split
from gateway.core.delta.values import ABSENT, Json, Sentinel, escape_lines, sized, sound_key, stitch

BATCH: Final = 256  # chunks that wait one by one before they are encoded
DEPTH: Final = 200  # containers in containers, so that reading never meets the interpreter's own limit
HOT: Final = 64  # string leaves that are kept as growing texts; beyond it, half of them are strings again
_HOLE: Final = msgspec.Raw(b'"\0"')  # a NUL is never in JSON
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(str).decode

Tree = Any
Place = str | int


class Text:
    """A growing string leaf, kept as JSON that is escaped and encoded once.

    What is appended is copied a bounded number of times, however often it is read encoded.

    Only sound text (values.py) may be appended to `pending`; `held` is the half of a surrogate pair that came last
    and is no part of the text yet. Who appends calls `encoded` now and then (each BATCH chunks).
    """

    __slots__ = ("_buffer", "held", "pending")

    def __init__(self, text: str, held: str = "") -> None:
        self.held = held
        self.pending = [text]
        self._buffer = bytearray()

    def append(self, chunk: str, held: str) -> None:
        """Take more of it, and what is held back now."""
        self.pending.append(chunk)
        self.held = held

    def text(self) -> str:
        """The characters."""
        return _decode(b"".join((b'"', self.encoded(), b'"')))

    def encoded(self) -> bytearray:
        """Its JSON without the quotes. Not to be kept: it grows with the text."""
        if self.pending:
            data = _encode("".join(self.pending))
            self.pending.clear()
            self._buffer += (data if data.isascii() else escape_lines(data))[1:-1]
        return self._buffer


def owned(value: Json, settled: bool, clean: bool, depth: int) -> Tree:
    """A tree of our own of a value. Raises Clash if it would be deeper than DEPTH.

    `settled` drops the leading nulls of arrays, as for a delta; `clean` promises that all its text is sound.
    """
    if depth > DEPTH:
        raise Clash(TOO_DEEP)
    if isinstance(value, dict):
        return {key if clean else sound_key(key): owned(part, settled, clean, depth + 1) for key, part in value.items()}
    if isinstance(value, list):
        items = value[1:] if settled and value and value[0] is None else value
        return [owned(item, settled, clean, depth + 1) for item in items]
    if clean or not isinstance(value, str):
        return value
    text, held = stitch("", value)
    return Text(text, held) if held else text


def value_of(tree: Tree) -> Json:
    """The value of a tree, in containers of its own."""
    shape = type(tree)
    if shape is dict:
        return {key: value_of(part) for key, part in tree.items()}
    if shape is list:
        return [value_of(item) for item in tree]
    return tree.text() if shape is Text else tree


def step(tree: Tree, name: str) -> Tree:
    """One step of a pointer into a tree, or ABSENT."""
    if type(tree) is dict:
        return tree.get(name, ABSENT)
    if type(tree) is list and (at := index(name, len(tree))) is not None:
        return tree[at]
    return ABSENT


class Plan:
    """The effects of a delta on a tree: `values` to put (at None: to append), `chunks` to add to strings.

    Making it may fail and changes nothing; carrying it out (Fold) cannot fail.
    """

    __slots__ = ("chunks", "growth", "values")

    def __init__(self) -> None:
        self.values: list[tuple[Any, Place | None, Tree]] = []
        self.chunks: list[tuple[Any, Place, str, str]] = []  # container, place, chunk, half to hold
        self.growth = 0

    def combine(self, container: Any, at: Place, delta: Json, depth: int) -> Json:
        """Plan `container[at] + delta`. Returns the delta in sound text, the same object if it is so. Raises Clash."""
        node = container.get(at, ABSENT) if type(container) is dict else container[at]
        if delta is None and node is not ABSENT:
            return None
        if node is ABSENT or node is None:
            return self._put(container, at, delta, depth)
        try:
            if isinstance(delta, str) and isinstance(node, str | Text):
                return self._append(container, at, node, delta)
            if isinstance(delta, dict) and type(node) is dict:
                return self._merge(node, delta, depth)
            if isinstance(delta, list) and type(node) is list:
                return self._extend(node, delta, depth)
            if isinstance(node, Text):
                raise Clash(f"{kind(delta)} cannot be combined with string")
            total = combine_scalars(node, delta)
        except Clash as clash:
            clash.steps.append(at)
            raise
        if total is not node:
            self.values.append((container, at, total))
        return delta

    def _put(self, container: Any, at: Place | None, delta: Json, depth: int) -> Json:
        """A value where there was none."""
        clean, size = sized(delta)
        self.values.append((container, at, owned(delta, True, clean is delta, depth)))
        self.growth += size + (len(at) + 4 if isinstance(at, str) else 1)
        return clean

    def _append(self, container: Any, at: Place, node: str | Text, chunk: str) -> str:
        held = node.held if isinstance(node, Text) else ""
        if held or not chunk.isascii():
            sound_chunk, half = stitch(held, chunk)
            if sound_chunk == chunk:
                sound_chunk = chunk
        else:
            sound_chunk, half = chunk, ""
        if sound_chunk or half != held:
            self.chunks.append((container, at, sound_chunk, half))
        self.growth += len(sound_chunk) if sound_chunk.isascii() else len(sound_chunk.encode())
        return sound_chunk

    def _merge(self, node: dict[str, Tree], delta: dict[str, Json], depth: int) -> Json:
        passed_on = {}
        as_given = True
        for key, part in delta.items():
            clean = key if key in node or key.isascii() else sound_key(key)
            passed_on[clean] = self.combine(node, clean, part, depth + 1)
            as_given = as_given and clean == key and passed_on[clean] is part
        return delta if as_given else passed_on

    def _extend(self, node: list[Tree], delta: list[Json], depth: int) -> Json:
        if not delta:
            return delta
        if node:
            passed_on = [self.combine(node, len(node) - 1, delta[0], depth + 1)]
            fresh = delta[1:]
        elif delta[0] is None:
            passed_on, fresh = [None], delta[1:]
        else:
            passed_on, fresh = [], delta
        passed_on += [self._put(node, None, item, depth + 1) for item in fresh]
        return delta if all(a is b for a, b in zip(passed_on, delta, strict=True)) else passed_on


class Fold:
    """A document grown by deltas, as a value and as JSON bytes, each made when asked for and kept until the next
    change.

    `n` deltas that append to a few string leaves cost O(bytes appended), and `encoded()` in between costs one copy of
    the document. Other deltas cost their own size, and make the next `encoded()` encode again what is not a growing
    string. Text is always sound (values.py): half a surrogate pair at the end of a string is held back until the other
    half comes, any other lone surrogate is U+FFFD, so what is read here can always be encoded.

    Deltas and values that are given are never changed or kept. An error leaves the fold as it was.
    """

    __slots__ = ("_box", "_document", "_grown", "_hot", "_parts", "_size", "_texts")

    def __init__(self, document: Json | Sentinel = ABSENT) -> None:
        self._box: list[Tree] = [ABSENT]  # a list, so that the root too has a container
        self._document: Json = ABSENT
        self._grown: Text | None = None  # what the last delta let grow, while nothing else has changed since
        self._hot: dict[Text, tuple[Any, Place]] = {}
        self._parts: list[bytes] | None = None  # the JSON around the texts; None: encode again
        self._texts: list[Text] = []
        self._size = 0
        if document is not ABSENT:
            self.set(document)

    @property
    def absent(self) -> bool:
        """True while there is no value yet."""
        return self._box[0] is ABSENT

    @property
    def size(self) -> int:
        """Encoded bytes, O(1): exact after `encoded()`, and since then plus about what has been added."""
        return self._size

    def apply(self, delta: Json) -> Json:
        """Combine the document with a delta (see `combine`). Raises DeltaError.

        Returns the delta in sound text, to be passed on to those who can send no other: combined in turn, these give
        `document()`. It is `delta` itself unless a surrogate was held back, joined to its other half or replaced.
        """
        node, part = self._box[0], delta
        while True:
            shape = type(part)
            if shape is dict:
                if len(part) != 1 or type(node) is not dict:
                    break
                (key,) = part
                node, part = node.get(key), part[key]
            elif shape is str:
                if type(node) is not Text:
                    break
                self._grown = node
                if self.grow(part):
                    return delta
                break
            elif shape is list and type(node) is list and node:
                if len(part) == 1:
                    node, part = node[-1], part[0]
                elif part and part[0] is None and self._append(node, delta, part):
                    return delta
                else:
                    break
            else:
                break
        return self._begin(delta) if self.absent else self._apply_any(delta)

    def grow(self, text: Json) -> bool:
        """Append to the string that the last delta has appended to. False, and nothing is done, if there is none, or if
        that is not so simple: it is for `apply` then.
        """
        grown = self._grown
        if grown is None or grown.held or type(text) is not str:
            return False
        if text.isascii():
            self._size += len(text)
        else:
            try:
                self._size += len(text.encode())
            except UnicodeEncodeError:
                return False
        grown.pending.append(text)
        if len(grown.pending) > BATCH:
            grown.encoded()
        self._document = ABSENT
        return True

    def _append(self, node: list[Tree], delta: Json, part: list[Json]) -> bool:
        """Add the items of a delta's inmost part to their array. False, and nothing is done, if that is not so simple.

        That is so for text that is not sound, and where an item may be nested too deep.
        """
        fresh, growth, depth = [], 0, 1
        while delta is not part:
            delta = delta[0] if type(delta) is list else next(iter(delta.values()))
            depth += 1
        try:
            for item in part[1:]:
                clean, size = sized(item)
                if clean is not item:
                    return False
                fresh.append(owned(item, True, True, depth))
                growth += size + 1
        except (Clash, RecursionError):
            return False
        node += fresh
        self._size += growth
        self._changed()
        return True

    def _begin(self, delta: Json) -> Json:
        self._box[0], passed_on, self._size = _owned(delta, 0, settled=True)
        self._changed()
        if type(root := self._box[0]) is dict and len(root) == 1:
            ((name, text),) = root.items()
            if type(text) is str:  # it is going to grow
                self._heat(root, name, text)
        return passed_on

    def _apply_any(self, delta: Json) -> Json:
        self._grown = None
        plan = Plan()
        try:
            passed_on = plan.combine(self._box, 0, delta, 0)
        except Clash as clash:
            raise DeltaError(str(clash), path=join(clash.steps[-2::-1])) from None  # less the box
        except RecursionError:
            raise DeltaError(TOO_DEEP) from None
        for container, at, value in plan.values:
            if at is None:
                container.append(value)
            else:
                container[at] = value
        for container, at, chunk, held in plan.chunks:
            text = container[at]
            if type(text) is not Text:
                text = self._heat(container, at, text)
            text.append(chunk, held)
        self._document = ABSENT
        if plan.values:
            self._parts = None
        self._size += plan.growth
        return passed_on

    def _heat(self, container: Any, at: Place, text: str) -> Text:
        """Make a string a growing text."""
        if len(self._hot) >= HOT:
            for old in list(self._hot)[: HOT // 2]:
                holder, place = self._hot.pop(old)
                if holder[place] is old and not old.held:
                    holder[place] = old.text()
        grown = container[at] = Text(text)
        self._hot[grown] = (container, at)
        self._parts = None
        return grown

    def set(self, document: Json) -> None:
        """The whole document anew, verbatim (no null is dropped). Raises DeltaError if it is nested too deep."""
        self._box[0], _, self._size = _owned(document, 0)
        self._hot.clear()
        self._changed()

    def replace(self, pointer: str, value: Json) -> None:
        """The value at the pointer anew, verbatim; a key or item ("-" or the length) is added where there is none.

        Raises DeltaError if what should hold it is not there, Invalid if it is no JSON pointer.
        """
        steps = split(pointer)
        if not steps:
            self.set(value)
            return
        node = self._box[0]
        for depth, name in enumerate(steps[:-1]):
            node = step(node, name)
            if node is ABSENT:
                raise DeltaError("nothing there", path=join(steps[: depth + 1]))
        last = steps[-1]
        copy, _, size = _owned(value, len(steps))
        if type(node) is dict:
            node[last] = copy
        elif type(node) is list and (at := index(last, len(node))) is not None:
            node[at] = copy
        elif type(node) is list and last in (END, str(len(node))):
            node.append(copy)
        else:
            raise DeltaError("nothing there", path=pointer)
        self._changed()
        self._size += size

    def get(self, pointer: str) -> Json | Sentinel:
        """The value at the pointer, not to be changed; ABSENT where there is none. Costs no more than that value."""
        node = self._box[0]
        for name in split(pointer):
            node = step(node, name)
        return value_of(node)

    def length(self, pointer: str) -> int | None:
        """How many items the array at the pointer has, None if there is no array."""
        node = self._box[0]
        for name in split(pointer):
            node = step(node, name)
        return len(node) if type(node) is list else None

    def _changed(self) -> None:
        self._document = ABSENT
        self._grown = self._parts = None

    def document(self) -> Json | Sentinel:
        """The document as a value, not to be changed; ABSENT while there is none. Later deltas do not show in it."""
        if self._document is ABSENT:
            self._document = value_of(self._box[0])
        return self._document

    def encoded(self) -> bytes:
        """The document as compact JSON in UTF-8, on one line however lines are split; `null` while absent."""
        parts = self._parts
        if parts is not None and len(parts) == 2:  # the usual one text, by the shortest way
            data = b"".join((parts[0], self._texts[0].encoded(), parts[1]))
        elif self._box[0] is ABSENT:
            return b"null"
        else:
            first, *others = parts if parts is not None else self._encode_around()
            pieces: list[bytes | bytearray] = [first]
            for text, after in zip(self._texts, others, strict=True):
                pieces += (text.encoded(), after)
            data = b"".join(pieces)
        self._size = len(data)
        return data

    def _encode_around(self) -> list[bytes]:
        texts: list[Text] = []

        def hole(text: Text) -> msgspec.Raw:
            texts.append(text)
            return _HOLE

        data = msgspec.json.Encoder(enc_hook=hole).encode(self._box[0])
        self._parts = escape_lines(data).split(b"\0")
        self._texts = texts
        return self._parts


def _owned(value: Json, depth: int, settled: bool = False) -> tuple[Tree, Json, int]:
    """A tree of our own of a value (see `owned`), the value in sound text, and the size of its JSON."""
    try:
        clean, size = sized(value)
        return owned(value, settled, clean is value, depth), clean, size
    except (Clash, RecursionError):
        raise DeltaError(TOO_DEEP) from None
