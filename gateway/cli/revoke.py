"""`interlingua revoke`: revoke or restore an agent's access at a running gateway, over its Agent Context door."""

from __future__ import annotations

import asyncio
import ssl
from http import HTTPStatus
from typing import Any

import httpx2

from gateway.cli.codes import FAILED, OK, leave
from gateway.cli.remote import CONNECT_SECONDS, Reached
from gateway.core.errors import AgentGone, Denied, InterlinguaError
from gateway.core.types import JsonObject

DOOR = "/agent-context"
SECONDS = 60.0


def revoke_agent(agent: str, gateway: str, token: str | None, *, reason: str | None, restore: bool) -> int:
    """Do it and say so. Leaves with FAILED where the gateway refuses or cannot be reached."""
    method = "agent/restore" if restore else "agent/revoke"
    params = {"agentId": agent, **({} if reason is None or restore else {"reason": reason})}
    try:
        result = asyncio.run(_asked(gateway.rstrip("/"), token, method, params))
    except InterlinguaError as error:
        leave(FAILED, str(error))
    unknown = "" if result.get("known", True) else ", although there is no such agent now"
    print(f"{agent}: {result.get('status', 'done')}{unknown}")
    return OK


async def _asked(url: str, token: str | None, method: str, params: JsonObject) -> JsonObject:
    """The result of one request. The door is at its own path below the URL, or the URL is the door's own."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        Reached(url),
        httpx2.AsyncClient(
            timeout=httpx2.Timeout(SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
            verify=ssl.create_default_context(),
        ) as http,
    ):
        for address in (url + DOOR, url):
            response = await http.post(address, json=message, headers=headers)
            if response.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
                break
    try:
        answer: Any = response.json()
    except ValueError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("result"), dict):
        return dict(answer["result"])
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        raise Denied(str(answer["error"].get("message")))
    raise AgentGone(f"{url} is no gateway with an Agent Context door ({response.status_code})")
