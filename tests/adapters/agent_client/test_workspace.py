"""Files served from a workspace root, and the ways out of it that there are not."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from pathlib import Path

import pytest

from adapters.agent_client.options import Workspace
from adapters.agent_client.outbound import workspace
from adapters.agent_client.outbound.workspace import Files
from gateway.core.errors import Invalid, NotFound, TooLarge, Unsupported

TEXT = "one\ntwo\nthree\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "root"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.txt").write_text(TEXT)
    (inside / "sub" / "b.txt").write_text("below")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "root-too").mkdir()
    (tmp_path / "root-too" / "x.txt").write_text("a neighbour")
    return inside


def files(root: Path, *, write: bool = True, max_file: int = 1000) -> Files:
    return Files(Workspace(root=root, write=write, max_file=max_file))


def test_a_file_is_read_whole(root: Path) -> None:
    assert files(root).read(f"{root}/a.txt") == TEXT
    assert files(root).read(f"{root}/./sub/../sub//b.txt") == "below"


@pytest.mark.parametrize(
    ("line", "limit", "expected"),
    [
        (None, None, TEXT),
        (1, None, TEXT),
        (0, None, TEXT),
        (2, None, "two\nthree\n"),
        (2, 1, "two\n"),
        (None, 2, "one\ntwo\n"),
        (3, 10, "three\n"),
        (4, 1, ""),
        (9, None, ""),
        (1, 0, ""),
    ],
)
def test_lines_are_counted_from_one(root: Path, line: int | None, limit: int | None, expected: str) -> None:
    assert files(root).read(f"{root}/a.txt", line, limit) == expected


def test_a_last_line_without_an_end_is_a_line(root: Path) -> None:
    (root / "c.txt").write_text("x\r\ny")
    assert files(root).read(f"{root}/c.txt", 2, 1) == "y"
    assert files(root).read(f"{root}/c.txt", 1, 1) == "x\r\n"


@pytest.mark.parametrize(
    "path",
    [
        "a.txt",
        "{root}/../secret.txt",
        "{root}/sub/../../secret.txt",
        "{parent}/secret.txt",
        "{parent}/root-too/x.txt",
        "/etc/passwd",
        "",
        "{root}/a.txt\0",
        "{root}",
        "{root}/sub/..",
        "{root}/a.txt/x",
    ],
)
def test_a_path_that_is_not_of_a_file_inside_is_refused(root: Path, path: str) -> None:
    place = path.format(root=root, parent=root.parent)
    for call in (lambda: files(root).read(place), lambda: files(root).write(place, "x")):
        with pytest.raises(Invalid):
            call()
    assert (root.parent / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("target", ["/etc", "..", "../root-too", "sub/../..", "{root}/../root-too"])
def test_a_linked_folder_that_leads_out_is_refused(root: Path, target: str) -> None:
    (root / "out").symlink_to(target.format(root=root))
    for name in ("x.txt", "passwd", "secret.txt", "root-too/x.txt"):
        with pytest.raises(Invalid):
            files(root).read(f"{root}/out/{name}")
        with pytest.raises(Invalid):
            files(root).write(f"{root}/out/{name}", "gotcha")
    assert (root.parent / "root-too" / "x.txt").read_text() == "a neighbour"


def test_a_linked_file_that_leads_out_is_neither_read_nor_written(root: Path) -> None:
    (root / "out.txt").symlink_to(root.parent / "secret.txt")
    (root / "further.txt").symlink_to("out.txt")
    (root / "new.txt").symlink_to(root.parent / "made.txt")
    for name in ("out.txt", "further.txt", "new.txt"):
        with pytest.raises(Invalid, match="outside"):
            files(root).read(f"{root}/{name}")
        with pytest.raises(Invalid, match="outside"):
            files(root).write(f"{root}/{name}", "gotcha")
    assert (root.parent / "secret.txt").read_text() == "secret"
    assert not (root.parent / "made.txt").exists()


def test_links_inside_are_followed(root: Path) -> None:
    (root / "near").symlink_to("sub")
    (root / "far").symlink_to(root / "sub")
    (root / "sub" / "up").symlink_to("../a.txt")
    assert files(root).read(f"{root}/near/b.txt") == files(root).read(f"{root}/far/b.txt") == "below"
    assert files(root).read(f"{root}/near/up") == TEXT
    files(root).write(f"{root}/sub/up", "changed")
    assert (root / "a.txt").read_text() == "changed"
    assert (root / "sub" / "up").is_symlink()


def test_links_in_a_circle_are_refused(root: Path) -> None:
    (root / "x").symlink_to("y")
    (root / "y").symlink_to("x")
    with pytest.raises(Invalid, match="links"):
        files(root).read(f"{root}/x")


def test_a_root_that_is_a_link_serves_both_of_its_names(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    served = files(link)
    assert served.read(f"{link}/a.txt") == served.read(f"{root}/a.txt") == TEXT


def test_a_component_that_becomes_a_link_between_two_steps_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "out").symlink_to(root.parent)
    (root / "out.txt").symlink_to(root.parent / "secret.txt")
    monkeypatch.setattr(
        workspace, "_link", lambda step, folder: None
    )  # as if it had not been one when it was looked at
    for name in ("out/secret.txt", "out.txt"):
        with pytest.raises(Invalid):
            files(root).read(f"{root}/{name}")
        with pytest.raises(Invalid):
            files(root).write(f"{root}/{name}", "gotcha")
    assert (root.parent / "secret.txt").read_text() == "secret"


def test_a_folder_that_is_exchanged_while_a_path_is_walked_leads_nowhere_else(root: Path) -> None:
    served = files(root)
    walk = served._walk

    def exchange(stack: list[int], steps: deque[str], path: str, make: bool, most: int) -> str:
        name = walk(stack, steps, path, make, most)
        (root / "sub").rename(root / "moved")
        (root / "sub").symlink_to(root.parent / "root-too")
        return name

    served._walk = exchange  # type: ignore[method-assign]
    served.write(f"{root}/sub/x.txt", "new")
    assert (root / "moved" / "x.txt").read_text() == "new"
    assert (root.parent / "root-too" / "x.txt").read_text() == "a neighbour"


@pytest.mark.parametrize("content", [b"\x00\x01", b"caf\xe9", b"\xff\xfe\x00"])
def test_a_file_that_is_no_text_is_refused(root: Path, content: bytes) -> None:
    (root / "binary").write_bytes(content)
    with pytest.raises(Invalid, match="no text file"):
        files(root).read(f"{root}/binary")


def test_what_is_no_file_is_refused_and_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "fifo")
    (root / "device").symlink_to("/dev/zero")
    for name in ("fifo", "sub", "device"):
        with pytest.raises(Invalid):
            files(root).read(f"{root}/{name}")
        with pytest.raises(Invalid):
            files(root).write(f"{root}/{name}", "x")


def test_a_missing_file_is_not_found(root: Path) -> None:
    for path in (f"{root}/none.txt", f"{root}/none/none.txt"):
        with pytest.raises(NotFound):
            files(root).read(path)


def test_the_limit_holds_for_reading_and_writing(root: Path) -> None:
    (root / "big").write_text("x" * 11)
    with pytest.raises(TooLarge):
        files(root, max_file=10).read(f"{root}/big", 1, 1)
    with pytest.raises(TooLarge):
        files(root, max_file=10).write(f"{root}/new", "é" * 6)
    files(root, max_file=10).write(f"{root}/new", "é" * 5)
    assert not [name for name in os.listdir(root) if name.endswith(".part")]


def test_a_file_is_made_with_the_folders_on_its_way(root: Path) -> None:
    files(root).write(f"{root}/p/q/new.txt", "text")
    assert (root / "p" / "q" / "new.txt").read_text() == "text"


def test_a_file_that_is_replaced_keeps_its_mode(root: Path) -> None:
    (root / "a.txt").chmod(0o750)
    files(root).write(f"{root}/a.txt", "echo")
    assert (root / "a.txt").read_text() == "echo"
    assert (root / "a.txt").stat().st_mode & 0o777 == 0o750


def test_a_file_outside_that_shares_its_content_is_not_changed_by_a_write(root: Path) -> None:
    os.link(root.parent / "secret.txt", root / "shared.txt")
    files(root).write(f"{root}/shared.txt", "mine now")
    assert (root.parent / "secret.txt").read_text() == "secret"


def test_nothing_is_written_where_the_route_does_not_say_so(root: Path) -> None:
    with pytest.raises(Unsupported):
        files(root, write=False).write(f"{root}/a.txt", "x")
    assert (root / "a.txt").read_text() == TEXT


def test_half_a_surrogate_pair_is_no_text_to_write(root: Path) -> None:
    with pytest.raises(Invalid):
        files(root).write(f"{root}/a.txt", "\ud800")
    assert (root / "a.txt").read_text() == TEXT


def test_no_descriptor_is_left_open(root: Path) -> None:
    served = files(root)
    before = len(os.listdir("/proc/self/fd"))
    (root / "near").symlink_to(root / "sub")
    for path in ("near/b.txt", "none/x", "near/../../x", "sub", "a.txt/x"):
        with contextlib.suppress(Invalid, NotFound):
            served.read(f"{root}/{path}")
        with contextlib.suppress(Invalid, NotFound):
            served.write(f"{root}/{path}", "x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_command_starts_inside_only(root: Path) -> None:
    (root / "out").symlink_to(root.parent / "root-too")
    assert files(root).folder(f"{root}/sub") == str(root / "sub")
    for path in (f"{root}/out", f"{root}/..", str(root.parent), "sub"):
        with pytest.raises(Invalid):
            files(root).folder(path)
    with pytest.raises(NotFound):
        files(root).folder(f"{root}/none")
