"""`session/list` (docs: session-list): the agent's own list, or the gateway's record of threads."""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Callable

from msgspec import Raw

from adapters.agent_client import wire
from adapters.agent_client.inbound.turns import FOLDER
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.contract import Gateway
from gateway.core.errors import Invalid
from gateway.core.types import Thread, ThreadQuery
from gateway.wire import jsonrpc

PAGE = 50
LOOKED_AT = 500
"""Threads that one request looks at, at most: a page may be short, and still not be the last."""


async def recorded(gateway: Gateway, params: Raw, wanted: Callable[[Thread], bool]) -> JsonObject:
    """A page of the sessions that the gateway has a record of, newest first. Raises Invalid (path /cursor)."""
    asked = jsonrpc.read(params, wire.ListSessions)
    offset = _offset(asked.cursor)
    query = ThreadQuery(protocol=PROTOCOL, metadata={} if asked.cwd is None else {FOLDER: asked.cwd}, limit=PAGE)
    sessions: list[JsonObject] = []
    end = offset + LOOKED_AT
    while offset < end:
        threads = await gateway.threads.list(_at(query, offset))
        for thread in threads:
            offset += 1
            if wanted(thread):
                sessions.append(_info(thread))
            if len(sessions) == PAGE:
                break
        if len(sessions) == PAGE or len(threads) < PAGE:
            break
    more = await gateway.threads.list(_at(query, offset, limit=1))
    return {"sessions": sessions, **({"nextCursor": _cursor(offset)} if more else {})}


async def renamed(gateway: Gateway, agent: str, answer: Raw) -> Raw | JsonObject:
    """The agent's own list. Sessions that are threads here, and not open at the agent now, get their names here."""
    found = jsonrpc.unpack(answer)
    listed = found.get("sessions") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not listed:
        return answer
    known = await _known(gateway, agent)
    changed = False
    for each in listed:
        here = known.get(str(each.get("sessionId"))) if isinstance(each, dict) else None
        if here is not None:
            each["sessionId"] = here
            changed = True
    return found if changed else answer


async def _known(gateway: Gateway, agent: str) -> dict[str, str]:
    """The agent's ids of the sessions that it was given lately -> ours."""
    known: dict[str, str] = {}
    for offset in range(0, LOOKED_AT, PAGE):
        threads = await gateway.threads.list(ThreadQuery(protocol=PROTOCOL, limit=PAGE, offset=offset))
        for thread in threads:
            theirs = thread.upstream.get(agent, {}).get("session")
            if isinstance(theirs, str):
                known.setdefault(theirs, thread.id)
        if len(threads) < PAGE:
            break
    return known


def _at(query: ThreadQuery, offset: int, limit: int = PAGE) -> ThreadQuery:
    return ThreadQuery(protocol=query.protocol, metadata=query.metadata, limit=limit, offset=offset)


def _info(thread: Thread) -> JsonObject:
    info: JsonObject = {"sessionId": thread.id, "cwd": thread.metadata.get(FOLDER) or "/"}
    if folders := thread.attributes.get("additionalDirectories"):
        info["additionalDirectories"] = folders
    title = thread.attributes.get("title")
    for update in thread.updates:
        if update.kind == "session_info_update" and isinstance(update.data, dict) and "title" in update.data:
            title = update.data["title"]
    if title:
        info["title"] = title
    info["updatedAt"] = datetime.datetime.fromtimestamp(thread.updated_at, datetime.UTC).isoformat()
    return info


def _cursor(offset: int) -> str:
    return base64.urlsafe_b64encode(b"%d" % offset).decode()


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    try:
        text = base64.b64decode(cursor.encode(), b"-_", validate=True)
        if not text.isdigit() or len(text) > 12:
            raise ValueError(cursor)
        return int(text)
    except (ValueError, binascii.Error):
        raise Invalid("cursor: it is none that was given here", path="/cursor") from None
