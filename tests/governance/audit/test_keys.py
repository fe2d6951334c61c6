"""Signatures: what was not signed by a key of the keyring is found."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from gateway.core.errors import Invalid
from gateway.governance.audit import EntrySigner, Keyring, verify
from gateway.governance.audit.canonical import canonical, digest
from gateway.governance.audit.keys import keyring, thumbprint
from tests.governance.audit.support import appender, files_of, piece, write_log

# RFC 8037, appendix A
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
KEY = Ed25519PrivateKey.from_private_bytes(SEED)
RAW = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
THUMBPRINT = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def ring(folder: Path, *signers: EntrySigner, revoked: Any = None, **more: Any) -> Keyring:
    data = json.loads(keyring(*signers))
    for key in data["keys"]:
        key.update(more)
    path = folder / "governance-keys.json"
    path.write_text(json.dumps(data))
    if revoked is not None:
        (folder / "governance-revoked.json").write_text(json.dumps(revoked))
    return Keyring.load(path)


def test_the_thumbprint_is_that_of_the_rfc() -> None:
    assert thumbprint(KEY.public_key()) == THUMBPRINT


def test_a_signed_log_is_right_with_its_keyring_and_with_no_other(tmp_path: Path) -> None:
    signer = EntrySigner(KEY)
    write_log(tmp_path / "log", 3, signer=signer)
    files = files_of(tmp_path / "log")
    report = verify(files, keyring=ring(tmp_path, signer))
    assert (report.mistakes, report.signed, report.unsigned) == ([], 3, 0)
    stranger = EntrySigner(Ed25519PrivateKey.generate())
    found = verify(files, keyring=ring(tmp_path, stranger)).mistakes
    assert [each.code for each in found] == ["signature.unknown_key"] * 3
    impostor = EntrySigner(Ed25519PrivateKey.generate())
    impostor.key_id = signer.key_id
    found = verify(files, keyring=ring(tmp_path, impostor)).mistakes
    assert [each.code for each in found] == ["signature.invalid"] * 3


def test_a_whole_log_written_anew_by_somebody_without_the_key_is_found(tmp_path: Path) -> None:
    signer = EntrySigner(KEY)
    write_log(tmp_path / "log", 2, signer=signer)
    (path,) = files_of(tmp_path / "log")
    lines, before = [], "GENESIS"
    for line in path.read_bytes().splitlines():
        entry = {**msgspec.json.decode(line), "action": "tool.nothing", "prevHash": before}
        del entry["hash"]
        before = digest(canonical(entry))
        lines.append(canonical({**entry, "hash": before}) + b"\n")
    path.write_bytes(b"".join(lines))
    assert verify([path]).mistakes == []
    assert [each.code for each in verify([path], keyring=ring(tmp_path, signer)).mistakes] == ["signature.invalid"] * 2


def test_entries_before_the_first_signed_one_are_vouched_for_and_later_ones_are_not(tmp_path: Path) -> None:
    signer = EntrySigner(KEY)
    folder = tmp_path / "log"
    write_log(folder, 2)
    files = files_of(folder)
    only = verify(files, keyring=ring(tmp_path, signer)).mistakes
    assert [each.what for each in only] == ["no entry is signed"]
    for each in (signer, None):
        log = appender(folder, signer=each)
        log.open(None, 0)
        log.write([piece()])
        log.close()
    report = verify(files, keyring=ring(tmp_path, signer))
    assert [(each.line, each.code) for each in report.mistakes] == [(4, "signature.invalid")]
    assert (report.signed, report.unsigned) == (1, 3)


@pytest.mark.parametrize(
    ("revoked", "more", "right"),
    [
        ([THUMBPRINT], {}, False),
        ([{"id": THUMBPRINT, "reason": "lost"}], {}, False),
        (["other"], {}, True),
        (None, {"expiresAt": (datetime.now(UTC) + timedelta(days=1)).isoformat()}, True),
        (None, {"expiresAt": "2020-01-01T00:00:00Z"}, False),
        (None, {"validFrom": "2020-01-01T00:00:00Z"}, True),
        (None, {"validFrom": (datetime.now(UTC) + timedelta(days=1)).isoformat()}, False),
        (None, {"publicKey": RAW}, True),
        (None, {"publicKey": RAW.replace("_", "/") + "="}, True),
    ],
)
def test_a_key_counts_while_it_is_valid_and_never_when_revoked(
    tmp_path: Path, revoked: Any, more: dict[str, Any], right: bool
) -> None:
    signer = EntrySigner(KEY)
    write_log(tmp_path / "log", 1, signer=signer)
    keys = ring(tmp_path, signer, revoked=revoked and {"keys": revoked}, **more)
    assert (verify(files_of(tmp_path / "log"), keyring=keys).mistakes == []) == right


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"keys": [{"id": "a"}]}',
        '{"keys": [{"id": "a", "publicKey": "eA"}]}',
        '{"keys": [{"id": "a", "publicKey": "?"}]}',
        f'{{"keys": [{{"id": "a", "publicKey": "{RAW}"}}, {{"id": "a", "publicKey": "{RAW}"}}]}}',
    ],
)
def test_a_keyring_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(Invalid, match=r"keys\.json"):
        Keyring.load(path)


def test_a_private_key_is_read_from_pem(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert EntrySigner.load(path).key_id == THUMBPRINT
    other = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for data in (b"nothing", other):
        path.write_bytes(data)
        with pytest.raises(Invalid, match=r"key\.pem"):
            EntrySigner.load(path)


def test_a_public_key_of_another_kind_or_spelling_is_refused(tmp_path: Path) -> None:
    other = generate_private_key(SECP256R1()).public_key()
    der = other.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    path = tmp_path / "governance-keys.json"
    for text, why in (
        (base64.b64encode(der).decode(), "not an Ed25519 key"),
        (f"{RAW}!!!!", "no public key"),
        (f"!{RAW}", "no public key"),
    ):
        path.write_text(json.dumps({"keys": [{"id": "k", "publicKey": text}]}))
        with pytest.raises(Invalid, match=why) as caught:
            Keyring.load(path)
        assert caught.value.path == "/keys/0/publicKey"


def test_a_key_is_valid_from_its_first_moment_to_its_last(tmp_path: Path) -> None:
    signer, moment = EntrySigner(KEY), datetime(2033, 5, 18, tzinfo=UTC)
    block, step = signer.sign(b"words"), timedelta(microseconds=1)
    since = ring(tmp_path, signer, validFrom=moment.isoformat())
    until = ring(tmp_path, signer, expiresAt=moment.isoformat())
    assert since.check(block, b"words", moment) is None and since.check(block, b"words", moment - step) is not None
    assert until.check(block, b"words", moment) is None and until.check(block, b"words", moment + step) is not None
    for wrong in ({**block, "more": 1}, {**block, "alg": "none"}, "words", {**block, "value": block["value"] + "!!!!"}):
        refused = since.check(wrong, b"words", moment)
        assert refused is not None and refused[0] == "signature.invalid"
