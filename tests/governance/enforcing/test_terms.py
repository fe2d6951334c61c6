"""How a posture has its log kept, from the start and after it was changed; and the time that rules go by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gateway.app import App
from gateway.config import load
from gateway.contract.governing import governor_named
from gateway.core.errors import Invalid
from gateway.core.types import RunStatus
from gateway.governance.audit import AuditLog, EntrySigner, LogHead, Terms, log
from gateway.governance.audit.files import log_path
from gateway.governance.audit.heads import path_for, read
from gateway.governance.enforcing import journal as journals
from gateway.governance.enforcing.journal import Journal
from tests.governance.audit.test_keys import KEY, ring
from tests.governance.enforcing.support import audited, calling, documents, house, told, verified
from tests.governance.support import policy, spends_nothing
from tests.support.aio import run

DAY = 86_400.0
JUST_AFTER_MIDNIGHT = 20_000 * DAY + 1800
NOBODY = {"protocol": "example", "url": "http://127.0.0.1:1/echo"}


class Clock:
    """The time of the log, and of the rules."""

    now = JUST_AFTER_MIDNIGHT

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (log, journals):
        monkeypatch.setattr(module, "time", found)
    return found


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_refills_no_budget_and_breaks_no_log(tmp_path: Path, clock: Clock) -> None:
    async def story() -> None:
        async with house(tmp_path, calling("write"), writes=1) as at:
            await at.ended(await at.start())
            clock.now -= 3600.0  # yesterday
            one = await at.asked(await at.start())
            assert "1 calls of this day are used up" in one.interrupts[0].message
            await at.answer(one, {"decision": "reject"})
            await at.ended(one, RunStatus.ERROR)

    run(story())
    verified(tmp_path)
    late = [line for line in audited(tmp_path) if "clock" in line["metadata"].get("interlingua", {})]
    assert late and {line["ts"] for line in late} == {late[0]["ts"]}


def test_a_clock_that_was_wrong_for_days_does_not_spend_the_budgets_of_days_to_come(
    tmp_path: Path, clock: Clock
) -> None:
    async def story() -> None:
        clock.now += 100 * DAY
        async with house(tmp_path, calling("write"), writes=1) as at:
            await at.ended(await at.start())
            clock.now -= 100 * DAY
            await at.ended(await at.start())

    run(story())
    assert told(tmp_path).count("tool.call write") == 2


def test_what_a_policy_only_tells_is_in_the_record_of_the_call(tmp_path: Path) -> None:
    documents(tmp_path)
    warns = {**policy(tmp_path, "frowns", decision="deny", match={"subject": "write"}), "severity": "warn"}
    allows = policy(tmp_path, "writes", match={"subject": "write"}, autonomy=3)

    async def story() -> None:
        async with house(tmp_path, calling("write", "read"), policies=[allows, warns]) as at:
            await at.asked(await at.start())

    run(story())
    calls = [line for line in audited(tmp_path) if line["action"] == "tool.call"]
    assert [line["metadata"]["aip44"]["audit"].get("notes") for line in calls] == [["warn: frowns says deny"], None]


# --- terms -----------------------------------------------------------------------------------------------------------


async def test_a_posture_that_wants_a_signed_head_does_not_open_a_log_without_a_key(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"GOVERNANCE\.md:\d+ audit\.headPointerSign: has the log's head signed"):
        async with house(tmp_path, calling(), audit={"headPointerSign": True}):
            pass


@pytest.mark.parametrize(
    ("posture", "key"),
    [({"signing": {"required": True}}, "signing.required"), ({"audit": {"headPointerSign": True}}, "headPointerSign")],
)
async def test_what_cannot_be_done_with_a_log_that_is_open_is_refused_before_anything_is_changed(
    tmp_path: Path, posture: dict[str, Any], key: str
) -> None:
    async with house(tmp_path, calling()) as at:
        with pytest.raises(Invalid, match=key):
            await at.enforcement.prepare([documents(tmp_path, **posture)])


def test_a_signed_head_is_published_as_soon_as_the_posture_says_so(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    documents(tmp_path)
    raw = (tmp_path / "GOVERNANCE.md").read_text()
    route = {"name": "scripted", "target": NOBODY, "manifest": "scripted/ACP.md"}
    table = tmp_path / "routes.yaml"
    table.write_text(json.dumps({"routes": [route], "audit": {"key": "key.pem"}}))
    pointer = path_for(tmp_path / "audit-log.jsonl")

    async def story() -> None:
        app = App(load(table))
        await app.start()
        governor = governor_named(app.gateway.agents, "scripted", "example")
        assert governor is not None
        await governor.opened("t1")
        assert not pointer.exists()
        (tmp_path / "GOVERNANCE.md").write_text(
            raw.replace("autonomy:", "audit: {headPointerSign: true}\nautonomy:", 1)
        )
        await app.reload(load(table))
        await app.stop()

    run(story())
    assert read(pointer, ring(tmp_path, EntrySigner(KEY))) == LogHead(0, audited(tmp_path)[0]["hash"])


class Kept(AuditLog):
    """A log that notes how it is to be kept."""

    def __init__(self, folder: Path) -> None:
        super().__init__(log_path(folder, 1))
        self.terms: list[Terms] = []

    def keep(self, terms: Terms) -> None:
        self.terms.append(terms)
        super().keep(terms)


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ([Terms(days=3)], Terms(days=3)),
        ([Terms(days=3), Terms(days=9)], Terms(days=9)),
        ([Terms(days=3), Terms()], Terms()),
        ([Terms(algorithm="sha512"), Terms(algorithm="sha512", days=2)], Terms(algorithm="sha512")),
    ],
)
async def test_of_a_log_that_several_share_nothing_goes_that_any_of_them_keeps(
    tmp_path: Path, wanted: list[Terms], kept: Terms
) -> None:
    made = Kept(tmp_path)

    async def make(number: int) -> AuditLog:
        return made

    journal = Journal(make, spend=spends_nothing)
    for index, terms in enumerate(wanted):
        journal.want(tmp_path / str(index), terms)
    await journal.open()
    assert made.terms[-1] == kept
    journal.want(tmp_path / "another", Terms(days=1000))
    journal.forget_all_but([tmp_path / "another"])
    assert made.terms[-1] == Terms(days=1000)
    await journal.aclose()


async def test_a_changed_retention_is_that_of_the_log_that_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    keep = AuditLog.keep

    def noted(opened: AuditLog, terms: Terms) -> None:
        kept.append(terms.days)
        keep(opened, terms)

    monkeypatch.setattr(AuditLog, "keep", noted)
    documents(tmp_path, audit={"retention": "days:30"})
    route = {"name": "scripted", "target": NOBODY, "manifest": "scripted/ACP.md"}
    table = tmp_path / "routes.yaml"
    table.write_text(json.dumps({"routes": [route]}))

    app = App(load(table))
    await app.start()
    assert kept[-1] == 30
    text = (tmp_path / "GOVERNANCE.md").read_text()
    (tmp_path / "GOVERNANCE.md").write_text(text.replace("days:30", "days:7"))
    await app.reload(load(table))
    assert kept[-1] == 7
    await app.stop()


async def test_the_terms_of_a_route_that_is_gone_keep_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    keep = AuditLog.keep

    def noted(opened: AuditLog, terms: Terms) -> None:
        kept.append(terms.days)
        keep(opened, terms)

    monkeypatch.setattr(AuditLog, "keep", noted)
    shared = {"audit": {"kind": "external", "ref": f"file://{tmp_path}/log"}}
    documents(tmp_path / "a", aip44=shared, audit={"retention": "days:30"})
    documents(tmp_path / "b", aip44=shared)
    table = tmp_path / "routes.yaml"

    def routes(*names: str) -> None:
        each = [{"name": name, "target": NOBODY, "manifest": f"{name}/scripted/ACP.md"} for name in names]
        table.write_text(json.dumps({"routes": each}))

    routes("a", "b")
    app = App(load(table))
    await app.start()
    assert kept[-1] is None
    routes("a")
    await app.reload(load(table))
    assert kept[-1] == 30
    await app.stop()
