"""Whatever is done to a log is found: every byte changed, every line removed, moved, doubled, put in or cut off."""

from __future__ import annotations

import shutil
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.governance.audit import EntrySigner, LogHead, Report, logs, verify
from gateway.governance.audit.canonical import canonical, digest
from gateway.governance.audit.chain import ChainCheck, Fault
from gateway.governance.audit.event import LONGEST
from gateway.governance.audit.files import LogFiles, log_path
from tests.governance.audit.support import files_of, write_log
from tests.governance.audit.test_keys import KEY, ring

COUNT = 9


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LogHead]:
    """A log of three files."""
    folder = tmp_path_factory.mktemp("whole")
    entries = write_log(folder, COUNT, rotate_bytes=1000)
    assert len(LogFiles(log_path(folder, 1)).files()) > 2
    return folder, entries[-1].head


def lines_of(folder: Path) -> list[bytes]:
    return b"".join(path.read_bytes() for path in files_of(folder)).splitlines(keepends=True)


def faults(lines: list[bytes], head: LogHead | None) -> list[str]:
    walk = ChainCheck(head=head)
    found = [fault for line in lines for fault in walk.feed(line)] + walk.beginning() + walk.end()
    return [f"{fault.field} {fault.code} {fault.what}" for fault in found]


def test_an_untouched_log_is_right(whole: tuple[Path, LogHead]) -> None:
    folder, head = whole
    report = verify(files_of(folder), head=head)
    assert (report.mistakes, report.entries, report.head) == ([], COUNT, head)
    assert faults(lines_of(folder), head) == []


def test_the_change_of_any_byte_is_found(whole: tuple[Path, LogHead]) -> None:
    folder, _ = whole
    lines = lines_of(folder)[:3]
    data = b"".join(lines)
    last = ChainCheck.at(lines[-1])
    assert isinstance(last, ChainCheck)
    known = LogHead(last.seq, last.hash)
    for place, byte in enumerate(data):
        for other in {byte ^ 1, byte ^ 0x20, 0x20, 0x0A} - {byte}:
            changed = data[:place] + bytes([other]) + data[place + 1 :]
            assert faults(changed.splitlines(keepends=True), known), (place, bytes([byte]), bytes([other]))


def test_the_loss_and_the_insertion_of_any_byte_is_found(whole: tuple[Path, LogHead]) -> None:
    folder, _ = whole
    lines = lines_of(folder)[:2]
    data, last = b"".join(lines), ChainCheck.at(lines[-1])
    assert isinstance(last, ChainCheck)
    for place in range(len(data)):
        for changed in (data[:place] + data[place + 1 :], data[:place] + b" " + data[place:]):
            assert faults(changed.splitlines(keepends=True), LogHead(last.seq, last.hash)), place


def test_a_log_cut_off_anywhere_is_found(whole: tuple[Path, LogHead]) -> None:
    folder, head = whole
    data = b"".join(lines_of(folder))
    for end in range(0, len(data), 7):
        assert faults(data[:end].splitlines(keepends=True), head), end
    for count in range(COUNT):
        (told,) = faults(lines_of(folder)[:count], head)
        assert "chain.truncated" in told and "entry 8 is known to have been written" in told
        assert (f"the last entry is {count - 1}," if count else "there is none,") in told


