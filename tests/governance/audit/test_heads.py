"""Heads: how one is written, where the gateway's store has it, and that what was recorded is not changed later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.core.errors import Invalid, NotFound, TooLarge, Unavailable
from gateway.governance.audit import (
    Actor,
    AuditEntry,
    AuditEvent,
    AuditLog,
    AuditSubject,
    EntrySigner,
    KeptHead,
    LogHead,
)
from gateway.governance.audit.event import AppliedPolicy
from gateway.governance.audit.files import log_path
from gateway.governance.audit.heads import OWNER, SCOPE, Pointer, head_name, kept_numbers, stored_heads
from gateway.governance.audit.log import Terms
from gateway.runs.parts import EngineRecords
from gateway.store.opening import open_store
from tests.governance.audit.support import event
from tests.support.aio import run

HASH = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "head"),
    [
        (f"7:{HASH}", LogHead(7, HASH)),
        (f" 0:{HASH}\n", LogHead(0, HASH)),
        (f"7:{HASH[:32]}", LogHead(7, HASH[:32])),
        (f"7:{HASH * 2}", LogHead(7, HASH * 2)),
        ("7", None),
        (HASH, None),
        ("7:", None),
        (f":{HASH}", None),
        (f"-1:{HASH}", None),
        (f"1.0:{HASH}", None),
        (f"\u0667:{HASH}", None),
        (f"\u00b2:{HASH}", None),
        (f"7:{HASH[:31]}", None),
        (f"7:{HASH * 2}0", None),
        (f"7:{HASH.upper()}", None),
        (f"7:{HASH}:8", None),
        (f"7:{HASH}\n7:{HASH}", None),
    ],
)
def test_a_head_is_a_number_and_a_hash(text: str, head: LogHead | None) -> None:
    if head is not None:
        assert LogHead.parse(text) == head and str(head) == text.strip()
        return
    with pytest.raises(ValueError, match="is not SEQ:HASH"):
        LogHead.parse(text)


async def test_the_store_has_the_head_of_each_log_by_its_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with pytest.raises(Invalid):
        await stored_heads("nonsense://", None)
    store = open_store(url)
    await store.open()
    records = EngineRecords(store)
    one, two = KeptHead(records, "one"), KeptHead(records, "two")
    with pytest.raises(NotFound, match=r"no log$"):
        await stored_heads(url, None)
    await one.keep(1, HASH)
    await records.keep("another", "two", {"seq": 9, "hash": HASH}, owner=OWNER)
    assert await one.newest() == LogHead(1, HASH) and await two.newest() is None
    assert await stored_heads(url, None) == await stored_heads(url, "one") == {1: LogHead(1, HASH)}
    with pytest.raises(NotFound, match="no log two"):
        await stored_heads(url, "two")
    await two.keep(5, HASH)
    await one.keep(2, HASH)
    assert (await one.newest(), await two.newest()) == (LogHead(2, HASH), LogHead(5, HASH))
    assert await stored_heads(url, "two") == {1: LogHead(5, HASH)}
    with pytest.raises(Invalid, match="several logs, name one: one, two"):
        await stored_heads(url, None)
    wrong: list[dict[str, Any]] = [{}, {"seq": 1}, {"hash": HASH}, {"seq": "x", "hash": HASH}, {"seq": 1, "hash": "x"}]
    for data in wrong:
        await records.keep(SCOPE, "one", data, owner=OWNER)
        for found in (one.newest(), stored_heads(url, "one")):
            with pytest.raises(Invalid, match="what the store has for the audit log one is no head"):
                await found
    await store.close()
    (tmp_path / "file").write_text("no database, but long enough to be looked at as one" * 40)
    with pytest.raises(Unavailable):
        await stored_heads(f"sqlite:///{tmp_path}/file", "one")


async def test_the_store_has_a_head_for_each_log_of_a_folder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    store = open_store(url)
    await store.open()
    records = EngineRecords(store)
    for folder, number in (("/logs/a", 1), ("/logs/a", 2), ("/logs/a", 12), ("/logs/b", 3)):
        await KeptHead(records, head_name(folder, number)).keep(number, HASH)
    assert head_name("/logs/a", 1) == "/logs/a", "as a store of before has it"
    assert await kept_numbers(records, "/logs/a") == {1, 2, 12}
    assert await kept_numbers(records, "/logs/b") == {3} and await kept_numbers(records, "/logs") == set()
    await store.close()
    assert await stored_heads(url, "/logs/a") == {number: LogHead(number, HASH) for number in (1, 2, 12)}


async def test_a_store_that_cannot_be_closed_gives_no_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    store = open_store(url)
    await store.open()
    await KeptHead(EngineRecords(store), "one").keep(1, HASH)
    await store.close()
    close = type(store).close

    async def fails(own: Any) -> None:
        await close(own)
        raise TooLarge("the disk is gone")

    monkeypatch.setattr(type(store), "close", fails)
    with pytest.raises(Unavailable, match="the disk is gone"):
        await stored_heads(url, "one")


def test_what_was_recorded_cannot_be_changed_by_whoever_has_it() -> None:
    for made, name in (
        (AuditEntry(0, "2033-05-18T03:33:20.000Z", HASH, HASH), "hash"),
        (LogHead(0, HASH), "seq"),
        (event(), "action"),
        (Actor("a"), "id"),
        (AuditSubject("tool"), "kind"),
        (AppliedPolicy("ab"), "ref"),
    ):
        with pytest.raises(AttributeError):
            setattr(made, name, "forged")


@pytest.mark.parametrize(
    ("field", "longest", "wrong"),
    [
        ("actor.id", "a" * 256, ["", "a" * 257]),
        ("actor.id", "a", []),
        ("actor.role", "a" * 64, ["a" * 65]),
        ("subject.kind", "a" * 32, ["a" * 33]),
        ("subject.ref", "a" * 256, ["a" * 257]),
        ("subject.path", "a" * 1024, ["a" * 1025]),
        ("policy.ref", "a" * 64, ["a", "a" * 65, "A-b", "a-", "-a", "a\n"]),
        ("policy.ref", "ab", []),
        ("policy.decision", "escalate", ["maybe"]),
        ("action", "a" * 128, ["a" * 129, "a", "A.b", "a.", "a.b\n"]),
        ("action", "ab", []),
    ],
)
async def test_an_event_has_the_lengths_and_shapes_of_the_specification(
    tmp_path: Path, field: str, longest: str, wrong: list[str]
) -> None:
    def made(value: str) -> AuditEvent:
        name, _, member = field.partition(".")
        if not member:
            return event(**{name: value})
        whole = {"actor": Actor("a"), "subject": AuditSubject("tool"), "policy": AppliedPolicy("ab")}[name]
        return event(**{name: msgspec.structs.replace(whole, **{member: value})})

    async with AuditLog(log_path(tmp_path, 1)) as log:
        await log.append(made(longest))
        for value in wrong:
            with pytest.raises(Invalid):
                await log.append(made(value))


def test_a_signed_head_is_published_while_the_terms_say_so_from_the_opening_on(tmp_path: Path) -> None:
    signer = EntrySigner(Ed25519PrivateKey.generate())
    file = Pointer(AuditLog(log_path(tmp_path, 1)).path, signer).path

    def published() -> int | None:
        return msgspec.json.decode(file.read_bytes())["headSeq"] if file.exists() else None

    async def written(*events: AuditEvent, pointer: bool) -> int | None:
        file.unlink(missing_ok=True)
        log = AuditLog(log_path(tmp_path, 1), signer=signer)
        log.keep(Terms(pointer=pointer))
        async with log:
            for each in events:
                await log.append(each)
        return published()

    async def changed() -> None:
        file.unlink(missing_ok=True)
        async with AuditLog(log_path(tmp_path, 1), signer=signer) as log:
            log.keep(Terms(pointer=True))
            await log.append(event())
            log.keep(Terms(pointer=False))
            await log.append(event())
        assert published() == 2
        async with AuditLog(log_path(tmp_path, 1)) as log:
            with pytest.raises(Invalid, match="no key to sign the head pointer with"):
                log.keep(Terms(pointer=True))

    assert run(written(pointer=True)) is None, "there is no entry yet"
    assert run(written(event(), pointer=False)) is None
    assert run(written(pointer=False)) is None
    assert run(written(pointer=True)) == 0, "it is there though nothing is appended"
    assert run(written(event(), pointer=True)) == 1
    run(changed())
