"""The pins install what they say, and peers' environments are made once, whole, or not at all."""

import json
import re
import threading
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import peers
from tests.support.processes import ROOT, start

PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+( *; .+)?")


def pins(file: Path) -> list[str]:
    lines = [line.strip() for line in file.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "-r "))]


@pytest.mark.parametrize(
    "file",
    [ROOT / "requirements.txt", ROOT / "requirements-dev.txt", *sorted(peers.PEERS.glob("*.txt"))],
    ids=lambda file: file.name,
)
def test_every_requirement_is_an_exact_version_and_nothing_else(file: Path) -> None:
    assert [line for line in pins(file) if not PIN.fullmatch(line)] == []


@pytest.mark.parametrize("lock", sorted(peers.PEERS.glob("*/package-lock.json")), ids=lambda lock: lock.parent.name)
def test_every_node_dependency_is_an_exact_version_and_names_no_place(lock: Path) -> None:
    wanted = json.loads((lock.parent / "package.json").read_text())["dependencies"]
    root, *packages = json.loads(lock.read_text())["packages"].items()
    assert root == ("", {"name": lock.parent.name, "version": "0.0.0", "dependencies": wanted})
    pinned = {name.removeprefix("node_modules/"): package for name, package in packages}
    assert {name: pinned[name]["version"] for name in wanted} == wanted
    assert [name for name, package in pinned.items() if "integrity" not in package or "resolved" in package] == []


def test_every_dependency_of_the_package_is_pinned_within_its_range() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pinned = {canonicalize_name(r.name): r.specifier for r in map(Requirement, pins(ROOT / "requirements.txt"))}
    for requirement in map(Requirement, wanted):
        (exact,) = pinned[canonicalize_name(requirement.name)]
        assert exact.version in requirement.specifier, requirement


def test_no_package_is_pinned_twice() -> None:
    both = [*pins(ROOT / "requirements.txt"), *pins(ROOT / "requirements-dev.txt")]
    names = [canonicalize_name(Requirement(line).name) for line in both]
    assert sorted(names) == sorted(set(names))


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of their own for locks and environments; Node is the real one."""
    node = peers.node()
    monkeypatch.setattr(peers, "node", lambda: node)
    monkeypatch.setattr(peers, "PEERS", tmp_path)
    monkeypatch.setattr(peers, "BUILT", tmp_path / "built")
    return tmp_path


@pytest.fixture
def nothing(workshop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workshop whose locks name nothing, so that no installer need start."""
    monkeypatch.setattr(peers, "_install", lambda *_: None)
    return workshop


def test_workers_that_ask_at_once_share_one_build(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nothing / "thing.txt").write_text("# nothing to install\n")
    built: list[Path] = []
    build = peers._build
    monkeypatch.setattr(peers, "_build", lambda lock, home: (built.append(home), build(lock, home)))
    given: list[Path] = []
    workers = [threading.Thread(target=lambda: given.append(peers.peer_python("thing"))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(given) == 3 and set(given) == {built[0] / "bin" / "python"}
    assert len(built) == 1 and given[0].exists()


def test_a_changed_lock_gets_an_environment_of_its_own(nothing: Path) -> None:
    lock = nothing / "thing.txt"
    lock.write_text("# one\n")
    first = peers.peer_python("thing")
    lock.write_text("# two\n")
    assert peers.peer_python("thing") != first
    assert first.exists()


def test_a_build_that_fails_says_why_and_leaves_no_environment(workshop: Path) -> None:
    (workshop / "thing.txt").write_text("thing @ file:///nowhere/thing-1-py3-none-any.whl\n")
    with pytest.raises(peers.PeerUnavailable, match="nowhere"):
        peers.peer_python("thing")
    assert not list((workshop / "built").glob("thing-*"))


def test_an_environment_whose_interpreter_is_gone_is_made_again(nothing: Path) -> None:
    (nothing / "thing.txt").write_text("# nothing to install\n")
    python = peers.peer_python("thing")
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert peers.peer_python("thing").exists()


def test_node_runs_where_the_machine_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with start([str(peers.node()), "-p", "process.version"]) as process:
        assert process.wait(60) == 0
        assert process.stdout().startswith("v24.")


@pytest.fixture
def packages(workshop: Path) -> Path:
    """A lock of no packages for Node."""
    folder = workshop / "thing"
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "thing", "version": "0.0.0"}')
    lock = {"name": "thing", "version": "0.0.0", "lockfileVersion": 3, "requires": True, "packages": {"": {}}}
    (folder / "package-lock.json").write_text(json.dumps(lock))
    return folder


def test_node_packages_are_made_once_and_anew_for_another_lock(packages: Path, nothing: Path) -> None:
    first = peers.make_peer("thing")
    assert peers.make_peer("thing") == first and (first / "package-lock.json").exists()
    lock = packages / "package-lock.json"
    lock.write_text(lock.read_text() + "\n")
    assert peers.peer_names() == ["thing"]
    assert peers.make_peer("thing") != first


def test_node_packages_that_cannot_be_had_say_why_and_leave_nothing(packages: Path) -> None:
    (packages / "package.json").write_text('{"name": "thing", "dependencies": {"left": "file:/nowhere.tgz"}}')
    with pytest.raises(peers.PeerUnavailable, match="nowhere"):
        peers.make_peer("thing")
    assert not list((packages.parent / "built").glob("thing-*"))
