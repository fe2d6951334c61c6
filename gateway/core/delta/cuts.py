"""Growing strings in JSON bytes: where they end, so that the next snapshot can be read by comparing bytes.

A *cut* is the place of the closing quote of a string that has grown. A snapshot split at its cuts is a list of
segments, and a later one that is those same segments with bytes between them that are the inside of a JSON string, is
the same document with those strings grown: up to the cut a parser has read the same bytes and is inside that string,
the bytes between keep it there, and from the closing quote on it reads what it has read before. That holds for any
serializer and any white space, and anything else (a changed byte, a raw quote, a broken escape) does not fit and has
to be parsed.
"""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from gateway.core.delta.algebra import compose, diff
from gateway.core.delta.values import Json, decode, sound
from gateway.core.errors import AgentBroken

LIMIT: Final = 8  # cuts in one document; when there are more, the newest are kept
LAST: Final = None  # a step into the last item of an array
Route = tuple[str | None, ...]  # to a string leaf, as a delta goes: keys, and LAST
Cut = tuple[int, Route]

_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_decode_string = msgspec.json.Decoder(str).decode


class Segments:
    """A snapshot split at its cuts, and what its strings have grown by since it was parsed."""

    __slots__ = ("_parsed", "_parts", "_routes", "_untold")

    def __init__(self, raw: bytes, cuts: list[Cut]) -> None:
        edges = [0, *(place for place, _ in cuts), len(raw)]
        # Arrays of bytes: appending to them is cheap, and comparing with them needs no copy.
        self._parts = [bytearray(raw[a:b]) for a, b in pairwise(edges)]
        self._routes = [route for _, route in cuts]  # to the string that ends between parts i and i + 1
        self._untold: list[list[str]] = [[] for _ in cuts]  # since `told`
        self._parsed = [len(part) for part in self._parts[:-1]]  # up to where `since` has given each

    def raw(self) -> bytes:
        """The last snapshot."""
        return b"".join(self._parts)

    def cuts(self) -> list[Cut]:
        """The cuts in it."""
        places = accumulate(len(part) for part in self._parts[:-1])
        return list(zip(places, self._routes, strict=True))

    def grow(self, data: bytes, start: int, end: int) -> bool:
        """Take the next snapshot, data[start:end], if it lets nothing but strings grow, and those that have grown since
        `told`.
        """
        if len(self._parts) > 2:
            return self._grow_any(data[start:end])
        head, tail = self._parts  # the usual one cut, by the shortest way
        from_, to = start + len(head), end - len(tail)
        if to < from_ or not data.startswith(head, start) or not data.endswith(tail, start, end):
            return False
        if to > from_:
            added = data[from_:to]
            try:
                text = _decode_string(b'"' + added + b'"')
            except ValueError:
                return False
            head += added
            self._untold[0].append(text)
        return True

    def _grow_any(self, raw: bytes) -> bool:
        found = self._between(raw)
        untold = {cut for cut, texts in enumerate(self._untold) if texts}
        if found is None or (untold and found and found.keys() != untold):
            return False
        try:
            texts = [_decode_string(b'"%b"' % added) for added in found.values()]
        except ValueError:
            return False
        for (cut, added), text in zip(found.items(), texts, strict=True):
            self._parts[cut] += added
            self._untold[cut].append(text)
        return True

    def told(self) -> Json:
        """The delta to the last snapshot from the one at the last call; null: none."""
        delta: Json = None
        for cut, texts in enumerate(self._untold):
            if texts:
                more = routed(self._routes[cut], "".join(texts))
                delta = more if delta is None else compose(delta, more)
                texts.clear()
        return delta

    def _between(self, raw: bytes) -> dict[int, bytes] | None:
        """Cut -> bytes that are now before it, or None if the parts are not all there."""
        found: dict[int, bytes] = {}
        at = 0
        for i, part in enumerate(self._parts):
            if not raw.startswith(part, at):
                end = inside(raw, at)
                if i == 0 or not raw.startswith(part, end):
                    return None
                found[i - 1] = raw[at:end]
                at = end
            at += len(part)
        return found if at == len(raw) else None

    def since(self) -> list[Json]:
        """Deltas to the last snapshot from the one at the last call, or from the first; in any order."""
        deltas = []
        for cut, (part, parsed) in enumerate(zip(self._parts, self._parsed, strict=False)):
            if len(part) > parsed:
                deltas.append(routed(self._routes[cut], _decode_string(b'"' + part[parsed:] + b'"')))
                self._parsed[cut] = len(part)
        return deltas


