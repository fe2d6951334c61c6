"""A JSON Schema in words, and by an example, for a person who is to write a value of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from gateway.core import choices, delta
from gateway.core.projection import views_of
from gateway.core.types import Json, JsonObject

HOW: Final = "Answer with JSON, or with one value a line."
_LIMITS: Final = (("minimum", "at least"), ("exclusiveMinimum", "more than"), ("maximum", "at most"))
_LENGTHS: Final = (("minLength", "at least {} characters"), ("maxLength", "at most {} characters"))
_COUNTS: Final = (("minItems", "at least {}"), ("maxItems", "at most {}"))
_DEPTH: Final = 6


class Leaf(msgspec.Struct, frozen=True):
    """A value somewhere in an object: the names that lead there, its schema, and whether the object needs it."""

    path: tuple[str, ...]
    schema: JsonObject
    required: bool

    @property
    def name(self) -> str:
        """The path as a person reads and writes it: `place.zip`."""
        return ".".join(self.path)


def leaves(schema: Any, root: Any = None, depth: int = _DEPTH) -> Iterator[Leaf]:
    """The values in an object of this schema, in its order; objects in it are taken apart where there is one kind."""
    root = schema if root is None else root
    only = single(schema, root)
    if only is None:
        return
    for name, part in only["properties"].items():
        inner = single(part, root)
        required = name in only["required"]
        if inner is not None and inner["properties"] and depth:
            for leaf in leaves(part, root, depth - 1):
                yield Leaf((name, *leaf.path), leaf.schema, required and leaf.required)
        else:
            yield Leaf((name,), resolved(part, root), required)


def single(schema: Any, root: Any) -> Mapping[str, Any] | None:
    """The only view of a schema that takes objects; None if it takes something else too, but null."""
    found = [view for view in views_of(schema, root) if view["type"] != "null"]
    if len(found) != 1 or found[0]["type"] not in ("object", None):
        return None
    return found[0] if found[0]["type"] == "object" or found[0]["properties"] else None


def resolved(schema: Any, root: Any) -> JsonObject:
    """The schema without references at its top, and without the alternative null; itself where it has several kinds."""
    if not isinstance(schema, Mapping):
        return {}
    found = [view for view in views_of(schema, root) if view["type"] != "null"]
    joins = {"$ref", "allOf", "anyOf", "oneOf"} & schema.keys() or isinstance(schema.get("type"), list)
    if len(found) != 1 or not joins or choices.choices(schema) is not None:
        return dict(schema)
    view = dict(found[0])
    if view["type"] is None:
        del view["type"]
    for key in ("properties", "required"):
        if not view[key]:
            del view[key]
    return view


def listing(schema: Any) -> str | None:
    """The values that an object of this schema wants, a line each, and how to write them.

    None for any other schema, and for one with values that few words cannot describe.
    """
    found = list(leaves(schema))
    if not found or any(_is_deep(leaf.schema) for leaf in found):
        return None
    return "\n".join([*(f"- {line(leaf)}" for leaf in found), "", HOW])


def _is_deep(schema: JsonObject) -> bool:
    """Whether a value is more than a text, a number, a choice or a list of these."""
    if choices.choices(schema) is not None or not schema:
        return False
    if schema.get("type") == "array":
        return not isinstance(schema.get("items"), Mapping) or _is_deep(schema["items"])
    return schema.get("type") not in ("string", "integer", "number", "boolean")


def line(leaf: Leaf) -> str:
    """One value: its name, what it may be, and what it is about."""
    schema = leaf.schema
    said = f"{leaf.name}: {kind(schema)}"
    if "default" in schema:
        said += f", else {_shown(schema['default'])}"
    elif not leaf.required:
        said += ", optional"
    about = schema.get("description") or schema.get("title")
    return f"{said} ({' '.join(about.split())})" if isinstance(about, str) and about.strip() else said


def kind(schema: Any) -> str:
    """The values that a schema allows, in a few words: `celsius or fahrenheit`, `a whole number, at least 1`."""
    found = choices.choices(schema)
    if found is not None:
        return _either([choice.label for choice in found])
    if not isinstance(schema, Mapping):
        return "anything"
    match schema.get("type"):
        case "string":
            format_ = schema.get("format")
            return _limited("text" if not isinstance(format_, str) else f"text ({format_})", schema, _LENGTHS)
        case "integer" | "number" as type_:
            said = "a whole number" if type_ == "integer" else "a number"
            limits = [f"{word} {_shown(schema[key])}" for key, word in _LIMITS if key in schema]
            return ", ".join([said, *limits])
        case "array":
            items = schema.get("items")
            inner = choices.choices(items)
            what = f"of {_either([choice.label for choice in inner])}" if inner else f"of {kind(items)}"
            return _limited(f"a list {what}, separated by commas", schema, _COUNTS)
        case "object":
            return "a JSON object"
        case "null":
            return "null"
    return "JSON"


def example(schema: Any, root: Any = None, depth: int = _DEPTH) -> Json:
    """A value of the schema, as short as it may be: defaults and examples of its own, else one of its kind."""
    root = schema if root is None else root
    if not isinstance(schema, Mapping):
        return "..."
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    found = [one for one in views_of(schema, root) if one["type"] != "null"]
    view: Mapping[str, Any] = found[0] if found else {"type": None, "properties": {}, "required": []}
    if view.keys() & {"default", "const", "enum", "examples"} and not schema.keys() >= view.keys():
        return example({key: view[key] for key in ("default", "const", "enum", "examples") if key in view}, root)
    match view["type"]:
        case "string":
            return _text_of(view)
        case "integer" | "number" as kind:
            return _number_of(view, whole=kind == "integer")
        case "boolean":
            return True
        case "array":
            least = view.get("minItems", 1) or 1
            return [example(view.get("items", {"type": "string"}), root, depth - 1)] * min(least, 10) if depth else []
        case "object" | None if depth:
            required = view["properties"] if view["type"] is None and not view.get("required") else view["required"]
            wanted = [name for name in view["properties"] if name in required] or list(view["properties"])[:1]
            more = [name for name in required if name not in view["properties"]]
            inside = {name: example(view["properties"][name], root, depth - 1) for name in wanted}
            return {**inside, **dict.fromkeys(more, "...")}
    return {}


def _text_of(view: Mapping[str, Any]) -> str:
    formats = {
        "email": "someone@example.org",
        "uri": "https://example.org",
        "date": "2026-01-31",
        "time": "12:00:00Z",
        "date-time": "2026-01-31T12:00:00Z",
        "uuid": "00000000-0000-4000-8000-000000000000",
    }
    least, most = view.get("minLength", 0), view.get("maxLength", 1_000_000)
    return formats.get(view.get("format", ""), "text").ljust(least, "x")[:most]


def _number_of(view: Mapping[str, Any], *, whole: bool) -> int | float:
    low, high = view.get("minimum"), view.get("maximum")
    above, below = view.get("exclusiveMinimum"), view.get("exclusiveMaximum")
    step = view.get("multipleOf", 1)
    number = low if low is not None else above + step if above is not None else None
    if number is None:
        number = min(high, step) if high is not None else below - step if below is not None else step
    if whole and number != int(number):
        number = int(number) + (number > 0)
    return int(number) if whole else number


def _limited(said: str, schema: Mapping[str, Any], words: tuple[tuple[str, str], ...]) -> str:
    return ", ".join([said, *(word.format(schema[key]) for key, word in words if key in schema)])


def _either(labels: list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} or {labels[-1]}"


def _shown(value: Json) -> str:
    return value if isinstance(value, str) and value else delta.encode(value).decode()
