"""Agent Communication (pre-alpha): what recorded servers said, read; what clients are sent, written.

Lines are those of standard input and output. What is written was read back with the models of the official SDK,
`acp-sdk` 0.0.6, and that of tools with the schemas of the Model Context Protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from adapters.agent_communication.codec import agents, deltas_out
from adapters.agent_communication.codec.deltas_in import DeltaDecoder
from adapters.agent_communication.codec.deltas_out import DeltaEncoder, progress
from adapters.agent_communication.outbound import turn
from adapters.agent_communication.wire import RUN_PROGRESS
from gateway.core import events as e
from gateway.core.types import Agent, Artifact, Interrupt, Run
from gateway.mcp.runs import ToolProgress, Tools, questions
from gateway.mcp.server.contract import McpClient
from gateway.mcp.wire import ELICIT
from gateway.wire import jsonrpc, ndjson, sse
from gateway.wire.jsonrpc import Notification, Response, RpcError, unpack

TOOLS = Tools(agents.DOCUMENTS)

# --- reads: what a server says -----------------------------------------------------------------------------------


def _lines(chunks: Iterable[bytes]) -> Iterator[jsonrpc.Message]:
    splitter = ndjson.Splitter()
    for line in [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.close():
        assert isinstance(line, bytes)
        yield jsonrpc.decode(line)


def _heard(messages: Iterable[jsonrpc.Message], given: Any) -> list[e.Event]:
    """What the outbound half makes of one call of `agents/run`. Given: the agent's entry."""
    decoder = DeltaDecoder(agents.agent_of(given["agent"]))
    events: list[e.Event] = []
    for message in messages:
        if isinstance(message, Notification) and message.method == RUN_PROGRESS:
            events += decoder.feed(message.params)
        elif isinstance(message, Notification):
            events += turn.noted(message.method, message.params)
        elif isinstance(message, Response) and message.error is not None:
            error = message.error
            events.append(turn.run_failed(RpcError(error.code, error.message, error.data)))
        elif isinstance(message, Response):
            events.append(decoder.result(message.result))
    assert decoder.losses == given.get("losses", {})
    return events


def _run(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    """A call on standard output."""
    return _heard(_lines(chunks), given)


def _streamed(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    """A call on the stream of HTTP+SSE."""
    decoder = sse.SseDecoder()
    return _heard((jsonrpc.decode(frame.data) for chunk in chunks for frame in decoder.feed(chunk)), given)


def _listed(chunks: Iterable[bytes], given: Any) -> Any:
    """An answer of `agents/list` or `agents/templates/list`, as agents; their own words, kept whole, left out."""
    (message,) = _lines(chunks)
    assert isinstance(message, Response)
    result = unpack(message.result)
    entries = result.get("agents") or result["agentTemplates"]
    found = [agents.agent_of(entry) for entry in entries]
    assert [agent.extra for agent in found] == [{"agent_communication": entry} for entry in entries]
    return msgspec.to_builtins([msgspec.structs.replace(agent, extra={}, interrupts=()) for agent in found])


# --- writes: what a client is sent -------------------------------------------------------------------------------


def _told(events: list[tuple[int, e.Event]], given: Any) -> bytes:
    """A call of `agents/run`: the deltas, then the answer. Given: agent, run, the call's id and progress token."""
    agent, run = msgspec.convert(given["agent"], Agent), _record(given["run"])
    encoder = DeltaEncoder(agent)
    said = [each for at in range(len(events)) for each in encoder.feed(events[at : at + 1])] + encoder.finish(run)
    lines = [progress(given["token"], each) for each in said]
    try:
        lines.append(jsonrpc.result(given["id"], deltas_out.run_result(agent, run, events[-1][1])))
    except RpcError as error:
        lines.append(jsonrpc.error(given["id"], error.error))
    return _joined(lines)


def _tool(events: list[tuple[int, e.Event]], given: Any) -> bytes:
    """A call of `tools/call`: progress, then the answer. Given: agent, run, files, version, id, progress token."""
    agent, run, version = msgspec.convert(given["agent"], Agent), _record(given["run"]), given["version"]
    lines = ToolProgress(agent, version, given["token"]).feed(events)
    files = msgspec.convert(given.get("artifacts", []), list[Artifact])
    return _joined([*lines, jsonrpc.result(given["id"], TOOLS.result(agent, run, version, files))])


def _asked(value: Any, given: Any) -> bytes:
    """A question: as a form of each revision that has them, as an error, as a tool's result. Given: agent, run."""
    interrupt, agent, run = (
        msgspec.convert(value, Interrupt),
        msgspec.convert(given["agent"], Agent),
        _record(given["run"]),
    )
    lines = []
    for version in ("2025-06-18", "2025-11-25"):
        client = McpClient(version=version, capabilities={"elicitation": {"form": {}, "url": {}}})
        form = questions.elicitation(interrupt, client)
        if form is not None:
            lines.append(jsonrpc.request(0, ELICIT, form))
    lines.append(jsonrpc.error(1, questions.interrupted_error(run, interrupt).error))
    lines.append(jsonrpc.result(1, TOOLS.interrupted(agent, run, interrupt, bytes(run.output))))
    return _joined(lines)


def _published(value: Any, given: Any) -> bytes:
    """Agents as `agents/list`, `agents/templates/list` and `tools/list` have them. Given: the revision of the last."""
    found = msgspec.convert(value, list[Agent])
    templates = [entry for agent in found if (entry := agents.template_of(agent)) is not None]
    lists = {
        "agents": [agents.entry_of(agent) for agent in found],
        "agentTemplates": templates,
        "tools": [agents.tool_of(agent, given["version"]) for agent in found],
    }
    return _joined([jsonrpc.result(0, {name: entries}) for name, entries in lists.items() if entries])


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _record(value: Any) -> Run:
    return msgspec.json.decode(msgspec.json.encode(value), type=Run)


READ = {"run": _run, "stream": _streamed, "agents": _listed}
WRITE = {"run": _told, "tool": _tool, "question": _asked, "agents": _published}
