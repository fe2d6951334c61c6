"""The package that the image is built of: everything that the gateway reads is in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.peers import PEERS, peer_python
from tests.support.processes import ROOT, environment

BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
TRY = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import adapters, gateway
from gateway.cli import main
assert all(module.__file__.startswith(sys.path[0]) for module in (adapters, gateway)), "that is another one"
main()
"""
CHECKED = ROOT / "examples" / "governed" / "routes.yaml"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what the wheel has, built of what the image's Dockerfile copies."""
    source, built, site = (tmp_path_factory.mktemp(name) for name in ("source", "built", "site"))
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    for name in " ".join(re.findall(r"^COPY ([^-].*) \S+$", dockerfile, re.MULTILINE)).split():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(ROOT / name, source / name)
    command = [str(peer_python("build")), "-c", BUILD, str(built)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=source, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    yield site


def test_every_module_is_in_it(installed: Path) -> None:
    for room in ("gateway", "adapters"):
        wanted = {file.relative_to(ROOT) for file in (ROOT / room).rglob("*.py")}
        assert {file.relative_to(installed) for file in (installed / room).rglob("*.py")} == wanted


def test_a_governed_table_is_read_with_it_alone(installed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-c", TRY, str(installed), "check", str(CHECKED)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment(), timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "gardener -> agent_client" in done.stdout
    served = {line.rpartition(" <- ")[2] for line in done.stdout.splitlines() if " <- " in line}
    assert served == {file.parent.name for file in (ROOT / "adapters").glob("*/__init__.py")} - {"example"}


def test_the_backend_that_builds_it_here_is_the_one_that_it_wants() -> None:
    (wanted,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert wanted in (PEERS / "build.txt").read_text().splitlines()
