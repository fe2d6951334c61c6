"""Which paths may be worked on: no way out by `..`, by links, or by a name that only begins alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.errors import Denied
from gateway.governance.binding import Root, Roots, roots_of
from gateway.governance.manifests import load_sandbox
from tests.governance.support import SANDBOX, with_, write


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A workspace `in` with links out of it and within."""
    for folder in ("in/src", "in-side", "secret"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "in" / "out").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "again").symlink_to("src")
    (tmp_path / "entry").symlink_to(tmp_path / "in")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "becomes"),
    [
        ("in", "in"),
        ("in/src/new/file.py", "in/src/new/file.py"),
        ("in/src/../src/./a", "in/src/a"),
        ("in/again/a", "in/src/a"),
        ("entry/src/a", "in/src/a"),
    ],
)
def test_paths_inside_are_admitted_without_links(path: str, becomes: str, world: Path) -> None:
    assert roots_of(world / "in", None).admit(f"{world}/{path}", write=True) == str(world / becomes)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "secret",
        "in-side",
        "in/../secret/a",
        "in/out",
        "in/out/a",
        "in/again/../../secret",
        "in/out/../in/src/../../x",
    ],
)
def test_paths_outside_are_denied(path: str, world: Path) -> None:
    with pytest.raises(Denied, match="outside of the workspace"):
        roots_of(world / "in", None).admit(f"{world}/{path}")


@pytest.mark.parametrize("path", ["src", "./src", "~/x", "", "C:\\x", "file:///x", "/in\0/x"])
def test_what_is_no_absolute_path_is_denied(path: str, world: Path) -> None:
    with pytest.raises(Denied, match="not an absolute path"):
        roots_of(world / "in", None).admit(path)


def test_a_sandbox_admits_what_it_mounts_as_it_is_called_inside(tmp_path: Path) -> None:
    mounts = [
        {"source": "workspace", "at": "/box"},
        {"source": "workspace", "at": "/box/vendored", "mode": "read-only"},
    ]
    keys = with_(SANDBOX, provider="mastra-e2b", mounts=mounts)
    roots = roots_of(tmp_path, load_sandbox(write(tmp_path / "SANDBOX.md", keys), tmp_path))
    assert roots.admit("/box/a/../b", write=True) == "/box/b"
    assert roots.admit("/box/vendored/x") == "/box/vendored/x"
    for path in ("/box/vendored/x", "/box/a/../vendored/x"):
        with pytest.raises(Denied, match="not to be written"):
            roots.admit(path, write=True)
    for path in (str(tmp_path), "/box/../etc", "/boxer"):
        with pytest.raises(Denied, match="outside"):
            roots.admit(path)


def test_a_sandbox_that_is_read_only_or_mounts_nothing_admits_no_more(tmp_path: Path) -> None:
    mounts = [{"source": "workspace", "at": "/box"}]
    sandbox = load_sandbox(write(tmp_path / "SANDBOX.md", with_(SANDBOX, mounts=mounts, read_only=True)), tmp_path)
    with pytest.raises(Denied, match="not to be written"):
        roots_of(tmp_path, sandbox).admit("/box/a", write=True)
    bare = load_sandbox(write(tmp_path / "SANDBOX.md", SANDBOX), tmp_path)
    with pytest.raises(Denied, match="outside"):
        roots_of(tmp_path, bare).admit(str(tmp_path))


def test_the_root_of_all_holds_everything() -> None:
    assert Roots((Root(path="/", here=False),)).admit("/a/../b") == "/b"
