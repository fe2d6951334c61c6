"""The official SDKs' clients at a gateway that asks who they are, over Streamable HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_client import ADAPTER
from gateway.cli.codes import TOKEN_VARIABLE, Place
from gateway.cli.stdio import _remote
from gateway.core.errors import AgentGone
from tests.adapters.agent_client.authentication_rig import ANA, AUTHENTICATION, BOB, METHOD, UNKNOWN, known
from tests.adapters.agent_client.inbound_rig import scripted
from tests.adapters.agent_client.test_inbound_socket import server
from tests.support.agent_client import SDKS, Line, Sdk, agent_client_conversations, errors, results, text
from tests.support.aio import run
from tests.support.processes import PROGRAM, ROOT, environment
from tests.support.scripted import echo

LOG_IN = shlex.quote(f"authenticate {json.dumps({'methodId': METHOD, '_meta': {'token': ANA}})}")


def header(bearer: str) -> str:
    return f"--header 'Authorization: Bearer {bearer}'"


@pytest.mark.parametrize("sdk", SDKS)
async def test_each_sdk_shows_its_token_or_logs_in_and_has_its_own_sessions_alone(sdk: Sdk) -> None:
    async with server(scripted(echo), authentication=AUTHENTICATION) as (gateway, url):
        ana = await known(gateway, ANA)
        session = await ana.new()
        await ana.prompt(session, "hers")
        places = [f"{url}/scripted", f"{url.replace('http', 'ws')}/scripted"]
        again = f"--session {session} --do load --say more --do list"
        scripts = {
            "shown": f"{header(ANA)} --bare --do initialize {again}",
            "other": f"{header(BOB)} --say mine --do list --session {session} --do load",
            "later": f"--bare --do initialize --do list --call {LOG_IN} {again} --do logout --do list",
            "wrong": f"{header('stolen-token')} --bare --do initialize",
        }
        each = [{"steps": shlex.split(steps), "url": place} for place in places for steps in scripts.values()]
        found = await asyncio.to_thread(agent_client_conversations, sdk, *each)
        for start in (0, len(scripts)):
            check(session, **dict(zip(scripts, found[start:], strict=False)))
        runs = await gateway.runs(session)
        assert len(runs) == 5 and {run.request.principal for run in runs} == {"ana"}


def check(session: str, shown: list[Line], other: list[Line], later: list[Line], wrong: list[Line]) -> None:
    """What the four clients of one transport saw."""
    for lines in (shown, later):
        assert text(lines).startswith("hers ") and text(lines).endswith("more ")
        assert session in [each["sessionId"] for each in results(lines, "session/list")[0]["sessions"]]
    assert not [line for line in shown if "error" in line]
    assert [error["code"] for error in errors(later, "session/list")] == [UNKNOWN, UNKNOWN]
    assert text(other) == "mine " and session not in json.dumps(results(other, "session/list"))
    assert len(errors(other, "session/load")) == 1
    failed: list[Any] = [line for line in wrong if "error" in line]
    assert failed and not results(wrong, "initialize") and "stolen-token" not in json.dumps(wrong)


# --- interlingua stdio --gateway -------------------------------------------------------------------------------------


async def stdio(url: str, *words: str, env: dict[str, str] | None = None) -> tuple[list[Any], int | None, str]:
    """What `interlingua stdio` answers to two requests, its exit code, and what it says on standard error."""
    argv = [
        *PROGRAM,
        "stdio",
        "scripted",
        "--gateway",
        url.removesuffix("/agent-client"),
        "--log-level",
        "debug",
        *words,
    ]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    process = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, env=environment(env), **pipes)
    assert process.stdin and process.stdout and process.stderr
    answers: list[Any] = []
    async with asyncio.timeout(100):
        for method, params in (("initialize", {"protocolVersion": 1}), ("session/new", {"cwd": "/", "mcpServers": []})):
            message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            process.stdin.write(json.dumps(message).encode() + b"\n")
            while (line := await process.stdout.readline()) and json.loads(line).get("id") != method:
                pass
            answers += [json.loads(line)] if line else []
        process.stdin.close()
        said = await process.stderr.read()
        return answers, await process.wait(), said.decode()


async def test_an_editor_over_stdio_is_whoever_its_token_is(tmp_path: Path) -> None:
    async with server(scripted(echo), authentication=AUTHENTICATION) as (gateway, url):
        file = tmp_path / "token"
        file.write_text(f"{BOB}\n")
        (answers, code, said), wrong = await asyncio.gather(
            stdio(url, "--token-file", str(file), env={TOKEN_VARIABLE: ANA}),
            stdio(url, env={TOKEN_VARIABLE: "stolen-token"}),
        )
        thread = await gateway.engine.threads.get(answers[1]["result"]["sessionId"])
        assert (thread.attributes["owner"], code) == ("bob", 0)
        assert (wrong[0], wrong[1]) == ([], 1) and "401" in wrong[2]
        for text in (said, wrong[2]):
            assert ANA not in text and BOB not in text and "stolen" not in text and "Traceback" not in text


def test_the_token_is_in_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(None, "https://gateway.example", None)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert place.token() is None
    monkeypatch.setenv(TOKEN_VARIABLE, f" {ANA}\n")
    assert place.token() == ANA
    for content, why in ((b" \n", "is empty"), (b"\xff", "not UTF-8"), (None, "No such file")):
        file = tmp_path / "token"
        file.unlink(missing_ok=True)
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(SystemExit) as left:
            replace(place, token_file=file).token()
        assert left.value.code == 2 and why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gateway", "bearer", "warned"),
    [
        ("http://gateway.example:8080", ANA, True),
        ("https://gateway.example", ANA, False),
        ("http://127.0.0.1:8080", ANA, False),
        ("http://gateway.example:8080", None, False),
    ],
)
def test_a_token_that_travels_unencrypted_is_warned_of(
    gateway: str, bearer: str | None, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []

    async def refuse(_: str, *, headers: Any, **__: Any) -> None:
        sent.append(headers)
        raise AgentGone("nobody is there")

    monkeypatch.setattr("gateway.transport.websocket.client.connect", refuse)
    monkeypatch.setattr("gateway.cli.stdio.OwnPipe", lambda _: None)
    monkeypatch.setenv(TOKEN_VARIABLE, bearer or "")
    with pytest.raises(SystemExit):
        run(_remote(ADAPTER, "scripted", gateway, Place(None, gateway, None).token()))
    assert sent == [{"Authorization": f"Bearer {ANA}"} if bearer else None]
    assert ("unencrypted" in caplog.text) is warned and ANA not in caplog.text
