"""Writes what the chart says twice: its README's table and values.schema.json, both made of values.yaml.

A comment above a key of values.yaml is its description. A line `@schema ...` in it says what may stand there besides
what the default shows: a mapping is JSON Schema that is added; `NAME` is Kubernetes' object of that name, `[NAME]` a
list of them; `routes` is the schema of routes.yaml. Every mapping refuses keys that values.yaml does not have.
`python docs/make.py` writes these files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gateway import registry
from gateway.config.schema import schema

HELM = Path(__file__).resolve().parent
CHART = HELM / "interlingua"
KUBERNETES = HELM.parent / "tests" / "specs" / "kubernetes" / "1.37.schema.json"
BEGIN, END = "<!-- made: values -->\n", "<!-- end -->\n"
LONG = 60
OURS = r"\.(core|networking)\.v1\.|apimachinery"
NOTICE = (
    "Kubernetes 1.37 (Apache-2.0): the definitions that helm/interlingua/values.yaml needs, as kubernetes-validate "
    "1.37.0 has them in its strict form (no unknown field), without descriptions."
)


@dataclass
class Value:
    """A key of values.yaml. `extra`: its `@schema` line; None if there is none."""

    path: tuple[str, ...]
    default: Any
    text: str
    extra: Any = None
    below: list[Value] = field(default_factory=list)


def values() -> list[Value | str]:
    """The keys of values.yaml in their order, between the headings (`## ...`) above them."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    found: list[Value | str] = []
    for key, node in yaml.compose(text).value:
        heading, value = _value((), key, node, lines)
        found += [*([heading] if heading else []), value]
    return found


def _value(above: tuple[str, ...], key: yaml.Node, node: yaml.Node, lines: list[str]) -> tuple[str, Value]:
    """A key with those below it, and the heading above it, if any."""
    path = (*above, str(key.value))
    heading, text, extra = _comment(lines, key.start_mark.line, key.start_mark.column)
    default = yaml.safe_load(yaml.serialize(node))
    value = Value(path, default, text, extra)
    plain = extra is None or extra == "routes"
    if plain and isinstance(node, yaml.MappingNode) and default:
        value.below = [_value(path, one, other, lines)[1] for one, other in node.value]
    return heading, value


def _comment(lines: list[str], at: int, column: int) -> tuple[str, str, Any]:
    """The heading, the description, and the `@schema` line in the comment above a line."""
    found: list[str] = []
    margin = " " * column + "#"
    while at and (
        lines[at - 1].startswith(margin) or (not lines[at - 1] and at > 1 and lines[at - 2].startswith("## "))
    ):
        at -= 1
        found.insert(0, lines[at].removeprefix(margin))
    heading = "".join(line.removeprefix("# ") for line in found if line.startswith("# "))
    extra = [line.strip().removeprefix("@schema ") for line in found if line.strip().startswith("@schema ")]
    words = [line.strip() for line in found if line.startswith(" ") and not line.strip().startswith("@schema ")]
    return heading, " ".join(words), yaml.safe_load(extra[0]) if extra else None


# --- values.schema.json ----------------------------------------------------------------------------------------------


def values_schema() -> dict[str, Any]:
    """JSON Schema of the values: what is not in values.yaml is a mistake, and so is what routes.yaml may not say."""
    known = json.loads(KUBERNETES.read_text(encoding="utf-8"))["$defs"]
    routes = _routes()
    found: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "interlingua",
        "type": "object",
        "additionalProperties": False,
        "properties": {value.path[-1]: _schema(value) for value in values() if isinstance(value, Value)},
    }
    found["$defs"] = {**known, **routes.pop("$defs"), "routes": routes}
    return found


def _routes() -> dict[str, Any]:
    """The schema of routes.yaml, without words, and without what the chart says itself."""
    found: dict[str, Any] = _bare(schema(registry.scan()))
    found.pop("$schema")
    return dict(_plain(found, found["$defs"]))


