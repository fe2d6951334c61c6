"""Real clients against the server's end: the official SDKs `mcp` 1.30.0 and 2.3.0, and bee's in Python and TypeScript.

Every message that a client was sent is held against the schema of the revision.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from gateway.mcp import versions
from gateway.mcp.server.http.session import StreamableSession
from gateway.wire import jsonrpc
from tests.mcp.server.rig import QUESTION, Rig, rig, valid
from tests.support.agent_communication import Client, asked, client, clients, errors, results, told
from tests.support.aio import run
from tests.support.scripted import until

SAY = ("--tool", 'say {"words": "one two"}')
ASK = ("--elicitation", '{"answer": "blue"}', "--tool", 'ask {"question": "colour?"}')
CANCEL = ("--cancel-after", "1", "--tool", "wait")
NEWS = ("--tool", "news", "--await", "list_changed")


async def spoken(kind: Client, *conversations: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Conversations with a server in this loop."""
    if kind == "ts":
        return [await asyncio.to_thread(client, kind, *one.pop("steps"), **one) for one in conversations]
    return await asyncio.to_thread(clients, kind, *conversations)


def checked(wire: Path, version: str) -> None:
    """Hold what a client was sent against the schema."""
    messages = [json.loads(line) for line in wire.read_text().splitlines()]
    to_client = [one["message"] for one in messages if one["to"] == "client"]
    assert len(to_client) > 3
    for message in to_client:
        valid(message, version)


def texts(lines: list[dict[str, Any]]) -> list[str]:
    """What the tools said."""
    return [result["content"][0]["text"] for result in results(lines, "tools/call")]


def progress(lines: list[dict[str, Any]]) -> list[Any]:
    """What the progress callbacks were told."""
    return [(one[0], one[2]) for one in told(lines, "progress")]


def test_mcp_1_over_streamable_http_and_events(tmp_path: Path) -> None:
    async def case(there: Rig) -> None:
        long = [*SAY, *ASK, "--tool", "lose", *CANCEL, "--tool", "boom", "--level", "debug", *NEWS]
        short = [*SAY, *ASK, *CANCEL, "--tool", "news"]
        http, events = await spoken(
            "mcp-1",
            {"url": there.mcp, "steps": ["--wire", str(tmp_path / "http"), "--do", "ping", "--do", "tools", *long]},
            {"url": f"{there.url}/sse", "steps": ["--wire", str(tmp_path / "sse"), "--do", "tools", *short]},
        )
        for lines, wire in ((http, "http"), (events, "sse")):
            assert results(lines, "initialize")[0]["protocolVersion"] == versions.V2025_11_25
            assert progress(lines)[:2] == [(1.0, "one"), (2.0, "two")]
            assert texts(lines)[:2] == ["one two", "accept blue"]
            assert asked(lines, "elicitation/create")[0]["message"] == "colour?"
            assert errors(lines, "tools/call")[0]["code"] == -32800
            assert told(lines, "notifications/tools/list_changed")
            checked(tmp_path / wire, versions.V2025_11_25)
        assert texts(http)[2:] == ["found", "told"] and (2.0, "after") in progress(http)
        assert errors(http, "tools/call")[1]["message"] == "it failed"
        assert not errors(http, "await")

    serve(case)


def test_mcp_2_in_both_of_its_eras(tmp_path: Path) -> None:
    async def case(there: Rig) -> None:
        steps = ["--do", "tools", *SAY, *ASK, *CANCEL, "--tool", "boom"]
        new = ["--listen", "--wire", str(tmp_path / "new"), *steps, *NEWS]
        legacy = ["--mode", "legacy", "--wire", str(tmp_path / "old"), *steps, "--tool", "lose"]
        modern, old = await spoken("mcp-2", {"url": there.mcp, "steps": new}, {"url": there.mcp, "steps": legacy})
        assert results(modern, "initialize")[0]["supportedVersions"] == list(versions.ALL)
        assert results(old, "initialize")[0]["protocolVersion"] == versions.V2025_11_25
        for lines in (modern, old):
            assert progress(lines)[:2] == [(1.0, "one"), (2.0, "two")]
            assert texts(lines)[:2] == ["one two", "accept blue"]
            assert [error["type"] for error in errors(lines, "tools/call")] == ["CancelledError", "MCPError"]
        assert not errors(modern, "await") and texts(modern)[2:] == ["told"]
        assert texts(old)[2:] == ["found"] and (2.0, "after") in progress(old)
        assert sum(one.startswith("cancelled") for one in there.words.seen) == 2
        checked(tmp_path / "new", versions.V2026_07_28)
        checked(tmp_path / "old", versions.V2025_11_25)

    serve(case)


