"""The mutation runner on a room of its own: what its tests notice is killed, the rest is listed or explained."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOM = """
import functools

LIMITS = {"small": 1, "large": 9}


@functools.lru_cache
def fits(size, name="large"):
    if size < 0:
        raise ValueError("negative")
    return size <= LIMITS[name]


def unused():
    return LIMITS
"""
TESTS = """
import pytest

from tiny.room import fits


def test_sizes():
    if not fits(9):
        pytest.exit("no failure that pytest reports")
    assert fits(8) and not fits(10)
    assert fits(1, "small") and not fits(2, "small")


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError):
        fits(-1)
"""
DATA = """
[[rooms]]
paths = ["tiny"]
tests = ["tiny_tests/test_*.py"]
"""
SURVIVES = "fits: if size < 0:  =>  if size <= 0:"
EXPLAINED = f"""
[[explained]]
file = "tiny/room.py"
why = "no size is 0"
mutants = ["{SURVIVES}", "fits: if size < 0:  =>  if size < 1:", "a change  =>  that is gone"]
"""


def tried(root: Path) -> tuple[int, list[str]]:
    """The exit code, and what is printed after the tests themselves."""
    program = (
        "import pathlib, sys, tests.mutants.__main__ as made; root = pathlib.Path(sys.argv[1]);"
        "sys.exit(made.main(['tiny'], root, root / 'mutants.toml'))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(ROOT)])}
    command = [sys.executable, "-P", "-c", program, str(root)]
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=150, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_what_the_data_names_is_there() -> None:
    data = tomllib.loads((ROOT / "tests/mutants/mutants.toml").read_text(encoding="utf-8"))
    named = [name for room in data["rooms"] for name in room["paths"] + room["tests"]]
    named += [entry["file"] for entry in data["explained"]]
    assert [name for name in named if not list(ROOT.glob(name))] == []


def test_what_survives_is_listed_unless_it_is_explained(tmp_path: Path) -> None:
    files = {"tiny/__init__.py": "", "tiny/room.py": ROOM, "tiny_tests/test_room.py": TESTS, "mutants.toml": DATA}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    code, lines = tried(tmp_path)
    assert code == 1, lines
    survivors = [lines[n + 1 : n + 3] for n, line in enumerate(lines) if line == "tiny/room.py:9: survives"]
    assert ["  - if size < 0:", "  + if size <= 0:"] in survivors
    assert lines[-1] == "tiny: 10 mutants, 10 tried, 7 killed, 0 explained, 3 not", lines
    assert "tiny/room.py:15: no test runs it" in lines

    (tmp_path / "mutants.toml").write_text(DATA + EXPLAINED, encoding="utf-8")
    (tmp_path / "tiny/room.py").write_text(ROOM.partition("\n\ndef unused")[0], encoding="utf-8")
    code, lines = tried(tmp_path)
    assert code == 0, lines
    assert lines[-1].endswith("2 explained, 0 not")
    assert "tiny/room.py: explained, but gone or killed: a change  =>  that is gone" in lines