@given(
    st.lists(
        st.tuples(st.sampled_from(["remove", "double", "swap", "move"]), st.integers(0, 99), st.integers(0, 99)),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=150, deadline=None)
def test_lines_removed_doubled_swapped_or_moved_are_found(
    whole: tuple[Path, LogHead], steps: list[tuple[str, int, int]]
) -> None:
    folder, head = whole
    before = lines_of(folder)
    lines = list(before)
    for what, one, other in steps:
        if not lines:
            break
        a, b = one % len(lines), other % len(lines)
        if what == "remove":
            del lines[a]
        elif what == "double":
            lines.insert(b, lines[a])
        elif what == "swap":
            lines[a], lines[b] = lines[b], lines[a]
        else:
            lines.insert(b, lines.pop(a))
    assert bool(faults(lines, head)) == (lines != before)


def rehashed(line: bytes, **changes: object) -> bytes:
    """A line as a forger writes it: changed, and with the right hash."""
    entry = {**msgspec.json.decode(line), **changes}
    entry.pop("hash")
    return canonical({**entry, "hash": digest(canonical(entry))}) + b"\n"


def test_a_line_changed_with_its_hash_is_found_by_the_next(whole: tuple[Path, LogHead]) -> None:
    lines = lines_of(whole[0])
    lines[3] = rehashed(lines[3], action="tool.nothing")
    (told,) = faults(lines, whole[1])
    assert told.startswith("prevHash chain.broken")


def test_the_last_line_changed_with_its_hash_is_found_by_the_head(whole: tuple[Path, LogHead]) -> None:
    lines = lines_of(whole[0])
    lines[-1] = rehashed(lines[-1], action="tool.nothing")
    assert faults(lines, None) == []
    assert faults(lines, whole[1]) == ["hash chain.broken entry 8 is not the one of the head that is known"]


def test_a_line_alone_is_right_or_not_whatever_comes_before_it(whole: tuple[Path, LogHead]) -> None:
    first, second, *_ = lines_of(whole[0])
    stands = ChainCheck.at(second)
    assert isinstance(stands, ChainCheck) and (stands.seq, stands.hash) == (1, msgspec.json.decode(second)["hash"])
    for line, code in (
        (second.replace(b"mail", b"tail"), "chain.tampered"),
        (second[:-1], "chain.truncated"),
        (b"x\n", "schema.invalid"),
        (rehashed(first, prevHash="0" * 64), "chain.broken"),  # nothing comes before entry 0
    ):
        wrong = ChainCheck.at(line)
        assert isinstance(wrong, Fault) and wrong.code == code, line


def test_a_line_put_in_with_its_hash_is_found(whole: tuple[Path, LogHead]) -> None:
    lines = lines_of(whole[0])
    previous = msgspec.json.decode(lines[3])
    lines.insert(4, rehashed(lines[4], prevHash=previous["hash"], action="tool.more"))
    assert faults(lines, whole[1])


def follows(lines: list[bytes], **changes: object) -> bytes:
    """A line that goes on where these end."""
    last = msgspec.json.decode(lines[-1])
    return rehashed(lines[-1], seq=last["seq"] + 1, prevHash=last["hash"], **changes)


def removed(last: object) -> dict[str, object]:
    return {"metadata": {"interlingua": {"removed": [{"file": "audit-log.000000000000.jsonl", "last": last}]}}}


@pytest.mark.parametrize("first", [1, 3])
def test_only_a_note_that_is_right_says_what_was_removed(whole: tuple[Path, LogHead], first: int) -> None:
    lines = lines_of(whole[0])
    last = f"{first - 1}:{msgspec.json.decode(lines[first - 1])['hash']}"
    left = lines[first:]
    early = {"ts": "2001-01-01T00:00:00.000Z"}
    for changes, right in (
        ({"action": "audit.note", **removed(last)}, True),
        ({"action": "tool.call", **removed(last)}, False),
        ({"action": "audit.note", **removed(last), **early}, False),
        ({"action": "tool.call", **removed(last), **early}, False),
        ({"action": "audit.note", **removed(f"{first - 1}:{'0' * 64}")}, False),
        ({"action": "audit.note", "metadata": {"interlingua": {"removed": [last]}}}, False),
        ({"action": "audit.note", "metadata": {"interlingua": {"removed": last}}}, False),
        ({"action": "audit.note", "metadata": {"interlingua": last}}, False),
    ):
        told = faults([*left, follows(left, **changes)], None)
        assert any(f"missing before entry {first}" in each for each in told) is not right, changes
        assert bool(told) is not right, changes


def test_behind_a_first_line_that_is_no_entry_the_walk_goes_on(whole: tuple[Path, LogHead]) -> None:
    (told,) = faults([b"x\n", *lines_of(whole[0])[1:]], whole[1])
    assert "schema.invalid" in told


def test_a_line_that_is_cut_off_is_no_entry(whole: tuple[Path, LogHead], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(lines_of(whole[0]))[:-1])
    report = verify([path])
    assert report.entries == COUNT - 1 and [each.code for each in report.mistakes] == ["chain.truncated"]


def test_an_entry_dated_before_the_one_before_is_found(whole: tuple[Path, LogHead]) -> None:
    lines = lines_of(whole[0])[:2]
    lines[1] = rehashed(lines[1], ts="2001-01-01T00:00:00.000Z")
    assert faults(lines, None) == ["ts chain.broken it is dated before the entry before"]


def test_each_mistake_names_its_file_line_and_field(whole: tuple[Path, LogHead], tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(whole[0], folder)
    second = files_of(folder)[1]
    lines = second.read_bytes().splitlines(keepends=True)
    second.write_bytes(b"".join([lines[0].replace(b"mail", b"tail"), *lines[1:]]))
    (mistake,) = verify(files_of(folder), head=whole[1]).mistakes
    assert str(mistake) == f"{second}#L1:hash chain.tampered the line is not what was hashed: it was changed"


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (lambda files: files[0].unlink(), "seq chain.seq_gap entries 0 to 2 are missing before entry 3"),
        (lambda files: files[1].unlink(), "seq chain.seq_gap entries 3 to 5 are missing before entry 6"),
        (lambda files: files[-1].unlink(), "seq chain.truncated the log was cut off"),
        (lambda files: files[0].write_bytes(b""), "seq chain.seq_gap entries 0 to 2 are missing before entry 3"),
        (
            lambda files: shutil.copy(files[0], files[0].with_name("audit-log.000000000004.jsonl")),
            "seq chain.seq_gap entry 0 comes after entry 5",
        ),
        (
            lambda files: files[1].rename(files[1].with_name("audit-log.000000000002.jsonl")),
            "L1:seq chain.seq_gap the file is named after entry 2 and begins with 3",
        ),
    ],
)
def test_a_file_that_is_gone_emptied_doubled_or_renamed_is_found(
    whole: tuple[Path, LogHead], tmp_path: Path, what: Callable[[list[Path]], object], told: str
) -> None:
    folder = tmp_path / "log"
    shutil.copytree(whole[0], folder)
    what(files_of(folder))
    report = verify(files_of(folder), head=whole[1])
    assert any(told in str(mistake) for mistake in report.mistakes), report.mistakes


