"""Version 2 of the Agent Client Protocol spoken by the official SDKs' experimental modules: agent and client of each.

`sdk` is one of `SDKS_V2`. The words of a prompt and the options are the same for both; they are listed in
`tests/peers/agent_client_v2_agent.py`, a client's steps in `tests/peers/agent_client_v2_client.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tests.support.agent_client import Line, updates, words_of
from tests.support.forking import standing_in
from tests.support.peers import PEERS, by_conversation, lines_of, node, peer_modules, peer_python
from tests.support.processes import start

SdkV2 = Literal["py", "ts"]
SDKS_V2: tuple[SdkV2, ...] = ("py", "ts")
"""Python 1.0.0rc3; TypeScript 2.4.0."""


def _program(sdk: SdkV2, name: str) -> list[str]:
    if sdk == "py":
        return [str(peer_python("agent-client-py-2")), str(PEERS / f"{name}.py")]
    return [str(node()), str(PEERS / f"{name}.mjs"), "--sdk", str(peer_modules("agent-client-ts-2"))]


def agent_command_v2(sdk: SdkV2, *args: str) -> list[str]:
    """The agent on stdio: what a route's `target.command` is, or what comes after a client's `--`."""
    command = [*_program(sdk, "agent_client_v2_agent"), *args]
    return standing_in(command) if sdk == "py" else command


def conversations_v2(sdk: SdkV2, *conversations: Mapping[str, Any]) -> list[list[Line]]:
    """Several conversations of the client in one process, each `{"steps": [...], "command" or "url": ...}`.

    What each printed. AssertionError with all its output if the script did not run to its end.
    """
    words: list[str] = []
    for one in conversations:
        words += [*(["+"] if words else []), *words_of(one["steps"], one.get("command"), one.get("url"))]
    with start([*_program(sdk, "agent_client_v2_client"), *words]) as process:
        return by_conversation(lines_of(process), len(conversations))


def messages(lines: Sequence[Line], kind: str = "agent_message") -> dict[str, str]:
    """The texts of the messages of a kind, by id, as a client shows them after all updates."""
    found: dict[str, str] = {}
    for update in updates(lines):
        name = str(update.get("messageId"))
        if update["sessionUpdate"] == kind and "content" in update:
            found[name] = "".join(block.get("text", "") for block in update["content"] or [])
        elif update["sessionUpdate"] == f"{kind}_chunk":
            found[name] = found.get(name, "") + update["content"].get("text", "")
    return found


def states(lines: Sequence[Line]) -> list[str]:
    """The states that were told, with the reason of those that have one."""
    return [f"{one['state']} {one.get('stopReason') or ''}".strip() for one in updates(lines, "state_update")]
