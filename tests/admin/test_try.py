"""The console's clients of the protocols, in a real browser, talking to agents that speak others."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.admin.test_console import EXAMPLES, HOSTILE, seen, served
from tests.support.processes import Gateway

PROTOCOLS = ["agent_client", "agent_communication", "agent_connect", "agent_context", "agent_protocol"]
ERRORS = dict(zip(PROTOCOLS, ("-32603:", "-32603:", "502:", "-32008:", "agent_failed:"), strict=True))
CANCELLED = dict(zip(PROTOCOLS, ("cancelled", "-32800:", "499:", "-32800:", "no cancel"), strict=True))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with served(tmp_path_factory.mktemp("try")) as running:
        yield running


def talk(gateway: Gateway, *turns: dict[str, Any]) -> list[dict[str, Any]]:
    """What a person sees of turns with agents (see the program)."""
    found: list[dict[str, Any]] = seen(gateway, "talk", json.dumps(turns))["seen"]
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_agents_are_talked_to_as_a_client_of_each_protocol(protocol: str, gateway: Gateway, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    photo.write_bytes(b"\x89PNG\r\n\x1a\n")
    choice = {"answer" if protocol == "agent_client" else "optionId": "Plant it"}
    form = {"name": "Ada", "colour": "green", "sure": True, "count": "2"}
    turns: list[dict[str, Any]] = [
        {"agent": "composer", "say": "invite Ada"},
        {"agent": "gardener", "say": "a rose", "answer": [choice]},
        {"agent": "flood", "say": "elicit", "answer": [form]},
        {"agent": "reporter", "say": "the tides", "files": [str(photo)]},
        {"agent": "flood", "say": "fail"},
        {"agent": "flood", "say": "slow", "cancel": "/steps" if protocol == "agent_protocol" else "2 3"},
    ]
    text, question, filled, file, error, cancel = talk(gateway, *({"protocol": protocol, **turn} for turn in turns))
    assert "Invite Ada" in text["said"] and text["end"] == "Done."
    assert "Plant it" in question["asked"][0] and "It grows." in question["said"] and "plan" in question["beside"]
    assert '"name":"Ada"' in filled["said"] and '"count":2' in filled["said"], filled
    assert "Read 1 attached file" in file["said"] and file["saved"][0]["name"] == "report.md"
    assert "Read 1 attached file" in file["saved"][0]["text"]
    assert ERRORS[protocol] in error["end"] and "boom" in "".join([error["end"], *error["error"]]), error
    assert CANCELLED[protocol] in cancel["end"], cancel
    newest = httpx2.get(f"{gateway.url}/admin/runs", params={"agent": "flood", "limit": 1}, trust_env=False).json()
    ended = newest["runs"][0]
    assert ended["protocol"] == protocol
    assert ended["status"] == ("running" if protocol == "agent_protocol" else "cancelled"), (
        "the REST of e2b has no cancel"
    )


def test_a_question_may_be_declined_or_the_turn_cancelled_while_it_waits(gateway: Gateway) -> None:
    mcp = [
        {"protocol": name, "agent": "gardener", "say": "a rose"} for name in ("agent_communication", "agent_context")
    ]
    for seen_of_it in talk(gateway, *({**turn, "answer": "decline"} for turn in mcp)):
        assert "Then I leave the bed" in seen_of_it["said"]
    cancelled = [name for name in PROTOCOLS if name != "agent_protocol"]
    turns = [{"protocol": name, "agent": "gardener", "say": "a rose", "cancel": ".question"} for name in cancelled]
    for protocol, seen_of_it in zip(cancelled, talk(gateway, *turns), strict=True):
        assert CANCELLED[protocol] in seen_of_it["end"], (protocol, seen_of_it)
    query = {"agent": "gardener", "status": "interrupted"}
    assert httpx2.get(f"{gateway.url}/admin/runs", params=query, trust_env=False).json()["count"] == 0


def test_a_turn_is_cancelled_that_has_not_begun_at_the_gateway(gateway: Gateway) -> None:
    turn = {"agent": "flood", "say": "slow", "cancel": "…"}
    connect, task = talk(
        gateway,
        {**turn, "protocol": "agent_connect", "held": "/runs"},
        {**turn, "protocol": "agent_protocol", "held": "/tasks"},
    )
    assert CANCELLED["agent_connect"] in connect["end"], connect
    assert "Cancelled before the task's next step" in task["end"], task


def test_turns_of_one_conversation_share_its_memory(gateway: Gateway) -> None:
    said: list[dict[str, Any]] = [
        {"agent": "reporter", "say": "tides"},
        {"agent": "reporter", "say": "moons", "again": True},
    ]
    for protocol in set(PROTOCOLS) - {"agent_communication"}:  # it has no threads
        talk(gateway, *({"protocol": protocol, **turn} for turn in said))
        answer = httpx2.get(f"{gateway.url}/admin/runs", params={"agent": "reporter", "limit": 2}, trust_env=False)
        first, second = (run["thread"] for run in answer.json()["runs"])
        assert first == second is not None, protocol


@pytest.mark.parametrize(
    ("args", "tokens"),
    [((), ("of-ana", "of-nobody")), (("--host", "0.0.0.0"), ("of-ana",))],
    ids=["private", "shared"],
)
def test_doors_that_ask_for_a_token_get_the_one_of_its_field(
    args: tuple[str, ...], tokens: tuple[str, ...], tmp_path: Path
) -> None:
    asking = "{authentication: {clients: [{name: ana, token: of-ana}]}}"
    context = "{access: {clients: [{name: ana, token: of-ana}]}}"
    inbound = ", ".join(f"{name}: {context if name == 'agent_context' else asking}" for name in PROTOCOLS)
    table = f"""
