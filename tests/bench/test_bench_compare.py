"""Two versions are compared in turns: every figure is there, and a ratio is of two turns of one round."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bench import compare
from bench.__main__ import main
from bench.compare import BEFORE, NOW, WORKS, spread
from bench.stage import ROOT


def test_a_ratio_is_of_two_turns_of_one_round_and_its_spread_is_told() -> None:
    rounds = [{NOW: {"cpu": now}, BEFORE: {"cpu": before}} for now, before in ((1, 2), (30, 10), (5, 5))]
    assert spread(rounds, "cpu") == (1.0, 0.5, 3.0)
    assert spread([*rounds, {NOW: {"cpu": None}, BEFORE: {"cpu": 1}}], "cpu") is None


THE_COMMIT = f"""\
import os, sys
os.chdir({str(ROOT)!r})
os.execv(sys.executable, [sys.executable, "-m", "gateway", *sys.argv[1:]])
"""
"""A version of the gateway that does what this one does."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, which is where commits are looked for."""
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "__main__.py").write_text(THE_COMMIT)
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "All of it"]):
        who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True)
    monkeypatch.setattr(compare, "ROOT", tmp_path)
    return tmp_path


def test_this_version_is_compared_with_a_commit_that_is_gone_afterwards(
    repository: Path, forked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--compare", "HEAD", "--sizes", "tiny"]) == 0
    told = capsys.readouterr().out
    for work in WORKS:
        assert f"{work.title}, us a {work.unit}" in told
    assert "start to ready, s" in told
    asked = ["git", "worktree", "list"]
    trees = subprocess.run(asked, cwd=repository, capture_output=True, text=True, check=True).stdout
    assert len(trees.splitlines()) == 1


def test_a_commit_that_there_is_not_is_said(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--compare", "no-such-commit", "--sizes", "tiny"]) == 1
    assert "no-such-commit" in capsys.readouterr().err
