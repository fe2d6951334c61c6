"""YAML to plain values, remembering where each key stood.

Knows nothing of routes or manifests: `read` takes text and returns a `Document`. What is wrong with the file as YAML
(syntax, duplicate keys, missing variables) is collected as mistakes, all of them at once except for a syntax error,
after which there is nothing to read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import yaml

Where = tuple[str | int, ...]
"""The way to a key: ("routes", 1, "target", "protocol")."""


MOST = 100_000
"""Values in one file."""


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """What a mistake says of the known name that is nearest to what was given; "" if none is near."""
    from difflib import get_close_matches

    close = get_close_matches(str(given), list(map(str, known)), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def dotted(where: Where) -> str:
    """`routes[1].target.protocol`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)
    return text.removeprefix(".")


class Mistake(msgspec.Struct, frozen=True):
    """One thing that is wrong. `str` is the line to print; `line` and `column` count from 1, 0 is unknown.

    `code` is the name that a specification gives to the mistake, "" for most.
    """

    file: str
    line: int
    where: str
    message: str
    column: int = 0
    code: str = ""

    def __str__(self) -> str:
        place = ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])
        text = f"{place} {self.where}: {self.message}" if self.where else f"{place}: {self.message}"
        return f"{text} ({self.code})" if self.code else text


class DocumentError(Exception):
    """Files that cannot be used. `mistakes` are all that is wrong, file by file, in the order of the lines."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        found = list(dict.fromkeys(mistakes))
        files = list(dict.fromkeys(mistake.file for mistake in found))
        self.mistakes = tuple(sorted(found, key=lambda one: (files.index(one.file), one.line, one.column)))
        super().__init__("\n".join(map(str, self.mistakes)))


def text_of(file: str, read: Callable[[], bytes]) -> str:
    """The text of a file that `read` reads. Raises DocumentError where that raises OSError, or it is no UTF-8."""
    try:
        return read().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DocumentError([Mistake(file, 0, "", reason[0].lower() + reason[1:])]) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DocumentError([Mistake(file, line, "", f"not UTF-8: byte {error.start} is wrong")]) from error


KINDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
"""The types of JSON Schema in words."""


def kind_of(value: Any) -> str:
    """What a value is, in words."""
    names: list[tuple[type, str]] = [(bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")]
    names += [(list, "array"), (tuple, "array"), (dict, "object")]
    return KINDS[next((name for kind, name in names if isinstance(value, kind)), "null")]


class Document(msgspec.Struct):
    """A file as plain values. `lines` has the line of every key and list item, the root at (); `filled` the values that
    came from the environment.
    """

    file: str
    value: Any = None
    lines: dict[Where, int] = {}
    mistakes: list[Mistake] = []
    filled: set[str] = set()

    def fill(self) -> None:
        """Take an empty file for an empty mapping."""
        if self.value is None:
            self.value = {}

    def line(self, where: Where) -> int:
        """Line of the key, or of the nearest key around it that the file has."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)

    def refuse(self, where: Where, message: str, line: int | None = None, code: str = "") -> None:
        """Note a mistake at a key: the first there, since another may only follow from it (an unset variable, say)."""
        found = self.mistake(where, message, line, code)
        if not where or all(mistake.where != found.where for mistake in self.mistakes):
            self.mistakes.append(found)

    def mistake(self, where: Where, message: str, line: int | None = None, code: str = "") -> Mistake:
        """A mistake at a key, which is noted nowhere."""
        return Mistake(self.file, line or self.line(where), dotted(where), message, code=code)


def _without(tag: str, loader: type[yaml.SafeLoader]) -> Any:
    """The resolvers of a loader's plain scalars, without those of one tag."""
    known = loader.yaml_implicit_resolvers.items()
    return {first: [resolver for resolver in resolvers if resolver[0] != tag] for first, resolvers in known}


class _Loader(yaml.SafeLoader):
    """YAML 1.1 without its dates, times of day and octals: those stay the text that they look like."""

    yaml_implicit_resolvers = _without("tag:yaml.org,2002:timestamp", yaml.SafeLoader)


_TRAPS = re.compile(r"^[-+]?(0[0-7_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)$")


class _Plain(_Loader):
    """The same with the flags of YAML 1.2: `on`, `off`, `yes` and `no` are text."""

    yaml_implicit_resolvers = _without("tag:yaml.org,2002:bool", _Loader)


_Plain.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), "tTfF")

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(rf"(\$?)\$\{{({_NAME})(?::-([^}}]*))?\}}|(\$?)\$\{{")
# Inside `{...}` YAML would read the braces of `${VAR}` as its own, so they are hidden in a private range from it.
_IN_TEXT = re.compile(rf"\$\{{{_NAME}(?::-[^}}\"'\\\n]*)?\}}")
_HIDDEN = 0xEE00
_HIDE = {code: _HIDDEN + code for code in range(0x20, 0x7F) if not chr(code).isalnum()}
_SHOW = {hidden: code for code, hidden in _HIDE.items()}


