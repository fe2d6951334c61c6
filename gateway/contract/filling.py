"""An agent's input, made of a client's words; and what these leave to ask.

The words are, the first that holds:

1. the input itself, if they are a JSON object that fits the agent's schema;
2. a part of it, if they are a JSON object of which each member is one of the schema's and fits;
3. its text, if the schema has one place for text (but lines that name all values are these values);
4. what is missing, as a person may write it: JSON, `name: value` or one value a line, or the only value.

Defaults, constants and lists of one value are filled in and never asked for. What is still missing comes back as a
form: the JSON Schema of an object with the missing members alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET, Struct

from gateway.contract import fitting, reading
from gateway.core import delta, wording
from gateway.core.projection import views_of, wrap
from gateway.core.types import Json, JsonObject

MESSAGE: Final = "message"
"""Where words go in an object of which the schema says nothing, as in the input that the gateway assumes."""
_MOST_WRONG: Final = 20
"""So many wrong values are taken out of a document, to be asked for again."""
_DEPTH: Final = 8
_ABSENT: Final = delta.ABSENT


class Filled(Struct, frozen=True):
    """An input as far as it is known, and the form that asks for the rest: None if nothing is missing.

    why: what is wrong about values that were given, and are in the form for that. unsaid: the words found no place.
    fits: the document is known to fit the schema.
    """

    document: Json
    form: JsonObject | None = None
    why: str = ""
    unsaid: bool = False
    fits: bool = False


class Filling:
    """Fills the input of one agent. Has no state."""

    def __init__(self, schema: JsonObject, pointer: str | None) -> None:
        """`pointer` is where the agent's input has its text, None if nowhere."""
        self._schema = schema
        self._pointer = pointer
        self._judge = fitting.SchemaJudge(schema)
        self._only = [view for view in views_of(schema, schema) if view["type"] != "null"]
        self._certainly = self._judge.certainly if pointer is not None and self._text_is_enough() else None
        self._alone = sum(len(view["properties"]) for view in self._only) <= 1
        """Whether several lines of text cannot name other values."""

    def filled(self, words: str, given: Json = None) -> Filled:
        """The input that a client's words and what it said as a document (`given`, None if nothing) make together.

        Empty words beside a document say nothing.
        """
        if given is None and self._is_text(words) and (told := self._text_alone(words)) is not None:
            return told
        if not words.strip() and given is not None and self._pointer != "":
            return self.completed(given)
        value = _json(words) if self._pointer != "" else _ABSENT
        if isinstance(value, dict):
            whole = joined(given, value)
            if self._is_input(value, whole):
                return Filled(whole)
            if self._is_part(value) or (self._pointer is None and self._names(value)):
                return self.completed(whole)
        if self._pointer is not None:
            if (listed := self._listed(words, given)) is not None:
                return listed
            if given is None and (told := self._text_alone(words)) is not None:
                return told
            return self.completed(joined(given, wrap(words, self._pointer, self._schema)))
        return self._without_text(words, given)

    def completed(self, document: Json, *, optional: bool = False) -> Filled:
        """The document with what need not be asked, without the values that do not fit. `optional`: the form asks for
        all that is missing, whether it is required or not.
        """
        sound, why = self._sound(document)
        known = _ABSENT if sound is None and not _takes_null(self._schema, self._schema) else sound
        whole, form = _complete(self._schema, self._schema, known, _DEPTH, optional=optional)
        if whole is _ABSENT:
            whole = None
        return Filled(whole, form and _with_definitions(form, self._schema), why)

    def _text_alone(self, words: str) -> Filled | None:
        """The input of which the words are the text; None where more may be missing, or the text might not fit."""
        if self._certainly is None or not self._certainly(document := wrap(words, self._pointer, self._schema)):
            return None
        return Filled(document, fits=True)

    def _text_is_enough(self) -> bool:
        """Whether nothing is missing in an input with its text alone, nor is filled in."""
        document = wrap("text", self._pointer, self._schema)
        return self.completed(document) == Filled(document)

    def _is_text(self, words: str) -> bool:
        """Whether the words can be nothing but text: neither JSON, nor lines that name values."""
        return not words.lstrip().startswith(("{", "```")) and (self._alone or "\n" not in words.strip())

    # --- what the words are ---------------------------------------------------------------------------------------

    def _listed(self, words: str, given: Json) -> Filled | None:
        """Several lines of which each names a value, if nothing is missing then."""
        if self._pointer == "" or "\n" not in words.strip():
            return None
        for answer in reading.written(self._schema, words, named=True):
            filled = self.completed(joined(given, answer))
            if filled.form is None and not filled.why and len(answer) > 1:
                return filled
        return None

    def _without_text(self, words: str, given: Json) -> Filled:
        """The words where the input has no place for text."""
        missing = self.completed({} if given is None and self._is_object else given)
        asked = missing if missing.form else self.completed(missing.document, optional=True)
        if asked.form:
            found = reading.meant(asked.form, words)
            for answer in reading.written(asked.form, words) if found is UNSET else (found,):
                filled = self.completed(joined(asked.document, answer))
                if not filled.why:
                    return filled
        if missing.form or not words.strip():
            return missing
        for whole in (*reading.parsed(words), self._anything(words)) if given is None else ():
            if self._fits(whole):
                return Filled(whole)
        return asked if asked.form else Filled(missing.document, unsaid=True)

    def _anything(self, words: str) -> Json:
        """The words as input of a schema that says nothing of what is inside."""
        if not self._is_object:
            return words
        return {MESSAGE: words} if not self._names_any else None

    @property
    def _is_object(self) -> bool:
        return bool(self._only) and all(view["type"] == "object" or view["properties"] for view in self._only)

    @property
    def _names_any(self) -> bool:
        return any(view["properties"] for view in self._only)

    def _names(self, value: JsonObject) -> bool:
        return not self._names_any or any(value.keys() & view["properties"].keys() for view in self._only)

    def _is_input(self, value: JsonObject, whole: Json) -> bool:
        """Whether it is the input itself: it fits, and names something that the schema does (or it is empty)."""
        return (not value or self._names(value)) and self._fits(whole)

    def _is_part(self, value: JsonObject) -> bool:
        """Whether each member is one of the schema's and fits, and some are missing."""
        if not value or not any(value.keys() <= view["properties"].keys() for view in self._only):
            return False
        return all(error.validator == "required" for error in self._errors(value))

    # --- what fits ------------------------------------------------------------------------------------------------

    def _fits(self, value: Json) -> bool:
        try:
            return self._judge.fits(value)
        except fitting.Inapplicable:
            return True

    def _errors(self, value: Json) -> list[Any]:
        try:
            return self._judge.misfits(value)
        except fitting.Inapplicable:
            return []

    def _sound(self, document: Json) -> tuple[Json, str]:
        """The document without the members that do not fit, and why they do not."""
        why: list[str] = []
        for _ in range(_MOST_WRONG):
            wrong = next((found for error in self._errors(document) if (found := _wrong(error, document))), None)
            if wrong is None:
                break
            path, said = wrong
            document = _without(document, path)
            why.append(f"{'.'.join(path)}: {said}")
        return document, "\n".join(why)


