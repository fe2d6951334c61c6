"""Valid JSON documents made wrong: other types, members that are missing or too many, text and numbers nobody takes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from typing import Any, TypeAlias

Json: TypeAlias = Any
Place: TypeAlias = tuple[Any, Any]
"""A container and the key or index of one of its members."""


class Text(str):
    """JSON text that goes out as it is, also where it is no JSON."""


ODD = [
    *map(Text, ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "-0.0", "1E+999", "9" * 400, "9" * 5000)),
    *map(Text, ('"\\ud800"', '"a\\udc00b"', '"\\ud83d\\ude00\\ud83d"', '"\\u0000"', '{"\\ud800":1}', '["\\udfff"]')),
    *map(
        Text, ('{"a":1e400}', '{"a":{"b":[NaN]}}', '{"a":1,"a":2}', '"\\x"', "'single'", "undefined", "01", "+1", ".5")
    ),
    *(0, 1, -1, 1.5, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**30, 1e308, True, False, None),
    *("", " ", "x", "null", "0", "../../etc/passwd", "/", "a/b", "%00", "\u2028", "é", "\ufeff", "x" * 300),
    *("2026-01-01T00:00:00Z", "0000-00-00", "9999-12-31T23:59:59Z", "$ref", "00000000-0000-0000-0000-000000000000"),
    *([], {}, [None], [[]], {"": ""}, {"$ref": "#"}, ["a", 1, None, {}], {"type": "text"}, {"__proto__": {}}),
]
"""In place of any value. `Text` is written as it stands."""

KEYS = [
    "\ud800",
    "",
    "x",
    "_meta",
    "sessionId",
    "id",
    "$ref",
    "a" * 300,
    "a\u0000b",
    "__class__",
    "type",
    "agentId",
    "webhook",
    "after_seconds",
]
"""Names of members that are too many."""

DEPTHS = (20, 300, 2_000, 100_000)
LENGTHS = (5_000, 70_000, 300_000)


def write(value: Json) -> bytes:
    """As `json.dumps`, with `Text` as it stands."""
    if isinstance(value, Text):
        return value.encode()
    if isinstance(value, dict):
        members = (json.dumps(key).encode() + b":" + write(member) for key, member in value.items())
        return b"{" + b",".join(members) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(write, value)) + b"]"
    return json.dumps(value).encode()


def mutated(rng: random.Random, document: Json, *, whole: bool = True) -> bytes:
    """The document's JSON after one to three changes. `whole`: also what is no JSON at all."""
    box = [copy.deepcopy(document)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(_CHANGES)(rng, *rng.choice(list(places(box))))
    data = write(box[0])
    if whole and rng.random() < 0.12:
        data = rng.choice(_BREAKS)(rng, data)
    return data


def places(container: Json) -> Iterator[Place]:
    """Every member of a document, at any depth."""
    members: list[Place] = []
    if isinstance(container, dict):
        members = [(container, key) for key in container]
    elif isinstance(container, list):
        members = [(container, index) for index in range(len(container))]
    for place in members:
        yield place
        yield from places(place[0][place[1]])


def odd(rng: random.Random) -> Json:
    """One value of ODD, or one that is deep or long."""
    drawn = rng.random()
    if drawn < 0.04:
        depth = rng.choice(DEPTHS)
        opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
        return Text(opening * depth + "1" + closing * depth)
    if drawn < 0.07:
        return rng.choice("xé\u20ac") * rng.choice(LENGTHS)
    return copy.deepcopy(rng.choice(ODD))


def _replace(rng: random.Random, container: Json, key: Any) -> None:
    container[key] = odd(rng)


def _remove(rng: random.Random, container: Json, key: Any) -> None:
    if isinstance(container, MutableMapping):
        del container[key]
    else:
        container[key] = None


def _add(rng: random.Random, container: Json, key: Any) -> None:
    target = container[key] if isinstance(container[key], dict | list) else container
    if isinstance(target, MutableMapping):
        target[rng.choice(KEYS)] = odd(rng)
    elif isinstance(target, MutableSequence) and target is not container:
        target.insert(rng.randint(0, len(target)), odd(rng))


def _rename(rng: random.Random, container: Json, key: Any) -> None:
    if isinstance(container, MutableMapping):
        container[rng.choice(KEYS)] = container.pop(key)


def _wrap(rng: random.Random, container: Json, key: Any) -> None:
    container[key] = rng.choice(([container[key]], {"value": container[key]}, json.dumps(str(container[key]))))


def _swap(rng: random.Random, container: Json, key: Any) -> None:
    """Another part of the same document: of a type that fits elsewhere."""
    other, its = rng.choice(list(places(container)))
    container[key] = copy.deepcopy(other[its])


def _lengthen(rng: random.Random, container: Json, key: Any) -> None:
    """A half character, a control character or much text at the end of a string."""
    if isinstance(container[key], str) and not isinstance(container[key], Text):
        container[key] += rng.choice(("\ud800", "\udc00", "\u0000", "/..", " ", "x" * 5_000, "\n", "%ff", '"'))
    else:
        container[key] = odd(rng)


_CHANGES: list[Callable[[random.Random, Json, Any], None]] = [
    _replace, _replace, _replace, _remove, _add, _rename, _wrap, _swap, _lengthen, _lengthen,
]  # fmt: skip


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _raw(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.choice((b"\xff", b"\xed\xa0\x80", b"\x00", b"\xc3", b"\xf5", b"\\", b'"')) + data[at:]


def _flip(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _around(rng: random.Random, data: bytes) -> bytes:
    return rng.choice((b"[%b]", b"[%b,%b]", b"%b%b", b"\xef\xbb\xbf%b%b", b"%b,", b'"%b')).replace(b"%b", data)


def _other(rng: random.Random, data: bytes) -> bytes:
    return rng.choice(
        (b"", b" ", b"[]", b"[[]]", b"1", b'"x"', b"null", b"{}", b"\x00", b"\xff\xfe{\x00}\x00", b"{" * 50)
    )


_BREAKS: list[Callable[[random.Random, bytes], bytes]] = [_cut, _raw, _raw, _flip, _around, _other]
