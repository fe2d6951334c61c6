"""What is forked off a process that has imported everything does what a process of its own would do."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.forker import LARGEST
from tests.support.forking import fork, standing_in

PROGRAM = """
import json, os, sys
import beside

if __name__ == "__main__":
    beside.said.append(sys.argv[1:])
    print(json.dumps([__name__, sys.argv, sys.path[0], os.getcwd(), os.environ.get("GIVEN"), beside.said]))
    print(sys.stdin.read().upper(), end="")
    print("ü", sys.stdout.encoding, file=sys.stderr)
    sys.stdout.buffer.write(b"end")
    sys.exit(int(sys.argv[1]))
"""
WAITS = """
import os, signal, sys, time

signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(7)))
print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "beside.py").write_text("said = []\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "waits.py").write_text(WAITS)
    return str(tmp_path / "program.py")


def told(command: Sequence[str], cwd: Path) -> tuple[int, bytes, bytes]:
    env = {**os.environ, "GIVEN": 'a "thing" ü', "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, input=b"some words", capture_output=True, check=False, timeout=100, cwd=cwd, env=env)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("flags", [[], ["-P"]])
def test_a_program_says_and_ends_as_one_of_its_own_and_keeps_nothing_of_the_one_before(
    program: str, flags: list[str], tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    for arguments in (["3", "a b", "ü"], ["0"]):
        command = [sys.executable, *flags, program, *arguments]
        fresh, forked = told(command, other), told(standing_in(command), other)
        if flags:  # it may not import what lies beside it
            assert fresh[0] == forked[0] == 1 and b"No module named 'beside'" in forked[2]
        else:
            assert forked == fresh and fresh[0] == int(arguments[0]) and fresh[1].endswith(b"SOME WORDSend")


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def waited(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    for _ in range(3000):
        if what():
            return
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.02)
    pytest.fail("it never was")


def test_a_stand_in_passes_a_signal_on_and_ends_as_the_program_does(program: str) -> None:
    command = standing_in([sys.executable, program.replace("program.py", "waits.py")])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert pid != process.pid
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b"asked to end\n" and process.wait(60) == 7
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL


def test_a_signal_that_comes_before_the_program_is_known_is_passed_on_to_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as program,
    ):
        listening.bind(str(path))
        listening.listen(1)
        with subprocess.Popen([*standing_in([sys.executable, "none.py"])[:-2], str(path), "none.py"]) as process:
            way, _ = listening.accept()
            with way:
                _, (*files, told), _, _ = socket.recv_fds(way, LARGEST, 4)
                process.send_signal(signal.SIGTERM)
                os.write(told, b"%d\n" % program.pid)
                assert program.wait(60) == -signal.SIGTERM
                os.write(told, b"7\n")
                assert process.wait(60) == 7
            for number in (*files, told):
                os.close(number)


def test_a_program_is_killed_when_nobody_stands_in_for_it_any_more(program: str) -> None:
    command = standing_in([sys.executable, program.replace("program.py", "waits.py")])
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as clock,
    ):
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        assert process.stdout.read() == b"", "its output is over, so it is"
        waited(lambda: gone(pid), clock)
        clock.kill()


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    with (tmp_path / "err").open("w+b") as err, open(os.devnull, "r+b") as nothing:
        files = (nothing.fileno(), nothing.fileno(), err.fileno())
        process = fork([str(tmp_path / "none.py")], files, env=dict(os.environ), cwd=tmp_path, python=sys.executable)
        assert process.wait(60) == 1
        assert b"none.py" in (tmp_path / "err").read_bytes()