def test_older_files_may_be_elsewhere_if_their_last_entry_is_named(whole: tuple[Path, LogHead]) -> None:
    files = files_of(whole[0])
    last = verify(files[:1]).head
    assert last is not None
    assert verify(files[1:], after=last, head=whole[1]).mistakes == []
    assert verify(files[1:], after=LogHead(last.seq, "0" * 64)).mistakes
    assert verify(files[1:]).mistakes


def test_what_is_missing_at_the_end_is_told_at_the_last_line(whole: tuple[Path, LogHead], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for lines in (lines_of(whole[0])[:-1], []):
        path.write_bytes(b"".join(lines))
        report = verify([path], head=whole[1])
        assert [(each.line, each.code) for each in report.mistakes] == [(len(lines), "chain.truncated")]
        assert report.head == (LogHead(COUNT - 2, msgspec.json.decode(lines[-1])["hash"]) if lines else None)
    assert [each.line for each in verify([], head=whole[1]).mistakes] == [0]


@pytest.mark.parametrize("name", ["log.7.jsonl", "log.abcdefghijkl.jsonl", "log.٠٠٠٠٠٠٠٠٠٠٠٧.jsonl"])
def test_a_file_of_another_name_is_not_named_after_an_entry(
    whole: tuple[Path, LogHead], tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"".join(lines_of(whole[0])))
    assert verify([tmp_path / name], head=whole[1]).mistakes == []


def test_an_unsigned_entry_may_have_metadata_of_the_log(whole: tuple[Path, LogHead], tmp_path: Path) -> None:
    walk = ChainCheck(keyring=ring(tmp_path, EntrySigner(KEY)))
    assert walk.feed(rehashed(lines_of(whole[0])[0], metadata={"interlingua": {"removed": []}})) == []
    assert (walk.signed, walk.unsigned) == (0, 1)


def test_files_are_read_in_the_order_of_their_entries(whole: tuple[Path, LogHead]) -> None:
    files = files_of(whole[0])
    assert verify(logs(reversed(files))[1], head=whole[1]).mistakes == []


def test_a_line_in_other_bytes_is_found_unless_any_form_is_taken(whole: tuple[Path, LogHead], tmp_path: Path) -> None:
    lines = lines_of(whole[0])
    other = msgspec.json.encode(dict(reversed(msgspec.json.decode(lines[0]).items()))) + b"\n"
    doubled = lines[0].replace(b'{"$schema"', b'{"action":"tool.other","$schema"')
    for line, any_form, right in ((other, False, False), (other, True, True), (doubled, True, False)):
        path = tmp_path / "log.jsonl"
        path.write_bytes(line + b"".join(lines[1:]))
        assert (verify([path], head=whole[1], any_form=any_form).mistakes == []) == right
        assert verify([path], head=whole[1]).mistakes


def test_a_hash_in_another_place_of_its_line_is_found(whole: tuple[Path, LogHead]) -> None:
    lines = lines_of(whole[0])
    member = b'"hash":"%s",' % ChainCheck.at(lines[2]).hash.encode()  # type: ignore[union-attr]
    for key in (b'"$schema":', b'"hashAlg":"sha256",', b'"prevHash":', b'"seq":'):
        moved = lines[2].replace(member, b"")
        at = moved.index(key) + (len(key) if b"sha256" in key else 0)
        moved = moved[:at] + member + moved[at:]
        assert moved != lines[2] and msgspec.json.decode(moved) == msgspec.json.decode(lines[2])
        (told,) = faults([*lines[:2], moved, *lines[3:]], whole[1])
        assert told == " chain.tampered the line means what was hashed, in other bytes"


def test_what_is_no_audit_event_is_said_to_be_none(whole: tuple[Path, LogHead]) -> None:
    lines = lines_of(whole[0])
    deep = b"[" * 100_000 + b"]" * 100_000
    for bad in (b"", b"[]", b"null", b"{", b"\xff", deep, b'{"seq":1e400}', lines[4].rstrip() + b"x"):
        found = faults([*lines[:4], bad + b"\n", *lines[5:]], whole[1])
        assert found and all("schema.invalid" in each for each in found), bad[:20]


def test_the_number_of_mistakes_that_are_told_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"x\n" * 1000)
    report = verify([path])
    assert (len(report.mistakes), report.more) == (100, True)


def test_a_log_of_any_size_is_read_in_little_memory(
    whole: tuple[Path, LogHead], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["gateway.governance.audit.verify"], "MOST_MISTAKES", 10_000)
    path = tmp_path / "log.jsonl"
    with path.open("wb") as file:
        for _ in range(100):
            file.writelines(lines_of(whole[0])[:COUNT])  # every ninth line is wrong, and the walk goes on
        file.seek(8 * LONGEST, 1)  # a line of zeros that takes no room on disk
        file.write(b"\n")
    tracemalloc.start()
    report = verify([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(report, Report) and report.entries == 100 * COUNT
    assert "longer than" in report.mistakes[-1].what
    assert peak < 3 * LONGEST
