"""The published JSON Schema: current, complete, and of one mind with the models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from gateway.config import DocumentError, loads, schema
from tests.config.conftest import ADAPTERS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "schemas" / "routes.schema.json"
OURS = schema(ADAPTERS)


def described(value: Any, path: str = "") -> Iterator[tuple[str, bool]]:
    """Every key that the schema has, and whether it says what the key is for."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from described(item, f"{path}/{index}")
    elif isinstance(value, dict):
        for name, item in value.get("properties", {}).items():
            yield f"{path}/{name}", bool(item.get("description"))
        for key, item in value.items():
            yield from described(item, f"{path}/{key}")


def accepts(document: Any, of: dict[str, Any] = OURS) -> bool:
    return bool(Draft202012Validator(of).is_valid(document))


def test_it_is_a_schema_of_the_2020_draft() -> None:
    Draft202012Validator.check_schema(json.loads(FILE.read_text(encoding="utf-8")))
    assert OURS["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("of", [pytest.param(OURS, id="two adapters"), pytest.param(None, id="published")])
def test_every_key_has_a_description(of: dict[str, Any] | None) -> None:
    of = of or json.loads(FILE.read_text(encoding="utf-8"))
    assert [path for path, told in described(of) if not told] == []


def test_every_adapters_options_are_in_it_by_protocol() -> None:
    assert set(OURS["properties"]["inbound"]["properties"]) == {"both", "door"}
    target = OURS["$defs"]["target_both"]
    assert target["properties"]["protocol"]["const"] == "both"
    assert target["properties"]["steps"]["description"] == "How many."
    assert OURS["$defs"]["DoorOptions"]["properties"]["max_body"]["description"] == "greatest request body."


RIGHT = """
inbound: {door: {keep_alive: 3}, both: }
routes:
  - name: a
    match: {protocol: door, metadata: {team: x}}
    target: {protocol: both, url: "http://x", steps: 3, auth: {bearer: t}}
    timeout: 1m30s
    text: {input: /message}
    labels: {tools: [a]}
    delegation: {approve: true, quality: 7.5, cost: 0.01, speed: 40, security: 10}
    model: {cost: 0.1, intelligence: 1}
    lossy: allow
    backpressure: true
  - {name: b, match: {protocol: [door, both]}, target: {protocol: phone}, timeout: 4, version: "1"}
  - {name: c, target: {protocol: phone}, delegation: , model: }
store: {url: "sqlite://", retention: {age: null, size: 1GB}, artifact_limit: 5}
webhooks: {allow: [10.0.0.0/8]}
public_url: https://x
limits: {body: 2MB, shutdown: 1s}
telemetry: {otlp: "http://x:4318", headers: {a: b}}
"""

WRONG = [
    ("routes: 3", "a number of routes"),
    ("route: []", "an unknown section"),
    ("inbound: {dor: {}}", "an unknown protocol"),
    ("inbound: {phone: {}}", "a protocol that serves nobody"),
    ("inbound: {door: {keepalive: 1}}", "an unknown option"),
    ("inbound: {door: {keep_alive: 0}}", "an option out of range"),
    ("routes: [{name: a}]", "no target"),
    ("routes: [{target: {protocol: phone}}]", "no name"),
    ("routes: [{name: a b, target: {protocol: phone}}]", "a name with a space"),
    ("routes: [{name: a, target: {protocol: phne}}]", "an unknown target protocol"),
    ("routes: [{name: a, target: {protocol: door}}]", "a target that calls nobody"),
    ("routes: [{name: a, target: {protocol: both}}]", "a target without its url"),
    ("routes: [{name: a, target: {protocol: both, url: 'http://x', steps: 0}}]", "steps out of range"),
    ("routes: [{name: a, target: {protocol: phone}, timeout: soon}]", "no duration"),
    ("routes: [{name: a, target: {protocol: phone}, lossy: maybe}]", "no choice"),
    ("routes: [{name: a, target: {protocol: phone}, text: {input: message}}]", "no pointer"),
    ("routes: [{name: a, target: {protocol: phone}, delegation: {quality: 11}}]", "a rating above ten"),
    ("routes: [{name: a, target: {protocol: phone}, delegation: {cost: true}}]", "a flag for a number"),
    ("routes: [{name: a, target: {protocol: phone}, model: {speed: 2}}]", "a share above one"),
    ("routes: [{name: a, target: {protocol: phone}, model: {name: x}}]", "an unknown trait"),
    ("store: {artifact_limit: big}", "no size"),
    ("store: {url: 'redis://x'}", "a store that there is not"),
    ('routes: [{name: a, target: {protocol: phone, auth: {bearer: "a\\nb"}}}]', "a line break in a header"),
]


EMPTY = "inbound: \nroutes: \nstore: \nwebhooks: \nlimits: \ntelemetry: {monitors: }\naudit: "


@pytest.mark.parametrize("text", [RIGHT, EMPTY, "routes: []"], ids=["every section", "nothing in any", "no routes"])
def test_what_the_schema_takes_the_models_take(text: str) -> None:
    assert accepts(yaml.safe_load(text))
    loads(text, ADAPTERS, {})


@pytest.mark.parametrize(("text", "why"), WRONG, ids=[why for _, why in WRONG])
def test_what_the_models_refuse_the_schema_refuses(text: str, why: str) -> None:
    with pytest.raises(DocumentError):
        loads(text, ADAPTERS, {})
    assert not accepts(yaml.safe_load(text))


def test_a_variable_may_stand_for_any_value_but_the_protocol() -> None:
    route = {
        "name": "${N}",
        "target": {"protocol": "both", "url": "${U}", "steps": "${S:-3}"},
        "timeout": "${T}",
        "lossy": "${L}",
        "backpressure": "${B}",
    }
    assert accepts({"routes": [route], "limits": {"body": "${SIZE}"}})


def test_the_repositorys_own_route_table_fits_and_names_the_schema() -> None:
    text = (ROOT / "routes.yaml").read_text(encoding="utf-8")
    assert accepts(yaml.safe_load(text), json.loads(FILE.read_text(encoding="utf-8")))
    named = text.splitlines()[0].partition("$schema=")[2]
    assert (ROOT / named).samefile(FILE)
    loads(text, env={})
