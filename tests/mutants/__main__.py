"""`python -m tests.mutants ROOM... [N]`: try all mutants of rooms (folders or files), or N that are drawn.

Exit codes: 0, 1 (a mutant survives and mutants.toml does not say why), 2 (wrong usage, or the tests fail unchanged).
"""

from __future__ import annotations

import os
import random
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.forks import Trial
from tests.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).with_name("mutants.toml")
WORKERS = (os.cpu_count() or 1) + 1
"""Much of the tests' time is waiting."""


def main(words: Sequence[str], root: Path = ROOT, data: Path = DATA) -> int:
    """See above. `root` is the repository, `data` the file of its rooms."""
    known = tomllib.loads(data.read_text(encoding="utf-8"))
    rooms = [word.strip("/") for word in words if not word.isdecimal()]
    tests = [next((given["tests"] for given in known["rooms"] if _below(room, given["paths"])), None) for room in rooms]
    if not tests or None in tests:
        print("ROOM is one of these, or below one:", *(path for given in known["rooms"] for path in given["paths"]))
        return 2
    found = [
        path for room in rooms for path in ([root / room] if room.endswith(".py") else (root / room).rglob("*.py"))
    ]
    files = sorted({str(path.relative_to(root)) for path in found})
    every = [mutant for file in files for mutant in mutants(root, file)]
    count = next((int(word) for word in words if word.isdecimal()), len(every))
    drawn = every if count >= len(every) else random.Random(0).sample(every, count)
    drawn.sort(key=lambda each: (each.file, each.line))

    reasons = {(each["file"], key): each["why"] for each in known.get("explained", []) for key in each["mutants"]}
    alive: list[Mutant] = []
    unexplained: list[Mutant] = []

    def survived(mutant: Mutant, how: str) -> None:
        alive.append(mutant)
        if (mutant.file, mutant.key) not in reasons:
            unexplained.append(mutant)
            print(f"{mutant.file}:{mutant.line}: {how}\n  - {mutant.old}\n  + {mutant.new}", flush=True)

    trial = Trial(root, drawn, WORKERS, survived)
    paths = sorted({str(path) for patterns in tests for test in patterns or [] for path in root.glob(test)})
    code = pytest.main(["-q", "-q", "-s", "-p", "no:cacheprovider", f"--rootdir={root}", *paths], plugins=[trial])
    if trial.wrong or code:
        print(f"nothing tried: {trial.wrong or f'pytest ended with {code}'}")
        return 2

    there = {(each.file, each.key) for each in (alive if drawn == every else every)}
    for file, key in reasons:
        if file in files and (file, key) not in there:
            print(f"{file}: explained, but gone or killed: {key}")
    explained = len(alive) - len(unexplained)
    print(
        f"{' '.join(rooms)}: {len(every)} mutants, {len(drawn)} tried, {len(drawn) - len(alive)} killed, "
        f"{explained} explained, {len(unexplained)} not"
    )
    return 1 if unexplained else 0


def _below(room: str, paths: Sequence[str]) -> bool:
    return any(room == path or room.startswith(f"{path}/") for path in paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
