"""What a start imports: a gateway that is ready has loaded what it needs by then, and nothing for later.

A start takes as long as its imports. Modules are counted, since seconds are the machine's: on Python 3.11 they are
624 for `serve` with every protocol served, 621 with one, and 464 for `stdio --gateway`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.support.processes import ROOT, Gateway, environment

AT_FIRST_USE = {
    "aiohappyeyeballs": "an agent is called",
    "asyncpg": "the store is PostgreSQL",
    "cryptography": "an audit log is written, a token or a certificate read",
    "httpx2": "the command line calls a gateway",
    "jsonschema": "a value is held against a schema",
    "jwt": "a door takes signed tokens",
    "opentelemetry": "telemetry has an exporter",
    "regex": "a schema has a pattern",
    "rich": "something is shown at a terminal",
}
"""Libraries that no start needs, and when they are loaded."""

TABLE = """\
routes:
  - name: away
    target: {protocol: agent_connect, url: "http://127.0.0.1:9"}
"""
IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)
PROFILED = {"PYTHONPROFILEIMPORTTIME": "1"}


DOOR = re.compile(r"adapters\.(?!example)\w+\.inbound$", re.MULTILINE)
"""Inbound halves that the first request for one of their paths loads."""


def loaded(told: str, budget: int) -> set[str]:
    modules = set(IMPORTED.findall(told))
    assert 300 < len(modules) <= budget, len(modules)
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize(
    ("inbound", "budget"), [("", 639), ("inbound: {agent_connect: {}}\n", 636)], ids=["all", "one"]
)
def test_a_gateway_that_is_ready_has_loaded_nothing_for_later(inbound: str, budget: int, tmp_path: Path) -> None:
    with Gateway(inbound + TABLE, tmp_path, env=PROFILED, fresh=True) as gateway:
        assert httpx2.get(f"{gateway.url}/readyz", trust_env=False).status_code == 200
        assert loaded(gateway.process.stderr(), budget).isdisjoint(AT_FIRST_USE)
        assert DOOR.findall(gateway.process.stderr()) == []
        assert httpx2.get(f"{gateway.url}/agent-connect/agents/none", trust_env=False).status_code == 404
        assert set(DOOR.findall(gateway.process.stderr())) == {"adapters.agent_connect.inbound"}


def test_an_editors_pipe_loads_neither_the_server_nor_the_store_nor_what_reads_a_route_table() -> None:
    told = interlingua("stdio", "away", "--gateway", "http://127.0.0.1:9", env=PROFILED, fresh=True).stderr
    assert loaded(told, 480).isdisjoint({*AT_FIRST_USE, "uvicorn", "_sqlite3", "yaml"})


def test_an_operators_command_loads_what_shows_tables_at_a_terminal_alone() -> None:
    told = interlingua("runs", "--gateway", "http://127.0.0.1:9", env=PROFILED, fresh=True).stderr
    assert "rich" not in {module.partition(".")[0] for module in IMPORTED.findall(told)}


def test_nothing_is_imported_before_ctrl_c_is_handled() -> None:
    before = "import __future__, signal, sys; before = {*sys.modules}"
    command = [sys.executable, "-c", f"{before}; import gateway.cli; print({{*sys.modules}} - before)"]
    told = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"[\w.]+", told)) == {"gateway", "gateway.cli"}


COMPILED = """\
import sys
told = []
def note(event, arguments):
    if event == "exec" and arguments[0].co_filename == "<string>":
        told.append(None)
sys.addaudithook(note)
import gateway.cli.serve, adapters.agent_context.inbound
print(len(told))
"""


def test_the_classes_of_a_start_are_made_without_compiling_source() -> None:
    """A dataclass compiles up to six functions, an annotation that is a string itself, where a model or a struct asks
    for its type. 270 are of libraries, fewer with Python 3.13.
    """
    command = [sys.executable, "-c", COMPILED]
    told = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True).stdout
    assert 100 < int(told) <= 420
