"""`interlingua revoke` at a running gateway."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import interlingua
from tests.support.processes import ROOT, Gateway, start

ROUTES = """\
inbound:
  agent_connect: {}
  agent_context:
    access:
      clients:
        - {name: operator, token: operator-token, may: [revoke, read]}
        - {name: user, token: user-token}
      anonymous: [register]
routes: []
"""


def test_an_agent_that_joined_is_revoked_with_the_right_to_and_restored(tmp_path: Path) -> None:
    with Gateway(ROUTES, tmp_path) as gateway:
        script, address = ROOT / "examples/joining/analyst.py", f"{gateway.url.replace('http', 'ws')}/agent-context/ws"
        with start([sys.executable, str(script), address]) as analyst:
            analyst.wait_until(lambda: "registered" in analyst.stdout(), "registered")
            here = ("--gateway", gateway.url)
            assert "analyst" in interlingua("agents", *here).stdout

            for token in ("user-token", ""):
                denied = interlingua("revoke", "analyst", *here, env={"INTERLINGUA_TOKEN": token})
                assert (denied.returncode, denied.stdout) == (1, "") and "may not" in denied.stderr
            assert "analyst" in interlingua("agents", *here).stdout

            operator = {"INTERLINGUA_TOKEN": "operator-token"}
            done = interlingua("revoke", "analyst", "--reason", "it shouts", *here, env=operator)
            assert (done.returncode, done.stdout, done.stderr) == (0, "analyst: revoked\n", "")
            assert "analyst" not in interlingua("agents", *here).stdout
            assert "operator revokes the access of agent analyst: it shouts" in gateway.process.stderr()

            done = interlingua("revoke", "analyst", "--restore", *here, env=operator)
            assert (done.returncode, done.stdout) == (0, "analyst: restored\n")
            assert "analyst" in interlingua("agents", *here).stdout

            done = interlingua("revoke", "analist", *here, env=operator)
            assert done.stdout == "analist: revoked, although there is no such agent now\n"


@pytest.mark.parametrize(("url", "code"), [("http://127.0.0.1:1", 1), ("no address", 2)])
def test_a_gateway_that_is_not_there_is_told(url: str, code: int) -> None:
    done = interlingua("revoke", "analyst", "--gateway", url)
    assert (done.returncode, done.stdout) == (code, "") and "Traceback" not in done.stderr and url in done.stderr
