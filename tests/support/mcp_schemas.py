"""The Model Context Protocol's own schemas, one per revision, in `tests/specs/mcp`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[1] / "specs" / "mcp"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")


@cache
def _definitions(version: str) -> tuple[str, dict[str, Any]]:
    schema = json.loads((FOLDER / f"{version}.schema.json").read_text(encoding="utf-8"))
    key = "$defs" if "$defs" in schema else "definitions"
    return key, schema[key]


def has(version: str, name: str) -> bool:
    """Whether a revision has something by that name."""
    return name in _definitions(version)[1]


@cache
def validator(version: str, name: str) -> Draft202012Validator:
    key, definitions = _definitions(version)
    assert name in definitions, f"{version} has no {name}"
    return Draft202012Validator({key: definitions, "$ref": f"#/{key}/{name}"})


def valid(version: str, name: str, value: Any) -> Any:
    """The value, if it is what the revision's schema calls by that name."""
    errors = [f"{error.json_path}: {error.message[:200]}" for error in validator(version, name).iter_errors(value)]
    assert not errors, (value, errors)
    return value
