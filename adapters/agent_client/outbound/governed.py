"""The rules of a governed route (AIP-44) for what an agent does beside its tool calls' events.

Files and commands that it asks for are tool calls themselves, decided and audited before they are done; its sessions
are in folders that it may have. What it says of tool calls outside of runs is refused by `AgentSession`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client import forwarded
from adapters.agent_client.codec import errors, event_forms
from adapters.agent_client.governed import admitted
from adapters.agent_client.outbound.session import OUTSIDE, AgentSession, SessionRecord
from adapters.agent_client.tunnel.mcp_messages import SERVERS
from adapters.agent_client.wire import AIP44, LOST_SERVERS, without
from gateway.contract import governing
from gateway.core import delta
from gateway.core.errors import Denied, InterlinguaError, Invalid
from gateway.core.types import Json, JsonObject
from gateway.wire import jsonrpc

FILES: Final[Mapping[str, str]] = {"fs/read_text_file": "readTextFile", "fs/write_text_file": "writeTextFile"}
"""Requests for files, and what of `clientCapabilities.fs` allows each."""


class Act(NamedTuple):
    """A request of the agent's as the rules see it: the tool's name, its risk, and which parameter is a path."""

    tool: str
    risk: int
    path: str


ACTS: Final[Mapping[str, Act]] = {
    "fs/read_text_file": Act("fs.read", 0, "path"),
    "fs/write_text_file": Act("fs.write", 1, "path"),
    "terminal/create": Act("terminal.create", 2, "cwd"),
}


def preface(rules: governing.RunGovernor, capabilities: JsonObject) -> list[JsonObject]:
    """The blocks of a prompt that come before what was asked: the skills of the agent's operator, for the agent alone.

    `capabilities` are its `promptCapabilities`: one that takes no resources is given text.
    """
    return [_skill(one, capabilities) for one in rules.preface]


def _skill(one: governing.Instruction, capabilities: JsonObject) -> JsonObject:
    about: JsonObject = {"annotations": {"audience": ["assistant"]}, "_meta": {AIP44: {"skill": one.name}}}
    if capabilities.get("embeddedContext") is True:
        inner = {"uri": one.uri, "mimeType": "text/markdown", "text": one.text}
        return {"type": "resource", "resource": inner, **about}
    return {"type": "text", "text": one.plain, **about}


async def act(session: AgentSession, method: str, params: Raw, do: Callable[[Raw], Awaitable[Any]]) -> Any:
    """Answer one of ACTS: `do` it, with the path as it is without links, if the rules let the agent.

    The client or the workspace does it. Raises Invalid for a path that is not admitted, RpcError where
    the rules deny it, Unavailable where it cannot be audited, and what `do` raises.
    """
    wanted, turn, governor = ACTS[method], session.turn, session.governor
    assert governor is not None, "ungoverned requests go another way"
    arguments, path = _arguments(params, wanted)
    rules = governing.run_governor_of(turn.context) if turn is not None else None
    if not governor.judges:
        place = await _place(governor, wanted, path)
        return await do(params if place is None else jsonrpc.replaced(params, **{wanted.path: place}))
    if turn is None or rules is None:
        await governor.stray(session.thread or "", wanted.tool, arguments, why=OUTSIDE)
        raise errors.denied(Denied(f"{method}: {OUTSIDE}"))
    turn.flush()
    try:
        place = await _place(governor, wanted, path)
    except Invalid as error:
        await governor.stray(session.thread or "", wanted.tool, arguments, why=str(error))
        raise
    try:
        call = await rules.act(wanted.tool, arguments, risk=wanted.risk)
    except Denied as error:
        raise errors.denied(error) from error

    async def done() -> Any:
        """A person may have thought it over for long: the path is looked at again, and is to be what was approved."""
        if place is None:
            return await do(params)
        if await _place(governor, wanted, path) != place:
            raise Invalid(f"/{wanted.path}: leads elsewhere than when it was decided", path=f"/{wanted.path}")
        return await do(jsonrpc.replaced(params, **{wanted.path: place}))

    return await _audited(rules, call, done())


async def _audited(rules: governing.RunGovernor, call: str, work: Awaitable[Any]) -> Any:
    try:
        result = await work
    except asyncio.CancelledError:
        await asyncio.shield(rules.acted(call, error={"message": "the agent did not wait for it"}))
        raise
    except InterlinguaError as error:
        told = error.error if isinstance(error, jsonrpc.RpcError) else errors.to_rpc(error).error
        await rules.acted(call, error={"code": told.code, "message": told.message})
        raise
    said = jsonrpc.unpack(result) if isinstance(result, Raw) else result
    await rules.acted(call, result=delta.sound(said))
    return result


async def _place(governor: governing.Governor, wanted: Act, path: Json) -> str | None:
    """The path without links; None where a command names no folder, and has that of its session."""
    if path is None and wanted.path == "cwd":
        return None
    return await admitted(governor, path, f"/{wanted.path}", write=wanted.tool == "fs.write")


def _arguments(params: Raw, wanted: Act) -> tuple[JsonObject, Json]:
    said = jsonrpc.unpack(params or forwarded.NOTHING)
    if not isinstance(said, dict):
        raise Invalid("params are no object")
    found = without(said, "sessionId", "_meta")
    env = found.get("env")
    if isinstance(env, list) and all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in env):
        found["env"] = {each["name"]: each.get("value") for each in env}
    return delta.sound(found), said.get(wanted.path)


def lent(governor: governing.Governor, method: str) -> bool:
    if method in FILES:
        return bool(governor.lends({"fs": {FILES[method]: True}}).get("fs"))
    return bool(governor.lends({"terminal": True}))


# --- sessions -----------------------------------------------------------------------------------------------------


async def placed(governor: governing.Governor | None, asked: SessionRecord) -> SessionRecord:
    """The session as the agent is asked to open it for a run, with its folders checked. Raises Denied for others."""
    if governor is None:
        return asked
    try:
        cwd = await admitted(governor, asked.cwd, "/cwd")
        more = [await admitted(governor, each, "/additionalDirectories") for each in asked.additional_directories]
    except Invalid as error:
        raise Denied(f"the session's folder is not one that may be worked in: {error}", detail=error.detail) from error
    return replace(asked, cwd=cwd, additional_directories=more)


def mounted(governor: governing.Governor | None, params: Raw) -> tuple[Raw, list[str]]:
    """The params that open a session with the manifest's MCP servers before the client's; and the loss of those of the
    client's that have the same names: grants of tools go by the server's name.
    """
    own = governor.servers if governor is not None else ()
    if not own:
        return params, []
    said = jsonrpc.members(params).get(SERVERS)
    given: list[Any] = jsonrpc.unpack(said) if said else []
    names = {one.name for one in own}
    others = [each for each in given if not (isinstance(each, dict) and each.get("name") in names)]
    lost = [LOST_SERVERS] if len(others) < len(given) else []
    return jsonrpc.replaced(params, **{SERVERS: [*map(_entry, own), *others]}), lost


def _entry(one: governing.ToolServer) -> JsonObject:
    """As the protocol has it (schema: McpServer)."""
    if one.transport != "stdio":
        return {"type": one.transport, "name": one.name, "url": one.url, "headers": []}
    program, *args = one.command
    env = [{"name": name, "value": value} for name, value in one.env.items()]
    return {"name": one.name, "command": program, "args": args, "env": env}


async def late(session: AgentSession | None, call: JsonObject) -> None:
    """A permission was asked for outside of any run."""
    governor = session.governor if session is not None else None
    if session is not None and governor is not None and governor.judges:
        said = delta.sound(call)
        await governor.stray(session.thread or "", event_forms.named(said), said.get("rawInput"), why=OUTSIDE)
