"""An agent made with the official Python SDK `agent-client-protocol` that uses the MCP server its session was given.

On stdio, or with `--http PORT` as a server that takes MCP servers over HTTP. Its prompts are JSON. `{"run": [PYTHON,
PROGRAM, STEP...]}` starts an MCP client made with an SDK of its own (`mcp_tools_client_1.py`) on the server as it was
given: by its command, or its address and headers; it says what that prints. With `--native` (1.0.0rc3) it takes servers
over the connection, and `{"calls": [[METHOD, PARAMS], ...]}` are MCP requests to the first one, on a new connection: it
says `{"results": [...], "heard": [...]}`, errors being `{"error": {...}}`.
"""

import asyncio
import json
import os
import sys
from typing import Any

from acp import Agent, RequestError, run_agent
from acp.schema import (
    AgentCapabilities,
    InitializeResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
)

NATIVE, HTTP = "--native" in sys.argv, "--http" in sys.argv


class Rig(Agent):
    """The agent."""

    def __init__(self) -> None:
        self.client: Any = None
        self.sessions: dict[str, list[Any]] = {}
        self.heard: list[Any] = []

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        can = AgentCapabilities(
            mcp_capabilities=McpCapabilities(acp=NATIVE, http=HTTP),
            session_capabilities=SessionCapabilities(close=None if HTTP else SessionCloseCapabilities()),
        )
        return InitializeResponse(protocol_version=1, agent_capabilities=can)

    async def new_session(self, cwd: str, mcp_servers: Any = None, **kwargs: Any) -> NewSessionResponse:
        name = f"s{len(self.sessions)}"
        self.sessions[name] = mcp_servers or []
        return NewSessionResponse(session_id=name)

    async def close_session(self, session_id: str, **kwargs: Any) -> None:
        del self.sessions[session_id]

    async def prompt(self, session_id: str, prompt: Any, **kwargs: Any) -> PromptResponse:
        asked = json.loads(prompt[0].text)
        server = self.sessions[session_id][0]
        said = await (self.run(server, asked["run"]) if "run" in asked else self.calls(server, asked["calls"]))
        text = {"type": "text", "text": said}
        update: Any = {"sessionUpdate": "agent_message_chunk", "content": text}
        await self.client._conn.send_notification("session/update", {"sessionId": session_id, "update": update})
        return PromptResponse(stop_reason="end_turn")

    async def run(self, server: Any, words: list[str]) -> str:
        env = dict(os.environ)
        if getattr(server, "url", None):
            headers = [word for each in server.headers for word in ("--header", f"{each.name}: {each.value}")]
            first = next(at for at, word in enumerate(words) if word.startswith("--"))
            words = [*words[:first], "--http", server.url, *headers, *words[first:]]
        else:
            env |= {each.name: each.value for each in server.env}
            words = [*words, "--", server.command, *server.args]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, env=env)
        output, complaint = await process.communicate()
        if process.returncode == 0 and output:
            return output.decode()
        return f"{words} ended with {process.returncode}: {complaint.decode()}"

    async def calls(self, server: Any, calls: list[Any]) -> str:
        results: list[Any] = []
        connection = (await self.client.connect_mcp(server.server_id)).connection_id
        for method, params in calls:
            try:
                results.append(await self.client.mcp_message(connection, method, params))
            except RequestError as error:
                results.append({"error": error.to_error_obj()})
        await self.client.disconnect_mcp(connection)
        return json.dumps({"results": results, "heard": self.heard})

    async def mcp_message(self, connection_id: str, method: str, params: Any = None, **kwargs: Any) -> Any:
        self.heard.append([method, params])
        return {"action": "accept", "content": {"sure": True}} if method == "elicitation/create" else {}

    async def notify_mcp(self, connection_id: str, method: str, params: Any = None, **kwargs: Any) -> None:
        self.heard.append([method, params])


if HTTP:
    import uvicorn
    from acp.http.asgi import create_asgi_app

    port = int(sys.argv[sys.argv.index("--http") + 1])
    uvicorn.run(
        create_asgi_app(lambda _: Rig()), host="127.0.0.1", port=port, log_level="warning", ws="websockets-sansio"
    )
else:
    asyncio.run(run_agent(Rig(), use_unstable_protocol=True))
