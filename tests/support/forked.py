"""A command that is a program on an SDK, forked off a process that has imported what it needs.

`python -I -S forked.py SOCKET ARGUMENT...`, where SOCKET is a `forker.py`'s and the arguments are what comes after the
interpreter. It stands for the program: the program has its files and environment, what ends it ends the program, it
passes SIGTERM, SIGINT and SIGHUP on, and it ends as the program does. What it can't show is what a program's own place
in the tree of processes does: tests of that run the program itself.
"""

import array
import contextlib
import json
import os
import signal
import socket
import sys

PASSED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    path, *arguments = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)  # until it is known to whom
    ours, theirs = socket.socketpair()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way:
        way.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        way.connect(path)
        job = json.dumps({"arguments": arguments, "env": dict(os.environ), "cwd": os.getcwd()})
        files = array.array("i", [0, 1, 2, theirs.fileno()])
        way.sendmsg([job.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    theirs.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # the program's alone now: who waits for their end waits for its end
        os.dup2(nothing, number)
    told = ours.makefile("rb")
    pid = int(told.readline())

    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    for one in PASSED:
        signal.signal(one, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED)
    code = int(told.readline())
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no other meaning
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
