"""The published schema of the protocol, for tests: every message of ours is held against it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FILE = Path(__file__).parents[3] / "docs" / "schemas" / "agent_context.schema.json"


@cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


@cache
def validator(name: str) -> Draft202012Validator:
    """Of a definition; "" is any message at all."""
    if not name:
        return Draft202012Validator(document())
    assert name in document()["$defs"], f"the schema has no {name}"
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": document()["$defs"]})


def valid(name: str, value: Any) -> Any:
    """The value, if it is what the schema calls by that name."""
    errors = [f"{error.json_path}: {error.message[:200]}" for error in validator(name).iter_errors(value)]
    assert not errors, (value, errors)
    return value
