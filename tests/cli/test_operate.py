"""`interlingua runs`, `watch`, `answer`, `cancel` and `top`: an operator at a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import interlingua
from tests.support.processes import PROGRAM, ROOT, Gateway, free_port, start

TABLE = f"""
operators: {{clients: [{{name: olga, token: of-olga}}]}}
routes:
  - name: gardener
    target: {{protocol: agent_client, command: ["{sys.executable}", "{ROOT / "examples" / "agents" / "gardener.py"}"]}}
"""
TOKEN = {"INTERLINGUA_TOKEN": "of-olga"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(TABLE, tmp_path_factory.mktemp("operate")) as running:
        yield running


def asking(gateway: Gateway, message: str = "a rose") -> str:
    """The id of a run whose question waits."""
    with httpx2.Client(base_url=f"{gateway.url}/agent-connect", trust_env=False, timeout=60) as http:
        body = {"agent_id": "gardener", "input": {"message": message}}
        run = str(http.post("/runs", json=body).json()["run_id"])
        assert http.get(f"/runs/{run}/wait", params={"timeout": 60}).json()["run"]["status"] == "interrupted"
        return run


def test_a_run_is_listed_watched_and_answered(gateway: Gateway) -> None:
    run = asking(gateway, "a \x1b[31mrose")
    there = ["--gateway", gateway.url]
    listed = interlingua("runs", "--status", "interrupted", "--agent", "gardener", *there, env=TOKEN)
    assert [json.loads(line)["id"] for line in listed.stdout.splitlines()] == [run]
    with start([*PROGRAM, "watch", run[-8:], *there], TOKEN) as watching:
        watching.wait_until(lambda: "permission" in watching.stdout(), "shown the question")
        wrong = interlingua("answer", run, "burn", *there, env=TOKEN)
        assert wrong.returncode == 3 and "plant (Plant it)" in wrong.stderr
        right = interlingua("answer", run[-8:], "Plant it", *there, env=TOKEN)
        assert right.returncode == 0, right.stderr
        assert watching.wait(60) == 0
        said = watching.stdout()
        assert "I would plant a" in said and "It grows." in said and said.rstrip().endswith("success")
        assert "\x1b" not in said
    again = interlingua("answer", run, "plant", *there, env=TOKEN)
    assert again.returncode == 1 and "asks nothing: it is success" in again.stderr


def test_a_run_is_cancelled_and_a_question_declined(gateway: Gateway) -> None:
    there = ["--gateway", gateway.url]
    run = asking(gateway)
    assert interlingua("cancel", run, "--reason", "winter", *there, env=TOKEN).returncode == 0
    watched = interlingua("watch", run, *there, env=TOKEN)
    assert watched.returncode == 1 and watched.stdout.rstrip().endswith("cancelled: winter")
    run = asking(gateway)
    assert interlingua("answer", run, *there, env=TOKEN).returncode == 2
    assert interlingua("answer", run, "--decline", *there, env=TOKEN).returncode == 0
    assert "leave the bed" in interlingua("watch", run, *there, env=TOKEN).stdout
    shown = interlingua("top", "--once", *there, env=TOKEN).stdout
    assert "gardener" in shown and "agent_client" in shown and "cancelled" in shown


def test_what_cannot_be_had_is_one_line(gateway: Gateway, tmp_path: Path) -> None:
    there = ["--gateway", gateway.url]
    for argv, env, code, line in (
        (["watch", "nonesuch", *there], TOKEN, 2, "no runs have nonesuch in their id"),
        (["runs", "--status", "odd", *there], TOKEN, 1, "each is one of"),
        (["runs", *there], {}, 1, "a token is missing"),
        (["runs", "--gateway", f"http://127.0.0.1:{free_port()}"], TOKEN, 1, "no gateway answers"),
    ):
        done = interlingua(*argv, env=env)
        assert done.returncode == code and len(done.stderr.splitlines()) == 1, done.stderr
        assert line in done.stderr
