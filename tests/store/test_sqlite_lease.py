"""Which owners are dead."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.store import leases
from gateway.store.leases import identify, process_start
from gateway.store.sqlite import lease, schema


def test_a_process_is_told_from_a_later_one_of_the_same_pid() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        started = process_start(child.pid)
        assert started and started == process_start(child.pid)
        child.kill()
        deadline = time.monotonic() + 30
        while process_start(child.pid) is not None:  # a zombie, for we have not waited for it
            assert time.monotonic() < deadline
        child.wait()
        assert process_start(child.pid) is None
    finally:
        child.kill()
        child.communicate()


LEADERLESS = """
import ctypes, os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0))).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit, of this thread alone
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads of Linux")
def test_a_process_that_is_killed_lives_until_its_last_thread_has_let_go_of_its_files() -> None:
    """Its first one may be a zombie by then."""
    child = subprocess.Popen([sys.executable, "-c", LEADERLESS], stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 30
        while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
        assert process_start(child.pid)
        assert child.stdin is not None
        child.stdin.close()
        while process_start(child.pid) is not None:
            assert time.monotonic() < deadline
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("row", "dead"),
    [
        ({}, False),
        ({"expires_at": 0.0}, False),
        ({"expires_tick": 0.0}, False),
        ({"expires_at": 0.0, "expires_tick": 0.0}, True),
        ({"started": "1"}, True),
        ({"started": ""}, False),
        ({"pid": 2**22 + 5}, True),
        ({"pid": 2**22 + 5, "host": "elsewhere"}, False),
        ({"pid": 2**22 + 5, "host": "elsewhere", "expires_at": 0.0}, True),
        ({"pid": "ours"}, True),
    ],
)
def test_an_owner_is_dead_when_its_process_or_its_lease_is_gone(row: dict[str, Any], dead: bool) -> None:
    me = identify()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    connection = schema.connect_writer(None)
    try:
        values = {
            "owner": "o",
            "host": me.host,
            "pid": child.pid,
            "started": process_start(child.pid),
            "expires_at": time.time() + 99,
            "expires_tick": time.monotonic() + 99,
        } | row
        if values["pid"] == "ours":
            values["pid"] = me.pid
        cursor = connection.cursor()
        cursor.execute(f"INSERT INTO leases ({', '.join(values)}) VALUES (:{', :'.join(values)})", values)
        assert lease.is_dead(cursor, "o", me) is dead
        assert lease.is_dead(cursor, "unheard of", me) is True
        assert lease.is_dead(cursor, me.owner, me) is False
    finally:
        connection.close()
        child.kill()
        child.communicate()


def test_a_lease_that_has_run_out_is_held_since_it_was_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(leases, "_awake_or_asleep", lambda: now[0])
    held = leases.HeldLease(10.0)
    assert held.since == 0, "it is not taken yet"
    for moment in (100.0, 103.0, 113.0):
        now[0] = moment
        with held.extending():
            pass
        assert held.since == 0
    for moment in (123.5, 200.0):
        now[0] = moment
        assert held.since == math.inf
        with held.extending():
            now[0] += 1.0
        assert held.since == moment
    with pytest.raises(OSError), held.extending():
        raise OSError
    now[0] = 209.9
    assert held.since == 200.0
    now[0] = 210.1
    assert held.since == math.inf
