"""The signed head pointer, and what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.cli.commands import app
from gateway.core.errors import Invalid
from gateway.governance.audit import AuditLog, EntrySigner, LogHead, Terms
from gateway.governance.audit.files import log_path
from gateway.governance.audit.heads import path_for, read
from tests.governance.audit.support import event
from tests.governance.audit.test_keys import KEY, ring
from tests.support.aio import run


async def written(folder: Path, count: int = 3) -> LogHead:
    async with AuditLog(log_path(folder, 1), signer=EntrySigner(KEY)) as log:
        log.keep(Terms(pointer=True))
        return [await log.append(event(number)) for number in range(count)][-1].head


@pytest.fixture
def pointer(tmp_path: Path) -> tuple[Path, LogHead]:
    """A log's pointer, and its head."""
    return path_for(tmp_path / "audit-log.jsonl"), run(written(tmp_path))


def verified(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["audit", "verify", *map(str, words)])
    return done.exit_code, done.output


def test_a_log_that_is_closed_has_its_last_entry_in_a_signed_pointer(
    tmp_path: Path, pointer: tuple[Path, LogHead]
) -> None:
    path, head = pointer
    assert path == tmp_path / ".well-known" / "head-pointer.json"
    said: dict[str, Any] = json.loads(path.read_bytes())
    assert (said["$schema"], said["doctype"], said["chain"]) == (
        "agentgovernance/v1",
        "head-pointer",
        "audit-log.jsonl",
    )
    assert (said["headSeq"], said["headHash"]) == (head.seq, head.hash)
    assert said["signer"] == {"id": "host:interlingua", "role": "system"} and said["signature"]["alg"] == "Ed25519"
    assert read(path, ring(tmp_path, EntrySigner(KEY))) == head
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_a_pointer_that_is_wanted_again_is_that_of_now(tmp_path: Path) -> None:
    async with AuditLog(log_path(tmp_path, 1), signer=EntrySigner(KEY)) as log:
        log.keep(Terms(pointer=True))
        await log.append(event(0))
        log.keep(Terms())
        head = (await log.append(event(1))).head
        log.keep(Terms(pointer=True))
    assert read(path_for(log.path), None) == head


@pytest.mark.parametrize("key", ["headSeq", "headHash", "pinnedAt", "chain", "signature"])
def test_a_pointer_that_was_changed_is_none(tmp_path: Path, pointer: tuple[Path, LogHead], key: str) -> None:
    path, _ = pointer
    said = json.loads(path.read_bytes())
    other: Any = {
        "headSeq": 1,
        "headHash": "0" * 64,
        "pinnedAt": "2020-01-01T00:00:00.000Z",
        "chain": "x",
        "signature": {},
    }
    path.write_text(json.dumps({**said, key: other[key]}))
    with pytest.raises(Invalid, match=r"signature\.invalid"):
        read(path, ring(tmp_path, EntrySigner(KEY)))


def test_a_pointer_of_a_strangers_key_is_none(tmp_path: Path, pointer: tuple[Path, LogHead]) -> None:
    with pytest.raises(Invalid, match=r"signature\.unknown_key"):
        read(pointer[0], ring(tmp_path, EntrySigner(Ed25519PrivateKey.generate())))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"headSeq": -1}', '{"doctype": "head-pointer", "headSeq": 1}'])
def test_what_is_no_pointer_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(Invalid, match="no head pointer"):
        read(tmp_path / "p.json", None)


def test_a_log_that_was_cut_off_is_found_by_the_pointer_beside_it(
    tmp_path: Path, pointer: tuple[Path, LogHead]
) -> None:
    ring(tmp_path, EntrySigner(KEY))
    keys, log = tmp_path / "governance-keys.json", tmp_path / "audit-log.jsonl"
    code, told = verified(tmp_path, "--keyring", keys)
    assert code == 0 and "head-pointer.json names an entry of it\n" in told and "was not checked" not in told
    code, told = verified(tmp_path)
    assert code == 0 and "its signature was not checked" in told
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    for words in ((tmp_path,), (log, "--pointer", pointer[0], "--keyring", keys)):
        code, told = verified(*words)
        assert code == 1 and "chain.truncated" in told
    assert verified(tmp_path, "--head", "0:" + "0" * 64, "--pointer", pointer[0])[0] == 2


def test_a_pointer_that_is_forged_is_a_mistake(tmp_path: Path, pointer: tuple[Path, LogHead]) -> None:
    ring(tmp_path, EntrySigner(KEY))
    path, _ = pointer
    path.write_text(path.read_text().replace('"headSeq": 2', '"headSeq": 1'))
    code, told = verified(tmp_path, "--keyring", tmp_path / "governance-keys.json")
    assert code == 1 and "head-pointer.json:signature signature.invalid" in told


async def test_without_a_key_there_is_no_pointer(tmp_path: Path) -> None:
    async with AuditLog(log_path(tmp_path, 1)) as log:
        with pytest.raises(Invalid, match="no key to sign the head pointer"):
            log.keep(Terms(pointer=True))


def test_a_log_goes_on_where_its_pointer_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / ".well-known").write_text("no folder")
    assert run(written(tmp_path)).seq == 2