operators: {{clients: [{{name: olga, token: of-olga}}]}}
inbound: {{{inbound}}}
routes:
  - name: gardener
    target: {{protocol: agent_client, command: ["{sys.executable}", "{EXAMPLES / "gardener.py"}"]}}
"""
    turns: list[dict[str, Any]] = [
        {
            "agent": "gardener",
            "say": "a rose",
            "protocol": protocol,
            "token": token,
            "operator": "of-olga",
            "answer": [{}],
        }
        for protocol in PROTOCOLS
        for token in tokens
    ]
    with Gateway(table, tmp_path, args=args) as gateway:
        found = talk(gateway, *turns)
    for turn, seen_of_it in zip(turns, found, strict=True):
        if turn["token"] == "of-ana":
            assert "Then I leave" in seen_of_it["said"] or "It grows" in seen_of_it["said"], (turn, seen_of_it)
        else:
            assert "token is not valid" in seen_of_it["end"], (turn, seen_of_it)


def test_what_an_agent_says_in_a_conversation_is_text(gateway: Gateway) -> None:
    question = {"answer": [{"answer": "Plant it"}]}
    hostile, linked = talk(
        gateway,
        {"protocol": "agent_client", "agent": "gardener", "say": HOSTILE, **question},
        {"protocol": "agent_client", "agent": "flood", "say": "link"},
    )
    assert "<script>alert(2)</script>" in hostile["said"] and "\\u202etxt.exe" in hostile["said"]
    assert hostile["elements"] == 0
    assert "file://" in linked["beside"] and linked["elements"] == 0


def test_a_form_is_made_of_any_schema(gateway: Gateway, tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    photo.write_bytes(b"png")
    schema = {
        "$defs": {"place": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}},
        "type": "object",
        "required": ["name", "guests", "wine", "where"],
        "properties": {
            "name": {"type": "string", "title": "Your name"},
            "guests": {"type": "integer", "minimum": 1},
            "price": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "wine": {"type": "boolean"},
            "vegan": {"type": "boolean"},
            "size": {"enum": ["small", "large"], "default": "large"},
            "days": {"type": "array", "items": {"enum": ["mon", "tue", "wed"]}},
            "courses": {"type": "array", "items": {"type": "object", "properties": {"dish": {"type": "string"}}}},
            "where": {"$ref": "#/$defs/place"},
            "else": {"$ref": "#/$defs/place"},
            "photo": {"type": "string", "contentEncoding": "base64"},
            "free": {},
            "kind": {"const": "dinner"},
        },
    }
    filled = [
        ("guests", "3"), ("price", "2.5"), ("vegan", "no"), ("days", "tue"), ("dish", "soup"), ("city", "Rome"),
        ("photo", str(photo)), ("free", '{"a": [1]}'),
    ]  # fmt: skip
    words = json.dumps(schema), json.dumps([("name", "Ada"), *filled]), json.dumps(["courses"])
    found = seen(gateway, "form", *words)
    assert found["refused"] is None and found["bare"] == 0
    assert found["value"] == {
        "name": "Ada", "guests": 3, "price": 2.5, "wine": False, "vegan": False, "size": "large", "days": ["tue"],
        "courses": [{"dish": "soup"}], "where": {"city": "Rome"}, "photo": "cG5n", "free": {"a": [1]}, "kind": "dinner",
    }  # fmt: skip
    for wrong, entered in {
        "name": [("guests", "3"), ("city", "Rome")],
        "guests": [("name", "Ada"), ("guests", "0"), ("city", "Rome")],
        "city": [("name", "Ada"), ("guests", "3")],
    }.items():
        assert seen(gateway, "form", words[0], json.dumps(entered), "[]")["refused"] == wrong
