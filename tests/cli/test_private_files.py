"""Files of the gateway's that others on this machine can read are told of, by `check` and by `serve`."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import interlingua
from tests.support.processes import ROOT, Gateway

TABLE = "store: {url: 'sqlite:///s.db'}\n"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that anybody may look into, as pytest's own is not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def cautions(file: Path) -> list[str]:
    done = interlingua("check", str(file))
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("caution: ")]


def test_a_store_that_others_can_read_is_told_of_and_left_as_it_is(shared: Path) -> None:
    store = shared / "s.db"
    with Gateway(TABLE, shared) as gateway:
        assert stat.S_IMODE(store.stat().st_mode) == 0o600
        assert "others on this machine" not in gateway.process.describe()
        assert cautions(gateway.file) == []
    store.chmod(0o644)
    (told,) = cautions(gateway.file)
    assert "routes.yaml:1 store.url: others on this machine can read" in told and f"{store}: " in told
    with Gateway(TABLE, shared) as gateway:
        lines = [line for line in gateway.process.describe().splitlines() if "others on this machine" in line]
        assert len(lines) == 1 and str(store) in lines[0]
    assert stat.S_IMODE(store.stat().st_mode) == 0o644
    shared.chmod(0o700)
    assert cautions(gateway.file) == [], "where nobody else gets to it nobody else reads it"


def test_an_audit_log_that_others_can_read_is_told_of(shared: Path) -> None:
    shutil.copytree(ROOT / "examples" / "governed", shared, dirs_exist_ok=True)
    table = next(shared.glob("routes.yaml"))
    before = cautions(table)
    names = ("audit-log.jsonl", "audit-log.000000000000.jsonl", "audit-log-2.jsonl")
    logs = [shared / "gardener" / name for name in names]
    for log in logs:
        log.touch(0o600)
    assert cautions(table) == before
    for log in logs:
        log.chmod(0o604)
    more = cautions(table)[len(before) :]
    assert len(more) == 3 and all(any(str(log) in line for line in more) for log in logs)
