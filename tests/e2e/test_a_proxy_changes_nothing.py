"""Agent Client on both sides: one conversation of the official SDKs with and without a gateway, line by line."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.doors import way
from tests.support.agent_client import (
    Line,
    Sdk,
    agent_client_agent_command,
    agent_client_client,
    agent_client_conversations,
    results,
    text,
)
from tests.support.processes import Gateway

SDKS: tuple[Sdk, ...] = ("py", "ts-2")
STORY = (
    *("--say", "think tool commands hello", "--set-mode", "code", "--say", "again"),
    *("--do", "load", "--do", "resume", "--set-mode", "ask"),
    *("--session", "unknown", "--do", "load", "--do", "resume", "--say", "hello", "--set-mode", "code"),
    *("--set-option", "model=large", "--do", "close", "--do", "delete"),
    *("--reconnect", "--session", "@0", "--do", "load", "--say", "more", "--do", "load"),
)
AGAIN = ("--bare", "--do", "initialize", "--session", "{session}", "--do", "load", "--say", "after", "--do", "load")


@dataclass(frozen=True)
class Held:
    """What the clients of one SDK printed: of STORY, then in another process of AGAIN.

    forgotten: of AGAIN, with an agent that kept nothing beyond its own process.
    """

    direct: list[Line]
    through: list[Line]
    direct_again: list[Line]
    through_again: list[Line]
    forgotten: list[Line]


def hold(sdk: Sdk, folder: Path) -> Held:
    """Each agent keeps its sessions in a file, but that of the route `forgets`; the gateway is killed in between."""

    def command(name: str) -> list[str]:
        return agent_client_agent_command(sdk, "--state", str(folder / name))

    routes = [
        {"name": name, "target": {"protocol": "agent_client", "cwd": str(folder), "command": each}}
        for name, each in (("rig", command("through")), ("forgets", agent_client_agent_command(sdk)))
    ]
    root = ("--root", str(folder))
    direct = agent_client_client(sdk, *root, *STORY, command=command("direct"))
    direct_again = agent_client_client(sdk, *root, *again(direct), command=command("direct"))
    with Gateway(json.dumps({"routes": routes}), folder) as gateway:
        through, forgotten = agent_client_conversations(
            sdk,
            {"steps": [*root, *STORY], **way(gateway, "pipe", "rig")},
            {"steps": [*root, "--say", "hello", "--set-mode", "code"], **way(gateway, "pipe", "forgets")},
        )
        gateway.kill9()
        gateway.restart()
        through_again, forgotten = agent_client_conversations(
            sdk,
            {"steps": [*root, *again(through)], **way(gateway, "pipe", "rig")},
            {"steps": [*root, *again(forgotten)], **way(gateway, "pipe", "forgets")},
        )
    return Held(*map(plain, (direct, through, direct_again, through_again, forgotten)))


def again(lines: list[Line]) -> list[str]:
    [made] = results(lines, "session/new")
    return [step.replace("{session}", made["sessionId"]) for step in AGAIN]


def plain(lines: list[Line]) -> list[Line]:
    """Without what a gateway adds to `initialize` and how the client's child ended; the session is called `s0`."""
    made = next(each["params"]["sessionId"] for each in lines if each["op"] == "session/update")
    said = [each for each in lines if each["op"] not in ("initialize", "exit")]
    return [json.loads(json.dumps(line).replace(made, "s0")) for line in said]


@pytest.fixture(scope="module")
def all_held(tmp_path_factory: pytest.TempPathFactory) -> dict[Sdk, Held]:
    folders = [tmp_path_factory.mktemp(sdk) for sdk in SDKS]  # not in threads: the first one makes the folder above
    with ThreadPoolExecutor() as pool:
        return dict(zip(SDKS, pool.map(hold, SDKS, folders), strict=True))


@pytest.fixture(params=SDKS)
def held(all_held: dict[Sdk, Held], request: pytest.FixtureRequest) -> Held:
    return all_held[request.param]


def test_every_line_is_the_same_with_a_gateway_also_of_sessions_that_are_loaded_or_unknown(held: Held) -> None:
    assert held.through == held.direct
    assert len(results(held.direct, "session/load")) == 3 and len(results(held.direct, "session/resume")) == 1


def test_what_the_agent_keeps_is_loaded_from_it_after_a_gateway_was_killed(held: Held) -> None:
    assert held.through_again == held.direct_again
    assert len(results(held.direct_again, "session/load")) == 2


def test_what_the_agent_has_forgotten_is_told_from_the_gateways_record(held: Held) -> None:
    [prompted] = [number for number, line in enumerate(held.forgotten) if line["op"] == "session/prompt"]
    before, after = held.forgotten[:prompted], held.forgotten[prompted + 1 :]
    assert text(before, "user_message_chunk") == "hello" and text(after, "user_message_chunk") == "helloafter"
    one, two = text(before).split("This conversation so far:")
    assert one.strip() == "hello" and two.split()[-1] == "after", "the agent was told what it had forgotten"
    assert text(after).split() == text(before).split()
    [ended] = results(held.forgotten, "session/prompt")
    assert ended["_meta"]["interlingua"]["lost"] == ["session_forgotten"]
