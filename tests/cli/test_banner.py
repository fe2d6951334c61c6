"""How `serve` names the program in what it proposes to try."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from gateway.cli.banner import banner, called, example, lies
from gateway.config import load
from tests.support.processes import ROOT


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed program in a virtual environment that is not on the PATH, below the working directory."""
    folder = tmp_path / "my env" / "bin"
    folder.mkdir(parents=True)
    path = folder / "interlingua"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.chdir(tmp_path)
    return path


def test_it_is_called_by_its_name_where_it_is_on_the_path(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    assert called() == "interlingua"


def test_it_is_called_by_where_it_lies_else(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert called() == "'my env/bin/interlingua'"
    (program.parents[2] / "elsewhere").mkdir()
    monkeypatch.chdir(program.parents[2] / "elsewhere")
    assert called() == lies() == f"'{program}'"


def test_where_it_is_not_installed_python_runs_it(program: Path) -> None:
    program.unlink()
    assert called() == f"'{program.parent / 'python'}' -m gateway"


def test_what_is_to_be_tried_can_be_run_and_what_an_editor_is_told_is_a_full_path(program: Path) -> None:
    (program.parents[2] / "routes.yaml").write_text(
        "routes: [{name: a, target: {protocol: example, url: 'http://127.0.0.1:1'}}]\n"
    )
    config = load(Path("routes.yaml"))
    lines = banner(config, Path("routes.yaml"), "127.0.0.1", 8080, ["a"]).splitlines()
    assert "  'my env/bin/interlingua' run a \"Hello\" --gateway http://127.0.0.1:8080" in lines
    assert not [line for line in lines if line.startswith("  interlingua")]
    line = example(config.adapters["agent_client"], "http://127.0.0.1:8080", None, "a", document={}, prompt="")
    assert line.startswith(f"'{program}' stdio a ")


def test_it_fits_a_small_screen(program: Path) -> None:
    """Of the repository's own table."""
    shutil.copyfile(ROOT / "routes.yaml", "routes.yaml")
    agents = ["mailcomposer", "reporter", "gardener", "librarian", "counter"]
    lines = banner(load(Path("routes.yaml")), Path("routes.yaml"), "127.0.0.1", 8080, agents).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 100