def joined(document: Json, answer: Json) -> Json:
    """A document with the answer to its form. What is no object is the whole document."""
    if isinstance(document, dict) and isinstance(answer, dict):
        return reading.merged(document, answer)
    return answer if document is None or not isinstance(answer, dict) else document


def _json(words: str) -> Json:
    """The words read as JSON, fenced or not; ABSENT if they are not JSON."""
    text = words.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.removeprefix("```json").strip("`").strip()
    return next(iter(reading.parsed(text)), _ABSENT) if text[:1] == "{" else _ABSENT


# --- what does not fit ------------------------------------------------------------------------------------------------


def _wrong(error: Any, document: Json) -> tuple[list[str], str] | None:
    """The member that an error is about, and what is wrong; None if something is missing, or all of it is wrong."""
    path: list[str] = []
    at = document
    for step in error.absolute_path:
        if not isinstance(at, dict) or not isinstance(step, str):
            break
        path.append(step)
        at = at[step]
    if isinstance(at, dict) and error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        extra = next((name for name in at if name not in known), None)
        return None if extra is None else ([*path, extra], "there is no such value")
    if isinstance(at, dict) and error.validator in ("required", "dependentRequired", "minProperties"):
        return None
    if isinstance(at, dict) and error.validator in ("anyOf", "oneOf") and _takes_objects(error):
        return None
    return (path, error.message) if path else None


def _takes_objects(error: Any) -> bool:
    """Whether an alternative of those that all refuse an object would take another one."""
    never = ("type", "const", "enum")
    refuse = {inner.schema_path[0] for inner in error.context if inner.validator in never and not inner.path}
    return len(refuse) < len(error.validator_value)


def _without(document: Json, path: list[str]) -> Json:
    name, *rest = path
    if not rest:
        return {key: value for key, value in document.items() if key != name}
    return {**document, name: _without(document[name], rest)}


