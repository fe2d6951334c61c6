"""Secrets are taken out of what is recorded, wherever they stand in it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gateway.config import loads
from gateway.recording.redaction import MOST_SEEN, REMOVED, SecretRemover, secrets_of
from gateway.transport.tap import WHOLE_BYTES

SECRET = "hunter2-is-no-good"


def redactor(*known: str) -> SecretRemover:
    return SecretRemover(known)


@pytest.mark.parametrize(
    "name",
    [
        "authorization", "Cookie", "set-cookie", "x-api-key", "x-anything-at-all", "proxy-authorization",
        "x-amz-security", "ocp-apim-subscription-key",
    ],
)  # fmt: skip
def test_of_headers_that_are_not_known_to_be_harmless_only_the_name_is_kept(name: str) -> None:
    assert redactor().headers([(name, SECRET)]) == [(name, REMOVED)]


def test_harmless_headers_are_kept() -> None:
    headers = [("content-type", "application/json"), ("last-event-id", "7")]
    assert redactor().headers(headers) == headers


@pytest.mark.parametrize(
    "document",
    [
        {"password": SECRET},
        {"token": SECRET},
        {"accessToken": SECRET},
        {"client_secret": SECRET},
        {"apiKey": SECRET},
        {"api-key": SECRET},
        {"OPENAI_API_KEY": SECRET},
        {"Authorization": f"Custom {SECRET}"},
        {"credentials": {"user": "ann", "pass": SECRET}},
        {"secrets": [SECRET]},
        {"pwd": 12345678},
        {"deep": [{"er": {"private_key": SECRET}}]},
        {"mcpServers": [{"command": "x", "env": [{"name": "PLAIN_NAME", "value": SECRET}]}]},
        {"mcpServers": [{"url": "x", "headers": [{"name": "X-Mine", "value": SECRET}]}]},
        {"env": {"PLAIN_NAME": SECRET}},
        {"webhook": f"https://hooks.example/{SECRET}"},
        {"text": f"Authorization: Bearer {SECRET}"},
        {"text": f"the header is Basic {SECRET}"},
        {"url": f"https://ann:{SECRET}@agents.example/path"},
        {"url": f"https://agents.example/path?a=b&api_key={SECRET}"},
        {"nested": json.dumps({"password": SECRET, "other": 1})},
        {"text": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl-hunter2-is-no-good"},
        {"text": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"},
        {"text": f"sk-{SECRET}"},
    ],
    ids=lambda document: json.dumps(document)[:40],
)
def test_what_is_called_or_looks_like_a_secret_is_left_out_of_bodies(document: dict[str, Any]) -> None:
    shown = redactor().body(json.dumps(document).encode(), "application/json")
    assert shown is not None and REMOVED in shown and SECRET not in shown and "12345678" not in shown
    again = redactor().body(json.dumps(document).encode(), "text/plain")
    if "mcpServers" not in document and "env" not in document and "credentials" not in document:
        assert again is not None and (SECRET not in again or "secrets" in document)


@pytest.mark.parametrize(
    "document",
    [
        {"input_tokens": 7, "maxTokens": 100, "_meta": {"progressToken": "p1"}},
        {"tokenizer": "fast", "secretary": "Ada", "author": "Grace", "passage": "north", "authority": "x"},
        {"message": "a token of thanks, and the password is not said", "hasPassword": True, "token": None},
        {"sessionId": "0f8fad5b-d9cb-469f-a165-70867728950e", "key": "value", "name": "env"},
    ],
)
def test_harmless_members_stay(document: dict[str, Any]) -> None:
    assert json.loads(redactor().body(json.dumps(document).encode(), "application/json") or "") == document


def test_known_values_are_left_out_of_keys_values_titles_and_queries_however_they_are_written() -> None:
    known = redactor("s3cr3t/with=signs", "ab")
    text = json.dumps({"s3cr3t/with=signs": "x", "y": "before s3cr3t/with=signs after", "z": "s3cr3t%2Fwith%3Dsigns"})
    shown = known.body(text.encode(), "application/json")
    assert shown is not None and "s3cr3t" not in shown and "before" in shown and "after" in shown
    assert known.body(rb'{"a": "s3cr3t\u002fwith=signs about"}', "application/json") == '{"a":"[removed] about"}'
    assert "s3cr3t" not in known.title("POST /x/s3cr3t%2Fwith%3Dsigns", bare=False)
    assert known.text("cab") == "cab", "what is too short is a word"


def test_queries_of_agents_urls_keep_no_value_and_those_of_clients_no_secret() -> None:
    known = redactor()
    assert known.title("GET http://a.example/x?page=1&key=v", bare=True) == (
        f"GET http://a.example/x?page={REMOVED}&key={REMOVED}"
    )
    shown = known.title(f"GET /runs?limit=5&access_token=abc&x={'y' * 65}&flag", bare=False)
    assert shown == f"GET /runs?limit=5&access_token={REMOVED}&x={REMOVED}&flag"


def test_credentials_that_were_shown_are_left_out_of_what_is_said_later() -> None:
    known = redactor()
    known.see([("authorization", f"Bearer {SECRET}"), ("cookie", "a=first-cookie; b=second-cookie"), ("accept", "x")])
    for text in (SECRET, "first-cookie", "second-cookie"):
        assert known.text(f"you said {text}!") == f"you said {REMOVED}!"
    for number in range(2 * MOST_SEEN):
        known.see([("x-api-key", f"another-{number}")])
    assert known.text(SECRET) == SECRET, "as many are remembered as there is room for"


@pytest.mark.parametrize("media", ["application/octet-stream", "image/png", "multipart/form-data", ""])
def test_bodies_of_other_types_are_not_shown(media: str) -> None:
    assert redactor().body(SECRET.encode(), media) is None


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 100_000, b'{"password": "hunter2-is-no-good', b""])
def test_what_is_no_json_is_looked_at_as_text(body: bytes) -> None:
    shown = redactor().body(body, "application/json")
    assert shown is not None and SECRET not in shown


def test_forms_are_text() -> None:
    body = f"grant_type=client_credentials&client_secret={SECRET}&scope=a"
    shown = redactor().body(body.encode(), "application/x-www-form-urlencoded")
    assert shown == f"grant_type=client_credentials&client_secret={REMOVED}&scope=a"


def test_a_configurations_secrets_are_those_of_its_environment_and_what_it_calls_so() -> None:
    text = """
