"""Agents without a protocol, one for each habit: `python -I -S agent.py HABIT [argument ...]`."""

import os
import signal
import sys


def write(data: bytes, to: int = 1) -> None:
    while data:
        data = data[os.write(to, data) :]


def wait_for_end() -> None:
    while os.read(0, 65536):
        pass


def deaf() -> None:
    """Says lines for ever and never listens."""
    while True:
        write(b"still here\n" * 100)


def late() -> None:
    """Does not listen until SIGUSR1, then sends back what it hears."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    write(b"ready\n")
    signal.sigwait([signal.SIGUSR1])
    while data := os.read(0, 65536):
        write(data)


def gush(count: str) -> None:
    """Says numbered lines, as fast as they are taken."""
    lines = [b'{"jsonrpc":"2.0","method":"session/update","params":{"n":%d,"text":"' % n for n in range(int(count))]
    for at in range(0, len(lines), 500):
        write(b"".join(line + b'token "}}\n' for line in lines[at : at + 500]))


def big(size: str) -> None:
    """Says one line of so many bytes, then a short one."""
    write(b"x" * int(size) + b"\n" + b"after\n")
    wait_for_end()


def complain(count: str) -> None:
    """Floods stderr, says a line, and fails."""
    for at in range(0, int(count), 1000):
        write(b"".join(b"complaint %d\n" % n for n in range(at, at + 1000)), to=2)
    write(b"done\n")
    sys.exit(7)


def mute() -> None:
    """Closes its output, listens on and tells stderr what it heard."""
    os.close(1)
    while data := os.read(0, 65536):
        write(b"heard " + data, to=2)


def closed_input() -> None:
    """Closes its input and speaks on once somebody tells it by SIGUSR1."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.close(0)
    write(b"ready\n")
    signal.sigwait([signal.SIGUSR1])
    write(b"still talking\n")
    signal.sigwait([signal.SIGUSR1])


def leave_child() -> None:
    """Ends, and leaves a process in a session of its own that holds all pipes open and ignores SIGTERM."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write(b"child\n")
        signal.pause()
    os.read(0, 1)


def inherited() -> None:
    """Says what it was born with: open files, whether it leads a session, a variable, its folder."""
    files = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]
    print(files, os.getsid(0) == os.getpgrp() == os.getpid(), os.environ.get("GIVEN"), os.getcwd(), flush=True)
    wait_for_end()


HABITS = (deaf, late, gush, big, complain, mute, closed_input, leave_child, inherited)
{habit.__name__: habit for habit in HABITS}[sys.argv[1]](*sys.argv[2:])
