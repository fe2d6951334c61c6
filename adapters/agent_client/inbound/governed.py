"""Changes of a governed route (AIP-44) for its clients: what is declared, where sessions may be, how they end.

Every function takes the route's `Governor` or None, and with None changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Raw

from adapters.agent_client.codec import agents, content
from adapters.agent_client.governed import admitted, folders
from adapters.agent_client.inbound.turns import FOLDER
from adapters.agent_client.wire import AIP44, PROTOCOL, JsonObject, meta_of, with_meta, without
from gateway.contract import Gateway, governing
from gateway.core.errors import Conflict, Invalid, NotFound
from gateway.core.types import Agent, RunQuery, Thread
from gateway.wire import jsonrpc

SPOKEN_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "promptCapabilities": ("image", "audio", "embeddedContext"),
    "mcpCapabilities": ("http", "sse"),
}
"""Capabilities that a manifest can promise beside `loadSession`. It says nothing of all others."""
PAGE: Final = 50


def of(gateway: Gateway, name: str | None) -> governing.Governor | None:
    """The governor of an agent that clients of this protocol may call. None for an unknown agent: it does nothing."""
    try:
        return None if name is None else governing.governor_named(gateway.agents, name, PROTOCOL)
    except NotFound:
        return None


# --- what is declared ---------------------------------------------------------------------------------------------


def initialize(result: JsonObject, governors: Iterable[governing.Governor | None], *, one: bool) -> JsonObject:
    """The answer of `initialize` (v1), of what it declares only what the manifests promise, and who is bound.

    `one`: the client has the one agent of these, not a choice. Raises Unavailable where its manifest promises more than
    it can do.
    """
    for governor in governors:
        if governor is None:
            continue
        if one:
            governor.check({"agent": result["agentCapabilities"]})
            result = with_meta(result, AIP44, {**meta_of(result, AIP44), **governor.about})
        result = {**result, "agentCapabilities": _narrowed(result["agentCapabilities"], governor)}
    return result


def _narrowed(capabilities: JsonObject, governor: governing.Governor) -> JsonObject:
    """Without what is not promised. What no manifest can speak of stays; of MCP only where any of it is promised."""
    may = governor.effective({"agent": capabilities}).get("agent", {})
    found = without(capabilities, "loadSession", *SPOKEN_OF)
    if may.get("loadSession"):
        found["loadSession"] = True
    for key, names in SPOKEN_OF.items():
        given, promised = capabilities.get(key), may.get(key, {})
        if isinstance(given, dict) and (promised or key != "mcpCapabilities"):
            more = without(given, *names)
            found[key] = {**promised, **more}
    return found


def check(prompt: list[Any], agent: Agent, governor: governing.Governor | None) -> None:
    """Raises Invalid (with path) for a prompt with what `initialize` did not declare."""
    if governor is not None:
        declared = _narrowed(agents.initialize_result(agent)["agentCapabilities"], governor)
        content.check(prompt, declared.get("promptCapabilities", {}))


# --- folders ------------------------------------------------------------------------------------------------------


async def known(governor: governing.Governor | None, thread: Thread, *, ending: bool = False) -> Raw:
    """Params of a session that is taken up by nothing but its id: where it was, if it may still be there.

    Raises Conflict where it may not, unless it is taken up to be ended.
    """
    params = jsonrpc.raw({"cwd": thread.metadata.get(FOLDER) or (governor and governor.home) or "/", "mcpServers": []})
    try:
        return await folders(governor, params)
    except Invalid as error:
        if ending:
            return params
        raise Conflict(f"session {thread.id} is in a folder that may not be worked in: {error}") from error


async def listed(governor: governing.Governor | None, answer: Any) -> Any:
    if governor is None:
        return answer
    said = jsonrpc.unpack(answer) if isinstance(answer, Raw) else answer
    if not isinstance(said, dict) or not isinstance(said.get("sessions"), list):
        return answer
    may: dict[str, bool] = {}
    sessions = [each for each in said["sessions"] if isinstance(each, dict) and isinstance(each.get("cwd"), str)]
    for folder in {each["cwd"] for each in sessions}:
        may[folder] = await _may(governor, folder)
    return {**said, "sessions": [each for each in sessions if may[each["cwd"]]]}


async def _may(governor: governing.Governor, folder: str) -> bool:
    try:
        await admitted(governor, folder, "/cwd")
    except Invalid:
        return False
    return True


# --- life -----------------------------------------------------------------------------------------------------------


async def opened(governor: governing.Governor | None, thread: str, client: str | None) -> None:
    """A session is made, and its client is about to be told. Raises Unavailable if that cannot be audited."""
    if governor is not None:
        await governor.opened(thread, principal=client, protocol=PROTOCOL)


async def closed(governor: governing.Governor | None, thread: str) -> bool:
    """Its client has closed it. Returns whether it is to be forgotten. Raises Unavailable if it cannot be audited."""
    if governor is None:
        return False
    await governor.closed(thread)
    return governor.ephemeral


async def forget(gateway: Gateway, thread: str) -> None:
    """Nothing is left of a session: neither its record nor what was said in its turns."""
    gone: set[str] = set()
    while runs := [run for run in await gateway.runs.list(RunQuery(thread=thread, limit=PAGE)) if run.id not in gone]:
        for run in runs:
            gone.add(run.id)
            with contextlib.suppress(NotFound):
                await gateway.runs.delete(run.id)
    with contextlib.suppress(NotFound):
        await gateway.threads.delete(thread)