def test_clients_are_asked_and_told_outside_of_their_calls(tmp_path: Path) -> None:
    """Both SDKs are asked over their GET; when it breaks off they open it again, about a second later."""
    words = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
    question = {"message": "colour?", "requestedSchema": QUESTION}

    async def asking(there: Rig, *, lose: bool) -> None:
        session = await there.session(within=60)
        assert isinstance(session, StreamableSession)
        given = [asyncio.create_task(session.ask("sampling/createMessage", words, timeout=60))]
        if lose:
            await session.ask("ping", None, timeout=60)
            await session.standalone.stream.vacate()
            assert not session.standalone.stream.read and session.can_ask
        given.append(asyncio.create_task(session.ask("elicitation/create", question, timeout=60)))
        sampled, elicited = [jsonrpc.unpack(one) for one in await asyncio.gather(*given)]
        assert sampled["content"] == {"type": "text", "text": "hello"}
        assert elicited == {"action": "accept", "content": {"answer": "blue"}}

    async def telling(there: Rig) -> None:
        await until(lambda: any(one.startswith("agent/heartbeat") for one in there.words.seen), 60)
        (session,) = [one for one in there.server.sessions if one.client.version == versions.V2026_07_28]
        for uri in ("agent://tasks", "agent://directory"):
            session.tell("notifications/resources/updated", {"uri": uri})
        session.tell("notifications/resources/list_changed")

    async def both(there: Rig) -> None:
        await asking(there, lose=False)
        await telling(there)

    async def case(there: Rig) -> None:
        there.words.capabilities["resources"] = {"subscribe": True, "listChanged": True}
        steps = ["--elicitation", '{"answer":"blue"}', "--sampling", "hello", *["--await", '"answered"'] * 2]
        steps += ["--do", "ping"]
        listen = ["--listen", "--resource", "agent://directory", "--notify", 'agent/heartbeat {"status": "active"}']
        listen += ["--await", "ResourceUpdated", "--await", "ResourcesListChanged"]
        wire = [tmp_path / name for name in ("one", "two", "modern")]
        meanwhile = asyncio.create_task(asking(there, lose=True))
        (one,) = await spoken("mcp-1", {"url": there.root, "steps": ["--wire", str(wire[0]), *steps]})
        await meanwhile
        meanwhile = asyncio.create_task(both(there))
        two, modern = await spoken(
            "mcp-2",
            {"url": there.root, "steps": ["--mode", "legacy", "--wire", str(wire[1]), *steps]},
            {"url": there.root, "steps": ["--wire", str(wire[2]), *listen]},
        )
        await meanwhile
        for lines in (one, two):
            assert not errors(lines, "await") and len(results(lines, "ping")) == 1
            assert len(asked(lines, "sampling/createMessage")) == len(asked(lines, "elicitation/create")) == 1
        assert not errors(modern, "await")
        assert [each["uri"] for each in modern if each.get("told") == "ResourceUpdated"] == ["agent://directory"]
        for file, version in zip(wire, (*[versions.V2025_11_25] * 2, versions.V2026_07_28), strict=True):
            checked(file, version)

    serve(case)


def test_bees_clients_over_events_and_websocket(tmp_path: Path) -> None:
    async def case(there: Rig) -> None:
        steps = [
            "--do",
            "ping",
            "--do",
            "list",
            "--run",
            'say {"words": "one two"}',
            "--cancel-after",
            "1",
            "--run",
            "wait",
        ]
        steps += ["--do", "ping"]
        socket = there.url.replace("http:", "ws:") + "/ws"
        for kind, url, name in (("py", f"{there.url}/sse", "a"), ("ts", f"{there.url}/sse", "b"), ("ts", socket, "c")):
            wire = tmp_path / name
            (lines,) = await spoken(kind, {"url": url, "steps": ["--wire", str(wire), *steps]})  # type: ignore[arg-type]
            assert len(results(lines, "agents/list")[0]["agents"]) == 9
            assert [one["progress"] for one in told(lines, "notifications/progress")][:3] == [1, 2, 1]
            assert results(lines, "agents/run") == [{"output": {"text": "one two"}}]
            assert len(errors(lines, "agents/run")) == 1 and len(results(lines, "ping")) == 2
            checked(wire, versions.V2024_11_05)
        assert sum(one.startswith("cancelled") for one in there.words.seen) == 3

    serve(case)


def serve(case: Any) -> None:
    async def served() -> None:
        async with rig() as there:
            await case(there)

    run(served(), timeout=280)