inbound: {agent_connect: {authentication: {clients: [{name: ann, token: token-of-ann}]}}}
operators: {clients: [{name: olga, token: token-of-olga}]}
store: {url: "postgresql://user:of-the-store@127.0.0.1/db"}
telemetry: {headers: {x-key: of-telemetry}}
routes:
  - name: a
    target: {protocol: agent_connect, url: "https://agents.example", auth: {bearer: of-the-bearer}}
  - name: b
    target: {protocol: agent_client, url: "wss://ann:of-the-url@agents.example/x?k=of-the-query"}
  - name: c
    target: {protocol: agent_client, command: [run, "--key=${KEY}"], env: {MY_PASSWORD: of-the-env, PLAIN: "${KEY}"}}
"""
    config = loads(text, env={"KEY": "of-the-environment"})
    found = {*config.filled, *secrets_of(config)}
    assert found >= {
        "token-of-ann", "token-of-olga", "of-the-store", "of-telemetry", "of-the-bearer", "of-the-url", "of-the-query",
        "of-the-environment", "of-the-env",
    }  # fmt: skip
    assert not found & {"agents.example", "a", "agent_connect"}


def test_what_is_too_deep_to_be_looked_at_is_left_out() -> None:
    deep: Any = SECRET
    for _ in range(5000):
        deep = [deep]
    assert redactor().document(deep) == REMOVED
    shown = redactor().body(b"[" * 900 + b'"Bearer hunter2-is-no-good"' + b"]" * 900, "application/json")
    assert shown is not None and SECRET not in shown


def test_a_hostile_text_takes_no_longer_than_another() -> None:
    """Each expression is tried from few places, or looks ahead only so far."""
    many = redactor(*(f"known-{number}" for number in range(50)))
    began = time.perf_counter()
    for unit in ("a", "eyJ", "a://", '"', '\\"', "?token", '"token":"', "-----BEGIN PRIVATE KEY-----", "bearer ", "&a"):
        many.text(unit * (WHOLE_BYTES // len(unit)))
    assert time.perf_counter() - began < 10
