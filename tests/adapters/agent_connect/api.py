"""A client that holds every answer to the operation's own schema in `openapi.json` 0.2.3.

It needs nothing but a base URL, so the same tests can talk to any gateway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
from jsonschema import Draft202012Validator, FormatChecker

SPEC = Path(__file__).parents[2] / "specs" / "agent-connect" / "openapi.json"
EXTRA = {"/agents/agent/{agent_id}/descriptor": "/agents/{agent_id}/descriptor"}
"""Paths of the prose documentation, and those of the specification they stand for."""
UNDOCUMENTED = {413, 502, 503, 504}
"""Statuses that the specification has for no operation; their bodies are error strings all the same."""


@cache
def openapi() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SPEC.read_text())
    return document


@cache
def validator(pointer: str) -> Draft202012Validator:
    """For the schema at a JSON pointer of the specification."""
    root = openapi()
    schema = {"$ref": f"#{pointer}", "paths": root["paths"], "components": root["components"]}
    return Draft202012Validator(schema, format_checker=FormatChecker())


def hold(instance: Any, schema: str) -> Any:
    """Assert that it is an instance of a named schema; returns it."""
    validator(f"/components/schemas/{schema}").validate(instance)
    return instance


def template(method: str, path: str) -> str:
    """The specification's name for a path."""
    path = path.partition("?")[0]
    literal = path.count
    fitting = [
        known
        for known in [*openapi()["paths"], *EXTRA]
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", known), path)
        and method.lower() in openapi()["paths"][EXTRA.get(known, known)]
    ]
    assert fitting, f"the specification has no {method} {path}"
    best: str = min(fitting, key=lambda known: known.count("{"))
    assert literal("/") == best.count("/")
    return EXTRA.get(best, best)


class Event:
    """One streamed event, held to `RunOutputStream`."""

    def __init__(self, ident: str, data: dict[str, Any]) -> None:
        self.id = ident
        self.data = data

    @property
    def number(self) -> int:
        return int(self.id.partition(".")[0])

    def __repr__(self) -> str:
        return f"{self.id}: {json.dumps(self.data)}"


class Api:
    """The gateway at `base`."""

    def __init__(self, base: str, client: httpx2.Client) -> None:
        self.base = base
        self.client = client

    def __call__(self, method: str, path: str, body: Any = None, *, status: int = 200, **how: Any) -> Any:
        """One operation: its answer must have `status` and fit the specification. Returns the JSON, None for 204."""
        response = self.raw(method, path, body, **how)
        assert response.status_code == status, f"{response.status_code}: {response.text}"
        return self.checked(method, path, response)

    def raw(self, method: str, path: str, body: Any = None, **how: Any) -> httpx2.Response:
        if body is not None:
            how["json"] = body
        return self.client.request(method, self.base + path, **how)

    def checked(self, method: str, path: str, response: httpx2.Response) -> Any:
        """The JSON of an answer, held to the specification."""
        if response.status_code == 204:
            assert response.content == b""
            return None
        told = response.json()
        assert response.headers["content-type"] == "application/json"
        if response.status_code in UNDOCUMENTED:
            return hold(told, "ErrorResponse")
        known = template(method, path)
        documented = openapi()["paths"][known][method.lower()]["responses"]
        assert str(response.status_code) in documented, f"{method} {known} has no {response.status_code}: {told}"
        steps = ("paths", known, method.lower(), "responses", str(response.status_code))
        pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
        validator(f"{pointer}/content/application~1json/schema").validate(told)
        for name in ("created_at", "updated_at"):
            if isinstance(told, dict) and name in told:
                assert datetime.fromisoformat(told[name]).tzinfo is not None
        return told

    @contextmanager
    def streaming(self, method: str, path: str, body: Any = None, **how: Any) -> Iterator[Iterator[Event]]:
        """A stream, as an iterator of its events."""
        if body is not None:
            how["json"] = body
        with self.client.stream(method, self.base + path, **how) as response:
            if response.status_code != 200:
                response.read()
            assert response.status_code == 200, response.text
            assert response.headers["content-type"].startswith("text/event-stream")
            assert template(method, path)
            yield parse(response.iter_bytes())

    def stream(self, method: str, path: str, body: Any = None, **how: Any) -> list[Event]:
        """A stream to its end."""
        with self.streaming(method, path, body, **how) as events:
            return list(events)


def parse(chunks: Iterator[bytes]) -> Iterator[Event]:
    """Events of a stream. Each write must hold whole events, each with one line of data."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        while b"\n\n" in rest:
            block, _, rest = rest.partition(b"\n\n")
            lines = [line for line in block.decode().splitlines() if not line.startswith(":")]
            fields = dict(line.split(": ", 1) for line in lines)
            assert len(fields) == len(lines), f"a field was given twice: {lines}"
            data = json.loads(fields["data"])
            event = {"id": fields.get("id", ""), "event": fields["event"], "data": data}
            yield Event(hold(event, "RunOutputStream")["id"], data)
    assert not rest.strip() or rest.startswith(b":"), rest