def _plain(node: Any, known: dict[str, Any]) -> Any:
    """Turn a choice between protocols into conditions, so that a mistake is told of the protocol that is meant, not of
    all. Drop null, which Helm takes as "not given".
    """
    if isinstance(node, list):
        return [_plain(item, known) for item in node]
    if not isinstance(node, dict):
        return node
    if [*node] == ["anyOf"] and len(node["anyOf"]) == 2 and {"type": "null"} in node["anyOf"]:
        return _plain(next(option for option in node["anyOf"] if option != {"type": "null"}), known)
    if "oneOf" in node and all("$ref" in option for option in node["oneOf"]):
        names = {
            known[option["$ref"].rpartition("/")[2]]["properties"]["protocol"]["const"]: option
            for option in node["oneOf"]
        }
        conditions = [
            {"if": {"required": ["protocol"], "properties": {"protocol": {"const": name}}}, "then": option}
            for name, option in names.items()
        ]
        said = {"type": "object", "required": ["protocol"], "properties": {"protocol": {"enum": [*names]}}}
        return {**said, "allOf": conditions}
    return {key: _plain(item, known) for key, item in node.items()}


def _bare(node: Any, named: bool = False) -> Any:
    """Without descriptions, titles, examples and defaults; `named`: the keys of this mapping are names, not words."""
    if isinstance(node, list):
        return [_bare(item) for item in node]
    if not isinstance(node, dict):
        return node
    dropped = () if named else ("description", "title", "examples", "default", "discriminator", "format")
    return {key: _bare(item, key in ("properties", "$defs")) for key, item in node.items() if key not in dropped}


def _schema(value: Value) -> dict[str, Any]:
    extra = value.extra
    if extra == "routes":
        return {"$ref": "#/$defs/routes", "description": value.text}
    if isinstance(extra, str):
        return {"$ref": f"#/$defs/k8s.{extra}"}
    if isinstance(extra, list):
        return {"type": "array", "items": {"$ref": f"#/$defs/k8s.{extra[0]}"}}
    found: dict[str, Any] = {"type": _type(value.default)}
    if found["type"] == "object":
        found |= {"additionalProperties": False, "properties": {one.path[-1]: _schema(one) for one in value.below}}
    if found["type"] == "integer":
        found["minimum"] = 0
    if value.text:
        found["description"] = value.text
    found |= extra or {}
    if found["type"] == "array" and "items" not in found:
        raise SystemExit(f"helm/make.py: {'.'.join(value.path)}: say of what it is a list")
    if found["type"] == "object" and not value.below and not isinstance(extra, dict):
        raise SystemExit(f"helm/make.py: {'.'.join(value.path)}: say what may stand in it")
    if "enum" in found:
        del found["type"]
    return found


def _type(default: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(default)]


def kubernetes(definitions: dict[str, Any]) -> dict[str, Any]:
    """Of Kubernetes' definitions, those that `@schema` lines name and those that they need, by their short names."""
    known = {name.rpartition(".")[2]: _bare(definitions[name]) for name in definitions if re.search(OURS, name)}
    found: dict[str, Any] = {}
    ahead = sorted(set(_named(values())))
    while ahead:
        if (name := ahead.pop()) not in found:
            text = re.sub(r"#/\$defs/[\w.]+\.", "#/$defs/k8s.", json.dumps(known[name]))
            found[name] = json.loads(text)
            ahead += re.findall(r"#/\$defs/k8s\.(\w+)", text)
    return {"$comment": NOTICE, "$defs": {f"k8s.{name}": found[name] for name in sorted(found)}}


def _named(found: Iterable[Value | str]) -> Iterator[str]:
    """Kubernetes' objects that `@schema` lines name."""
    for value in found:
        if isinstance(value, Value):
            yield from value.extra if isinstance(value.extra, list) else ()
            if isinstance(value.extra, str) and value.extra != "routes":
                yield value.extra
            yield from _named(value.below)


# --- README.md -------------------------------------------------------------------------------------------------------


def table() -> str:
    """Every value with its default."""
    out: list[str] = []
    for value in values():
        if isinstance(value, str):
            out += ["", f"### {value}", "", "| value | default | meaning |", "|---|---|---|"]
        else:
            out += _rows(value)
    return "\n".join(out).strip() + "\n"


def _rows(value: Value) -> Iterator[str]:
    if value.text or not value.below:
        shown = "" if value.below else _shown(value.default)
        yield f"| `{'.'.join(value.path)}` | {shown} | {value.text.replace('|', chr(92) + '|')} |"
    for one in value.below:
        yield from _rows(one)


def _shown(default: Any) -> str:
    text = json.dumps(default, ensure_ascii=False)
    return f"`{text}`" if len(text) <= LONG else "see values.yaml"


def pages() -> dict[Path, str]:
    """Every file that is made, with what it should say."""
    readme = CHART / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        CHART / "values.schema.json": json.dumps(values_schema(), ensure_ascii=False) + "\n",
        readme: f"{before}{BEGIN}{table()}{END}{after}",
    }
