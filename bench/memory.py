"""What a gateway's memory is after so many short runs: `python -m bench.memory [--runs N...] [--threads]`.

The gateway is a process of its own with its store in a file, and the runs are those of an Agent Connect agent that
answers at once, eight at a time. *Resident* is what the system counts for the process; *heap* is the part of it that it
has written itself (`Anonymous` of /proc/PID/smaps_rollup, Linux only). A gateway that kept something of each run would
grow with their number.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from bench.stage import Broken, Child, Stage

STEPS = (0, 5_000, 10_000, 20_000, 40_000)
AT_ONCE = 8
JOB = 1000
"""Runs of one job of the load."""
DOOR = "/agent-connect"
BODY = '{"agent_id": "echo", "input": {"message": "hello"}}'


def heap(child: Child) -> int | None:
    """The memory in bytes that a process has written itself; None where the system does not tell."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{child.popen.pid}/smaps_rollup").read_text().splitlines()
        found = (line.split() for line in lines)
        return next((int(words[1]) * 1024 for words in found if words[0] == "Anonymous:"), None)
    return None


def measure(steps: tuple[int, ...], *, threads: bool) -> list[tuple[int, int, int | None]]:
    """(runs, resident bytes, heap bytes) after each step. `threads`: each run is on a new thread. Raises Broken."""
    found: list[tuple[int, int, int | None]] = []
    with Stage(()) as stage, stage.gateway() as started:
        gateway = started.child
        done = 0
        for step in steps:
            while done < step:
                count = min(JOB, step - done)
                job: dict[str, Any] = {"port": stage.port, "body": BODY, "connections": AT_ONCE}
                if threads:
                    stage.do(kind="turns", prefix=DOOR, threads=count, **job)
                else:
                    stage.do(kind="posts", path=f"{DOOR}/runs/wait", count=count, **job)
                done += count
            gateway.at_rest()
            found.append((step, gateway.rss(), heap(gateway)))
            print(_line(*found[-1]), flush=True)
    return found


def _line(runs: int, resident: int, written: int | None) -> str:
    shown = "-" if written is None else f"{written / 1e6:.1f}"
    return f"{runs:>8} runs: resident {resident / 1e6:.1f} MB, heap {shown} MB"


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, nargs="+", default=STEPS, metavar="N", help="after how many to look")
    parser.add_argument("--threads", action="store_true", help="each run on a thread of its own")
    options = parser.parse_args(argv)
    try:
        measure(tuple(sorted(options.runs)), threads=options.threads)
    except Broken as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