def read(text: str, file: str, env: Mapping[str, str] | None) -> Document:
    """The document in `text`; `file` is the name to show in mistakes.

    `${VAR}` is filled in from `env`. None: a document that others write as well, as YAML 1.2 has it: `${` is nothing
    special, and only `true` and `false` are flags.
    """
    document = Document(file)
    if env is not None and not any(chr(code) in text for code in _SHOW):
        text = _IN_TEXT.sub(lambda match: match[0].translate(_HIDE), text)
    document.lines[()] = 1
    try:
        loader = _Plain(text) if env is None else _Loader(text)
        root = loader.get_single_node()
        if root is not None:
            return msgspec.structs.replace(document, value=_Reader(document, loader, env).value(root, ()))
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        what = f"character U+{error.character:04X} is not allowed"
        document.mistakes.append(Mistake(file, line, "", f"not YAML: {what}", column))
    except yaml.YAMLError as error:
        document.mistakes.append(_syntax(file, error))
    except RecursionError:
        document.mistakes.append(Mistake(file, 1, "", "not YAML: nested too deeply"))
    return document


_HINTS = (
    ("while scanning an alias", ": a text that begins with '*' is put in quotes"),
    ("while scanning an anchor", ": a text that begins with '&' is put in quotes"),
    ("found undefined alias", ": a text that begins with '*' is put in quotes"),
    (r"'\t' that cannot start any token", ": indent with spaces"),
    ("that cannot start any token", ": a text that begins with it is put in quotes"),
    (
        "mapping values are not allowed here",
        ": a text with ': ' in it is put in quotes, and keys of one mapping begin in one column",
    ),
)


def _syntax(file: str, error: yaml.YAMLError) -> Mistake:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    parts = [getattr(error, "problem", None), getattr(error, "context", None)]
    message = " ".join(part.translate(_SHOW) for part in parts if part) or str(error).splitlines()[0]
    message += next((hint for words, hint in _HINTS if words in message), "")
    if mark is None:
        return Mistake(file, 1, "", f"not YAML: {message}")
    return Mistake(file, mark.line + 1, "", f"not YAML: {message}", mark.column + 1)


class _Reader:
    """Walks the node tree once."""

    def __init__(self, document: Document, loader: _Loader, env: Mapping[str, str] | None) -> None:
        self.document = document
        self.loader = loader
        self.env = env
        self.open: set[int] = set()
        self.count = 0

    def value(self, node: yaml.Node, where: Where) -> Any:
        self.count += 1
        if self.count > MOST:  # aliases of aliases: a few lines may stand for more than fits into memory
            if self.count == MOST + 1:
                self.document.refuse((), f"more than {MOST} values, aliases counted as often as they are used")
            return None
        line = node.start_mark.line + 1
        self.document.lines.setdefault(where, line)
        if id(node) in self.open:
            self.document.refuse(where, "an alias to something that contains it")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, where)
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*where, index)) for index, item in enumerate(node.value)]
            if isinstance(node, yaml.ScalarNode):
                return self.scalar(node, where, line)
            return None
        finally:
            self.open.discard(id(node))

    def mapping(self, node: yaml.MappingNode, where: Where) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                sources = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                for source in sources:
                    value = self.value(source, where)
                    if isinstance(value, dict):
                        merged = {**value, **merged}
                    else:
                        self.document.refuse(where, "'<<' takes a mapping", line)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self.document.refuse(where, "a key is text, not a list or a mapping", line)
                continue
            key = key_node.value.translate(_SHOW)
            if key_node.tag != "tag:yaml.org,2002:str":
                self.document.refuse((*where, key), f"a key is text: put it in quotes, '{key}'", line)
                continue
            if key in result:
                first = self.document.line((*where, key))
                self.document.refuse((*where, key), f"given twice, first on line {first}", line)
                continue
            self.document.lines[(*where, key)] = line
            result[key] = self.value(value_node, (*where, key))
        return {**merged, **result}

    def scalar(self, node: yaml.ScalarNode, where: Where, line: int) -> Any:
        text = node.value.translate(_SHOW)
        if node.tag == "tag:yaml.org,2002:str" or _TRAPS.match(text):
            if self.env is None:
                return text
            return _REFERENCE.sub(lambda match: self.reference(match, where, line), text)
        try:
            value = self.loader.construct_object(node)
            if not isinstance(value, str | int | float | None):  # by a tag: bytes, dates
                raise ValueError(f"{node.tag.replace('tag:yaml.org,2002:', '!!')} is not for these files")
            return value
        except (yaml.YAMLError, ValueError) as error:
            problem = getattr(error, "problem", None) or str(error)
            self.document.refuse(where, f"not YAML: {problem}", line)
            return None

    def reference(self, match: re.Match[str], where: Where, line: int) -> str:
        """The value of one `${...}`."""
        if match[1] or match[4]:  # `$${` is a plain `${`
            return match[0][1:]
        name, default = match[2], match[3]
        if name is None or (default is not None and "${" in default):
            self.document.refuse(where, "write ${VAR} or ${VAR:-default}; a plain '${' is written '$${'", line)
            return ""
        value = (self.env or {}).get(name)
        if value:
            self.document.filled.add(value)
        if default is not None:
            return value or default
        if value is None:
            self.document.refuse(
                where, f"environment variable {name} is not set; ${{{name}:-...}} gives a default", line
            )
            return ""
        return value