# --- what is missing --------------------------------------------------------------------------------------------------


def _complete(
    schema: Any, root: Any, value: Json, depth: int, *, optional: bool = False
) -> tuple[Json, JsonObject | None]:
    """The value with what need not be asked (ABSENT if all of it is missing), and the form that asks for the rest."""
    if value is _ABSENT and (known := _known(schema, root)) is not _ABSENT:
        return known, None
    found = [view for view in views_of(schema, root) if view["type"] != "null"]
    if isinstance(value, dict) and len(found) > 1:
        found = [_nearest(found, value)]
    if len(found) == 1 and depth and _takes_members(found[0], value):
        return _complete_object(found[0], root, value, depth, optional=optional)
    return (_ABSENT, wording.resolved(schema, root)) if value is _ABSENT else (value, None)


def _complete_object(
    view: Mapping[str, Any], root: Any, value: Json, depth: int, *, optional: bool
) -> tuple[Json, JsonObject | None]:
    inside: JsonObject = dict(value) if isinstance(value, dict) else {}
    asked: JsonObject = {}
    required = dict.fromkeys(view["required"])
    parts = {**view["properties"], **{name: {} for name in required if name not in view["properties"]}}
    for name, part in parts.items():
        known = inside.get(name, _ABSENT)
        if known is _ABSENT and name not in required:
            default = _default(part, root)
            if default is not _ABSENT and default is not None:
                inside[name] = default
            elif optional:
                asked[name] = wording.resolved(part, root)
            continue
        whole, form = _complete(part, root, known, depth - 1)
        if whole is not _ABSENT:
            inside[name] = whole
        if form is not None:
            asked[name] = form
    if not isinstance(value, dict) and not inside and not asked and not optional:
        return _ABSENT, wording.resolved(view, root)
    if not asked:
        return inside, None
    form = {key: view[key] for key in ("title", "description") if isinstance(view.get(key), str)}
    form |= {"type": "object", "properties": asked}
    wanted = [name for name in asked if name in required]
    return inside if inside or value is not _ABSENT else _ABSENT, {**form, "required": wanted} if wanted else form


def _takes_members(view: Mapping[str, Any], value: Json) -> bool:
    """Whether an object of this view may be asked for member by member."""
    if isinstance(value, dict):
        return True
    return value is _ABSENT and bool(view["properties"]) and view["type"] in ("object", None)


def _takes_null(schema: Any, root: Any) -> bool:
    return not isinstance(schema, Mapping) or any(view["type"] in ("null", None) for view in views_of(schema, root))


def _nearest(views: list[Mapping[str, Any]], value: JsonObject) -> Mapping[str, Any]:
    """The kind of object that a value most likely is: no constant differs, and the fewest members are missing."""

    def distance(view: Mapping[str, Any]) -> tuple[int, int]:
        parts = view["properties"]
        others = sum(
            1 for name in value if isinstance(parts.get(name), Mapping) and not _may_be(parts[name], value[name])
        )
        return others + sum(1 for name in value if name not in parts), sum(
            1 for n in view["required"] if n not in value
        )

    return min(views, key=distance)


def _may_be(part: Any, value: Json) -> bool:
    if not isinstance(part, Mapping):
        return True
    listed = [part["const"]] if "const" in part else part.get("enum")
    return not isinstance(listed, list) or any(delta.same(one, value) for one in listed)


def _known(schema: Any, root: Any) -> Json:
    """The value that is there without being asked: the default, or the only one that there is. ABSENT if none."""
    default = _default(schema, root)
    if default is not _ABSENT:
        return default
    found = [view for view in views_of(schema, root) if view["type"] != "null"]
    if len(found) == 1:
        if "const" in found[0]:
            return found[0]["const"]
        listed = found[0].get("enum")
        if isinstance(listed, list) and len(listed) == 1:
            return listed[0]
    return _ABSENT


def _default(schema: Any, root: Any) -> Json:
    """The default, if it is a value of the schema; ABSENT if there is none."""
    if not isinstance(schema, Mapping):
        return _ABSENT
    if "default" in schema:
        return schema["default"]
    found = list(views_of(schema, root))
    return found[0]["default"] if len(found) == 1 and "default" in found[0] else _ABSENT


def _with_definitions(form: JsonObject, schema: JsonObject) -> JsonObject:
    """The form with what its references lead to: all that the schema defines."""
    if '"$ref"' not in delta.encode(form).decode():
        return form
    return {**form, **{key: schema[key] for key in ("$defs", "definitions") if key in schema}}