def inside(raw: bytes, at: int) -> int:
    """The end of the inside of a JSON string from `at`: the next quote that is not escaped, or the end of the bytes."""
    end = raw.find(b'"', at)
    if end < 0 or b"\\" in raw[at:end]:
        found = _INSIDE.match(raw, at)
        end = found.end() if found else at
    return end


def routed(route: Route, text: str) -> Json:
    """The delta that adds the text to the string that the route leads to."""
    delta: Json = text
    for step in reversed(route):
        delta = [delta] if step is None else {step: delta}
    return delta


def text_at(delta: Json) -> Route | None:
    """Where the text is that the delta adds to; None if it may be more than some text at one place."""
    route: list[str | None] = []
    while type(delta) is not str:
        if type(delta) is dict and len(delta) == 1:
            ((key, delta),) = delta.items()
            route.append(key)
        elif type(delta) is list and len(delta) == 1:
            route.append(LAST)
            delta = delta[0]
        else:
            return None
    return tuple(route)


def likely(raw: bytes, document: Json) -> list[Cut]:
    """The cut of a snapshot that is one text in an object, as nearly all are whose text grows. [] for any other, and
    for a text that may end in half a character.
    """
    if type(document) is not dict or len(document) != 1 or not raw.endswith(b'"}') or b"\\" in raw[-8:]:
        return []
    ((name, text),) = document.items()
    return [(len(raw) - 2, (name,))] if type(text) is str else []


def find(before: bytes, cuts: list[Cut], after: bytes, document: Json) -> list[Cut]:
    """The cuts of the snapshot `after` (which reads as `document`): those of `before`, and those that show now.

    None at all ([]) unless the two differ by insertions into strings only.
    """
    insertions = _insertions(before, after)
    places = [place + sum(end - start for at, start, end in insertions if at <= place) for place, _ in cuts]
    places += [end for _, _, end in insertions if end not in places]
    places = sorted(places[-LIMIT:])
    if not insertions:
        return []
    return sorted(_routes(after, places, document).items())


def _insertions(before: bytes, after: bytes) -> list[tuple[int, int, int]]:
    """(place in before, start in after, end in after) of bytes inserted before quotes; [] if there is any other
    change."""
    found: list[tuple[int, int, int]] = []
    i = j = 0
    while len(found) <= LIMIT:
        n = _common(before, i, after, j)
        i, j = i + n, j + n
        if i == len(before):
            return found if j == len(after) else []
        if before[i] != ord('"'):
            return []
        end = inside(after, j)
        if end == j or not after.startswith(b'"', end):
            return []
        found.append((i, j, end))
        j = end
    return []


def _common(a: bytes, i: int, b: bytes, j: int) -> int:
    """How many bytes from a[i:] and b[j:] on are the same."""
    low, high = 0, min(len(a) - i, len(b) - j)
    if b.startswith(a[i : i + high], j):
        return high
    while high - low > 1:  # the first `low` are the same, the first `high` are not
        middle = (low + high) // 2
        if b.startswith(a[i + low : i + middle], j + low):
            low = middle
        else:
            high = middle
    return low


def _routes(raw: bytes, cuts: list[int], document: Json) -> dict[int, Route]:
    """Where the strings that end at `cuts` are: put a mark into each, and see where it comes out.

    A mark that appears at the end of a string's value, and nowhere else, has been put at the end of that string.
    """
    edges = [0, *cuts, len(raw)]
    pieces = [raw[a:b] for a, b in pairwise(edges)]
    marked = b"".join(b"%b#%d" % (piece, i) for i, piece in enumerate(pieces[:-1])) + pieces[-1]
    found: dict[int, Route] = {}
    try:
        todo: list[tuple[Json, Route]] = [(diff(document, sound(decode(marked))), ())]
    except AgentBroken:
        return {}
    while todo:
        delta, route = todo.pop()
        if isinstance(delta, dict):
            todo += [(part, (*route, key)) for key, part in delta.items()]
        elif isinstance(delta, list) and len(delta) == 1:
            todo.append((delta[0], (*route, LAST)))
        elif isinstance(delta, str) and delta in (marks := [f"#{i}" for i in range(len(cuts))]):
            found[cuts[marks.index(delta)]] = route
    return found
