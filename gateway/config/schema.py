"""The JSON Schema (draft 2020-12) of routes.yaml, for editors: `# yaml-language-server: $schema=...`."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway import registry
from gateway.config.check import members
from gateway.config.models import Config
from gateway.registry import Registry

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": r"\$\{", "description": "Filled in from the environment."}
_ANNOTATIONS = ("title", "description", "default", "examples", "deprecated")


def schema(adapters: Registry) -> dict[str, Any]:
    """The schema of a routes.yaml read with these adapters. Every key has a description."""
    serving, calling = registry.serving(adapters), registry.calling(adapters)
    models: list[type[BaseModel]] = [Config]
    models += [adapter.serve_options for adapter in serving.values()]
    models += [adapter.target_options for adapter in calling.values()]
    for model in models:  # grows while it is walked: models inside models
        inner = [member for field in model.model_fields.values() for member in members(field.annotation)]
        models += [member for member in inner if member not in models]
    models = list(dict.fromkeys(models))
    refs, document = models_json_schema([(model, "validation") for model in models], ref_template="#/$defs/{model}")
    definitions: dict[str, Any] = document["$defs"]

    def definition(model: type[BaseModel]) -> dict[str, Any]:
        found: dict[str, Any] = definitions[refs[(model, "validation")]["$ref"].rpartition("/")[2]]
        return found

    for model in models:
        for name, text in _documented(model).items():
            definition(model)["properties"].get(name, {}).setdefault("description", text)
    root = definition(Config)
    inbound = root["properties"]["inbound"]
    inbound["additionalProperties"] = False
    inbound["properties"] = {
        name: {
            "anyOf": [refs[(adapter.serve_options, "validation")], {"type": "null"}],
            "description": f"Serve {adapter.title} clients.",
        }
        for name, adapter in serving.items()
    }
    targets = {}
    for name, adapter in calling.items():
        own = definition(adapter.target_options)
        protocol = {"const": name, "description": f"{adapter.title}."}
        targets[f"target_{name}"] = {
            **own,
            "title": adapter.title,
            "properties": {**own["properties"], "protocol": protocol},
            "required": sorted({*own.get("required", ()), "protocol"}),
        }
    definitions |= targets
    route = definitions["Route"]
    target, several = route["properties"]["target"], route["properties"]["targets"]
    several["items"], several["minItems"] = {}, 1
    for place in (target, several["items"]) if targets else ():
        place.pop("$ref", None)
        place["oneOf"] = [{"$ref": f"#/$defs/{name}"} for name in targets]
    route["required"] = [key for key in route["required"] if key != "target"]
    route["oneOf"] = [{"required": ["target"]}, {"required": ["targets"]}]
    _nullable_sections(root, definitions)
    top: dict[str, Any] = {
        "$schema": DIALECT,
        "title": "routes.yaml",
        "description": "The route table of an Interlingua gateway: its agents, and who may reach them how.",
        **{key: value for key, value in root.items() if key not in {"title", "description"}},
    }
    definitions = {name: _with_variables(value) for name, value in sorted(_reachable(top, definitions).items())}
    definitions["Variable"] = _VARIABLE
    return {**_with_variables(top), "$defs": definitions}


def _documented(model: type[BaseModel]) -> dict[str, str]:
    """Each field's documentation in a model's source: the string below it, or its line `name: ...` in the docstring."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if not issubclass(owner, BaseModel) or owner is BaseModel:
            continue
        for line in re.finditer(r"^(\w+): (\S.*(?:\n +\S.*)*)", inspect.cleandoc(owner.__doc__ or ""), re.MULTILINE):
            found[line[1]] = line[2]
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for field, below in itertools.pairwise(statements):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[field.target.id] = str(below.value.value)
    fields = model.model_fields
    return {fields[name].alias or name: " ".join(text.split()) for name, text in found.items() if name in fields}


def _nullable_sections(root: dict[str, Any], definitions: dict[str, Any]) -> None:
    """A section with nothing below its key is allowed, and so are no routes."""
    for owner in (root, *(definitions[name] for name in ("Route", "StoreOptions", "Limits", "Telemetry"))):
        for key, value in owner["properties"].items():
            if "$ref" in value and key != "target":
                reference = value.pop("$ref")
                value.setdefault("description", definitions[reference.rpartition("/")[2]]["description"])
                value["anyOf"] = [{"$ref": reference}, {"type": "null"}]
    for name in ("inbound", "routes"):
        value = root["properties"][name]
        value["type"] = [value["type"], "null"]
    protocol = definitions["Match"]["properties"]["protocol"]
    protocol["anyOf"] = [{"type": "string"}, {"type": protocol.pop("type"), "items": protocol.pop("items")}]


def _reachable(top: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions that something refers to."""
    found: dict[str, Any] = {}
    waiting = [top]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).removeprefix("#/$defs/")
            if name in definitions and name not in found:
                found[name] = definitions[name]
                waiting.append(definitions[name])
        waiting.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    return found


def _with_variables(value: Any) -> Any:
    """Allow `${VAR}` wherever a value is more than plain text."""
    if isinstance(value, list):
        return [_with_variables(item) for item in value]
    if not isinstance(value, dict):
        return value
    strict = value.get("type") in ("integer", "number", "boolean") or "enum" in value
    if strict or (value.get("type") == "string" and ("pattern" in value or "minLength" in value)):
        notes = {key: item for key, item in value.items() if key in _ANNOTATIONS}
        rule = {key: item for key, item in value.items() if key not in _ANNOTATIONS}
        return {**notes, "anyOf": [rule, {"$ref": "#/$defs/Variable"}]}
    return {key: item if key in {"default", "examples"} else _with_variables(item) for key, item in value.items()}
