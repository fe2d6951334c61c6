"""The program's face: help, version, schema, and what wrong usage is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import interlingua
from tests.support.processes import ROOT, environment

HEAVY = ("httptools", "httpx2", "jsonschema", "msgspec", "opentelemetry", "pydantic", "rich", "starlette", "uvicorn")


def test_help_names_every_command() -> None:
    done = interlingua("--help", fresh=True)
    assert done.returncode == 0
    for command in ("serve", "check", "agents", "run", "schema"):
        assert f"  {command} " in done.stdout


@pytest.mark.parametrize("group", [[], ["audit"]])
def test_help_says_in_a_line_what_each_command_does(group: list[str]) -> None:
    done = interlingua(*group, "--help", env={"COLUMNS": "80"})
    assert done.returncode == 0 and "..." not in done.stdout.partition("Commands:")[2]


def test_help_imports_nothing_that_only_a_command_needs() -> None:
    code = f"import sys, gateway.cli.commands; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=150,
    )
    assert done.stdout.strip() == "[]"


def test_garbage_is_collected_once_the_work_begins_without_what_was_there_before() -> None:
    code = (
        "import gc, gateway.cli\n"
        "from unittest import mock\n"
        "with mock.patch('gateway.cli.commands.app', lambda **_: print(gc.isenabled())): gateway.cli.main()\n"
        "from gateway.cli import loop\n"
        "async def work(): return gc.isenabled(), gc.get_freeze_count() > 10_000\n"
        "print(loop.run(work()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=150,
    )
    assert (done.stdout.split("\n")[:2], done.stderr) == (["False", "(True, True)"], "")


def test_the_version_is_printed() -> None:
    done = interlingua("--version", fresh=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_schema_prints_the_published_schema() -> None:
    done = interlingua("schema")
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads((ROOT / "docs" / "schemas" / "routes.schema.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["swerve"], "No such command"),
        (["run", "mailcomposer", "Hello", "--input", "{}"], "not both"),
        (["run", "mailcomposer", "--input", "{]"], "--input {]"),
        (["run", "mailcomposer", "--input", "nothing.json"], "--input nothing.json: there is no such file"),
        (["serve", "--port", "99999"], "--port"),
        (["serve", "--port", "http"], "--port"),
        (["run", "a", "b", "--routes", "x.yaml", "--gateway", "http://x"], "give --routes or --gateway, not both"),
        (["agents", "--gateway", "http://["], "http://[ is no URL: Invalid IPv6 URL"),
        (["runs", "--gateway", "http://127.0.0.1:99999"], "http://127.0.0.1:99999 is no URL: Port out of range"),
        (["stdio", "--gateway", "127.0.0.1:8080"], "'127.0.0.1:8080' is no http:// URL like http://127.0.0.1:8080"),
        (["agents", "--gateway", "ftp://a"], "'ftp://a' is no http:// URL like http://127.0.0.1:8080"),
        (["revoke", "a", "--gateway", "http://"], "'http://' is no http:// URL like http://127.0.0.1:8080"),
        (["run", "a", "\udcff"], "'[PROMPT]': not UTF-8"),
        (["run", "a", "b", "--answer", "c", "--answer", "\udcff"], "'--answer': not UTF-8"),
        (["cancel", "0123", "--reason", "\udcff"], "'--reason': not UTF-8"),
        (["run", "a", "b"], "there is no routes.yaml here; name one with --routes FILE"),
        (["agents", "--routes", "missing.yaml"], "missing.yaml: no such file or directory"),
        (["serve", "--log-level", "loud"], "'loud' is not one of 'debug', 'info', 'warning'"),
        (["stdio", "--log-level", "loud"], "'loud' is not one of 'debug', 'info', 'warning'"),
        (["serve", "missing.yaml"], "missing.yaml: no such file or directory"),
        (["serve"], "there is no routes.yaml here; name the route table that you mean"),
        (["manifest", "echo"], "there is no routes.yaml here; name the route table that you mean"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_why(arguments: list[str], told: str, tmp_path: Path) -> None:
    done = interlingua(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_prompt_that_is_no_text_is_wrong_usage_too(tmp_path: Path) -> None:
    done = interlingua("run", "parrot", "-", cwd=tmp_path, stdin=b"a\xffb")
    assert done.returncode == 2 and "standard input is not UTF-8: byte 1 is wrong" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_says_what_a_right_file_says(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "inbound: {agent_connect: {path: /connect}}\n"
        "routes: [{name: a, match: {protocol: agent_connect, metadata: {team: x}},"
        " target: {protocol: agent_protocol, url: 'http://x:1', agent: b}}]\n"
    )
    done = interlingua("check", "r.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "r.yaml: no mistakes; 1 agent, 1 protocol served",
        "  a -> agent_protocol http://x:1 (b)  only agent_connect, team=x",
        "  /connect <- agent_connect",
    ]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:///routes.yaml", "cannot open the store {folder}/routes.yaml: file is not a database"),
        ("sqlite:///no/such/x.db", "cannot open the store {folder}/no/such/x.db: unable to open database file"),
        ("sqlite:////tmp", "cannot open the store /tmp: it is a folder"),
        ("sqlite:////", "cannot open the store /: it is a folder"),
    ],
)
def test_check_warns_about_a_store_that_serve_could_not_open(url: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(f"store: {{url: '{url}'}}\n")
    (tmp_path / "routes.yaml").chmod(0o600)
    before = sorted(tmp_path.iterdir())
    done = interlingua("check", cwd=tmp_path)
    assert (done.returncode, done.stderr, sorted(tmp_path.iterdir())) == (0, "", before)
    assert f"caution: routes.yaml:1 store.url: {told.format(folder=tmp_path)}" in done.stdout
    served = interlingua("serve", "--port", "0", cwd=tmp_path)
    assert served.returncode == 2
    assert served.stderr.splitlines()[-1] == f"the gateway cannot start: {told.format(folder=tmp_path)}"


def test_check_prints_every_mistake_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text("routes:\n  - name: a b\n    target: {protocol: mpc}\n    tmeout: 3\n")
    done = interlingua("check", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "routes.yaml:2 routes[0].name",
        "routes.yaml:3 routes[0].target.protocol",
        "routes.yaml:4 routes[0].tmeout",
    ]
    assert lines[1].startswith("routes.yaml:3 routes[0].target.protocol: no adapter 'mpc'; have ")


def test_check_of_a_missing_file_is_one_line(tmp_path: Path) -> None:
    done = interlingua("check", "nowhere.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "nowhere.yaml: no such file or directory\n")
