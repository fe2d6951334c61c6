"""`interlingua audit`: is an audit log what was written, and the keyring that checks its signatures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gateway.cli import loop
from gateway.cli.codes import FAILED, OK, USAGE, count, leave
from gateway.core.errors import Invalid, NotFound
from gateway.governance.audit import EntrySigner, Keyring, LogHead, Report, logs, verify
from gateway.governance.audit.heads import path_for, stored_heads
from gateway.governance.audit.heads import read as read_pointer
from gateway.governance.audit.keys import keyring


def verify_log(
    paths: Sequence[Path],
    *,
    head: str | None = None,
    store: str | None = None,
    name: str | None = None,
    pointer: Path | None = None,
    keys: Path | None = None,
    after: str | None = None,
    any_form: bool = False,
) -> int:
    """Print every mistake and return FAILED, or what was found to be right and OK. Leaves with USAGE.

    Where there are several logs, one of each process, all are checked.
    """
    if sum(given is not None for given in (head, store, pointer)) > 1:
        leave(USAGE, "give one of --head, --store and --pointer")
    if name is not None and store is None:
        leave(USAGE, "--name is a log's name in a store: give --store, too")
    try:
        ring = Keyring.load(keys) if keys is not None else None
        given, before = (LogHead.parse(one) if one is not None else None for one in (head, after))
        stored = _stored(store, name) if store is not None else {}  # before the files, which may be growing
    except (ValueError, Invalid) as error:
        leave(USAGE, str(error))
    except NotFound as error:
        leave(FAILED, str(error))
    found = logs(paths)
    if not found:
        leave(FAILED, f"there is no audit log in {', '.join(map(str, paths))}")
    if len(found) > 1 and (head is not None or after is not None or pointer is not None):
        leave(USAGE, "--head, --after and --pointer are of one log, and these are several: give the files of one")
    codes = []
    for number, files in found.items():
        if len(found) > 1:
            print(f"{files[-1]}:")
        signed = pointer
        if signed is None and head is None and store is None:
            beside = path_for(files[-1])
            signed = beside if files[-1].suffix == ".jsonl" and beside.exists() else None
        known = read_pointer(signed, ring) if signed is not None else given or stored.get(number)
        report = verify(files, after=before, head=known, keyring=ring, any_form=any_form)
        codes.append(_told(report, ring=ring, known=known, pointer=signed))
    for number in stored.keys() - found.keys():
        print(f"log {number} is not there, and entry {stored[number].seq} of it is known to have been written")
        codes.append(FAILED)
    return max(codes)


def _told(report: Report, *, ring: Keyring | None, known: LogHead | None, pointer: Path | None) -> int:
    """Print what was found. Returns the exit code."""
    if report.mistakes:
        for mistake in report.mistakes:
            print(mistake)
        print(f"{count(len(report.mistakes), 'mistake')}{' or more' if report.more else ''}", file=sys.stderr)
        return FAILED
    print(_summary(report, signatures=ring is not None, known=known is not None, pointer=pointer))
    return OK


def print_keyring(files: Sequence[Path]) -> int:
    try:
        print(keyring(*(EntrySigner.load(file) for file in files)).decode(), end="")
    except Invalid as error:
        leave(USAGE, str(error))
    return OK


def _stored(url: str, name: str | None) -> dict[int, LogHead]:
    path = url.removeprefix("sqlite:///")
    if path != url and not Path(path).exists():
        raise NotFound(f"{path}: no such store")  # looking into it would make it
    return loop.run(stored_heads(url, name))


def _summary(report: Report, *, signatures: bool, known: bool, pointer: Path | None) -> str:
    entries, files = count(report.entries, "entry", "entries"), count(report.files, "file")
    lines = [f"no mistakes: {entries} in {files}{f', the last is {report.head}' if report.head else ''}"]
    if report.removed is not None:
        lines.append(f"entries up to {report.removed.seq} were removed as too old, as the log says itself")
    if pointer is not None:
        lines.append(f"{pointer} names an entry of it{'' if signatures else ', and its signature was not checked'}")
    if not signatures:
        lines.append("signatures were not checked (--keyring)")
    elif report.unsigned:
        lines.append(f"{report.signed} are signed; {report.unsigned} before the first of them are not")
    if not known:
        lines.append("an end that was cut off would not be seen without the newest entry (--head, --store, --pointer)")
    return "\n".join(lines)
