"""`interlingua audit`, in this process but for its exit."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.commands import app
from gateway.governance.audit import AuditLog, EntrySigner, KeptHead, LogHead
from gateway.governance.audit.files import log_path
from gateway.runs.parts import EngineRecords
from gateway.store.opening import open_store
from tests.governance.audit.support import event, write_log
from tests.governance.audit.test_keys import KEY, ring
from tests.support.aio import run

OTHER = "0" * 64


def audit(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["audit", *map(str, words)])
    return done.exit_code, done.output


@pytest.fixture
def log(tmp_path: Path) -> tuple[Path, LogHead]:
    """A signed log of several files, and its head."""
    entries = write_log(tmp_path / "log", 7, rotate_bytes=1500, signer=EntrySigner(KEY))
    return tmp_path / "log", entries[-1].head


def test_a_log_that_is_right_is_said_to_be_and_what_was_not_looked_at_too(log: tuple[Path, LogHead]) -> None:
    folder, head = log
    code, told = audit("verify", folder)
    assert code == 0
    assert f"no mistakes: 7 entries in 3 files, the last is {head}" in told
    assert "signatures were not checked (--keyring)" in told and "--head, --store, --pointer" in told


def test_with_head_and_keyring_nothing_is_left_to_say(log: tuple[Path, LogHead], tmp_path: Path) -> None:
    folder, head = log
    ring(tmp_path, EntrySigner(KEY))
    files, keys = sorted(folder.glob("*.jsonl")), tmp_path / "governance-keys.json"
    code, told = audit("verify", *files, "--head", head, "--keyring", keys)
    assert (code, told.count("\n")) == (0, 1)


def test_a_line_that_was_changed_is_named_with_its_file_and_number(log: tuple[Path, LogHead]) -> None:
    folder, _ = log
    path = folder / "audit-log.000000000000.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":2'))
    code, told = audit("verify", folder)
    assert code == 1
    assert f"{path}#L2:hash chain.tampered the line is not what was hashed: it was changed" in told
    assert "1 mistake\n" in told


def test_a_log_that_was_cut_off_is_found_by_the_head(log: tuple[Path, LogHead]) -> None:
    folder, head = log
    active = folder / "audit-log.jsonl"
    active.write_bytes(b"")
    assert audit("verify", folder)[0] == 0
    code, told = audit("verify", folder, "--head", head)
    assert code == 1 and "chain.truncated the log was cut off" in told
    assert audit("verify", folder, "--head", f"6:{OTHER}")[0] == 1


def test_the_head_that_the_gateway_kept_is_in_the_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/gateway.db"

    async def scenario() -> None:
        store = open_store(url)
        await store.open()
        try:
            kept = KeptHead(EngineRecords(store), "main")
            assert await kept.newest() is None
            for _ in range(2):
                async with AuditLog(log_path(tmp_path / "log", 1), head=await kept.newest(), on_head=kept.keep) as log:
                    await log.append(event())
                    await log.append(event())
            assert await kept.newest() == log.head
        finally:
            await store.close()

    run(scenario())
    for words in ((), ("--name", "main")):
        assert audit("verify", tmp_path / "log", "--store", url, *words)[0] == 0
    active = tmp_path / "log" / "audit-log.jsonl"
    active.write_bytes(b"".join(active.read_bytes().splitlines(keepends=True)[:-1]))
    code, told = audit("verify", tmp_path / "log", "--store", url)
    assert code == 1 and "the last entry is 2, and entry 3 is known to have been written" in told
    assert audit("verify", tmp_path / "log", "--store", url, "--name", "other")[0] == 1


def test_older_files_may_be_left_out_by_name_of_their_last_entry(log: tuple[Path, LogHead]) -> None:
    folder, head = log
    first, *rest = sorted(folder.glob("*.jsonl"))
    last = audit("verify", first)[1].split("the last is ")[1].split()[0]
    assert audit("verify", *rest)[0] == 1
    assert audit("verify", *rest, "--after", last, "--head", head)[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--head", "7"], 2, "is not SEQ:HASH"),
        (["--after", "x:y"], 2, "is not SEQ:HASH"),
        (["--head", f"0:{OTHER}", "--store", "sqlite:///x.db"], 2, "--head, --store and --pointer"),
        (["--name", "main"], 2, "give --store, too"),
        (["--store", "sqlite:////nowhere/x.db"], 1, "no such store"),
        (["--store", "redis://x"], 2, "no store engine"),
        (["--keyring", "missing.json"], 2, "missing.json: no keyring"),
        (["missing.jsonl"], 1, "missing.jsonl: No such file or directory"),
    ],
)
def test_wrong_usage_and_what_cannot_be_read_are_told_apart(
    log: tuple[Path, LogHead], words: list[str], code: int, told: str
) -> None:
    done = audit("verify", log[0], *words)
    assert done[0] == code and told in done[1]


def test_a_folder_without_a_log_is_no_log_that_is_right(tmp_path: Path) -> None:
    code, told = audit("verify", tmp_path)
    assert code == 1 and "there is no audit log in" in told


def test_the_keyring_of_a_private_key_is_printed(tmp_path: Path, log: tuple[Path, LogHead]) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    pem = tmp_path / "key.pem"
    pem.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    code, told = audit("keyring", pem)
    (tmp_path / "keys.json").write_text(told)
    assert code == 0 and audit("verify", log[0], "--keyring", tmp_path / "keys.json")[0] == 0
    assert audit("keyring", tmp_path / "keys.json") == (2, f"{tmp_path}/keys.json: no private key in PEM form\n")
    pem.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    assert audit("keyring", pem) == (2, f"{pem}: no private key that can be read: it is encrypted\n")
