"""What must not stand in a log is not in it, and the log says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.core.errors import Invalid
from gateway.governance.audit import AppliedPolicy, AuditSubject, verify
from gateway.governance.audit import redact as redact_module
from gateway.governance.audit.appender import Appender
from gateway.governance.audit.canonical import LARGEST, canonical, digest
from gateway.governance.audit.files import LogFiles, log_path
from gateway.governance.audit.redact import DEEPEST, Redactor, redacted, snapshot
from tests.governance.audit.support import event, files_of, piece


def redact(value: Any) -> Any:
    return Redactor()(snapshot(event(input={"v": value}))).event["input"]["v"]


def test_values_of_secret_keys_are_left_out_wherever_they_are() -> None:
    given = {"user": "ada", "Password": "x", "deep": [{"API_KEY": {"a": 1}}], "tokens": 5}
    secret = redacted("secret")
    assert redact(given) == {"user": "ada", "Password": secret, "deep": [{"API_KEY": secret}], "tokens": 5}


@pytest.mark.parametrize(
    "key",
    [
        "access_token", "api_key", "api-key", "apikey", "authorization", "client_secret", "cookie", "credentials",
        "passphrase", "passwd", "password", "private_key", "proxy-authorization", "refresh_token", "secret",
        "set-cookie", "token", "x-api-key",
    ],
)  # fmt: skip
def test_what_usually_is_a_secret_is_left_out(key: str) -> None:
    for written in (key, key.upper(), key.title()):
        assert redact({written: "x"}) == {written: redacted("secret")}
    assert redact({f"{key}s-of": "kept"}) == {f"{key}s-of": "kept"}


def test_a_value_over_the_limit_leaves_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact_module, "LONGEST_VALUE", 50)
    long = {"v": "x" * 100}
    made = Redactor()(snapshot(event(input=long, output={"small": 1}, metadata={"acme": long}))).event
    assert made["input"] == redacted("108 bytes, over the limit of 50")
    assert made["output"] == {"small": 1}
    assert made["metadata"]["acme"] == made["input"]
    expected = digest(canonical(long))
    assert made["metadata"]["interlingua"] == {"sha256": {"input": expected, "metadata.acme": expected}}


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**70])
def test_an_integer_that_canonical_json_has_not_is_told_in_words(number: int) -> None:
    assert redact([number, 2**53 - 1]) == [redacted(f"an integer that canonical JSON has not: {number}"), 2**53 - 1]


def test_the_largest_integers_and_all_other_values_are_kept() -> None:
    kept = [LARGEST, -LARGEST, 0, 1.5, 1.0, -0.0, 1e21, True, None, "x", {"a": [1.25]}]
    assert redact(kept) == kept
    assert redact({"token": 1}) == {"token": {"$redacted": True, "reason": "secret"}}


def test_a_log_with_floats_is_what_its_hashes_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, value in enumerate((1.5, 1.0, 1e21, [0.1, 1e-7], {"a": 2.0, "b": 3})):
        for limit in (64 * 1024, 1):
            folder = tmp_path / f"{number}-{limit}"
            monkeypatch.setattr(redact_module, "LONGEST_VALUE", limit)
            log = Appender(LogFiles(log_path(folder, 1)), rotate_bytes=1 << 20, signer=None)
            log.open(None, 0)
            log.write([piece(input={"v": value}), piece(input={"v": 1})])
            log.close()
            assert not verify(files_of(folder)).mistakes
            if limit > 1:
                first = msgspec.json.decode((folder / "audit-log.jsonl").read_bytes().splitlines()[0])
                assert first["input"] == {"v": value}


def test_what_is_as_long_as_the_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"v": "x" * 100}
    for limit, kept in ((107, False), (108, True), (109, True)):
        monkeypatch.setattr(redact_module, "LONGEST_VALUE", limit)
        made = Redactor()(snapshot(event(input=value))).event
        assert (made["input"] == value) is kept


def test_what_is_nested_as_deeply_as_may_be_is_kept() -> None:
    for wrap in (lambda each: [each], lambda each: {"k": each}):
        value: Any = 1
        for _ in range(DEEPEST - 1):  # besides the object that it stands in
            value = wrap(value)
        assert redact(value) == value
        assert "nested more than" in str(redact(wrap(value)))


def test_what_is_nested_too_deeply_is_cut() -> None:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    cut = redact(value)
    for _ in range(DEEPEST - 1):
        (cut,) = cut
    assert cut == redacted(f"nested more than {DEEPEST} deep")


def test_what_json_cannot_say_is_said_to_be_that() -> None:
    assert redact({"a": "\ud800", "b": object(), "c": (1, "é")}) == {
        "a": redacted("no Unicode text"),
        "b": redacted("no JSON: object"),
        "c": [1, "é"],
    }


@pytest.mark.parametrize(
    "more",
    [
        {"subject": AuditSubject("k" * 33)},
        {"subject": AuditSubject("tool", "r" * 257)},
        {"policy": AppliedPolicy("No Slug")},
        {"policy": AppliedPolicy("mail", "approve")},  # type: ignore[arg-type]
        {"input": [1]},
        {"signatures": (1,)},
    ],
)
def test_an_event_that_no_verifier_would_accept_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        Redactor()(snapshot(msgspec.structs.replace(event(), **more)))
