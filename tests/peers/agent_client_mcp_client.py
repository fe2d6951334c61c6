"""A client made with the official Python SDK `agent-client-protocol` 1.0.0rc3 that offers an MCP server to its agent.

`agent_client_mcp_client.py --server JSON PROMPT... -- COMMAND ARG...` talks to an agent on stdio. The server is a
command (a JSON list) that speaks MCP on stdio, made with an SDK of its own: it is started for every `mcp/connect`, and
its messages travel as they are. Each prompt is sent when the one before it is answered. Lines printed are JSON:
`{"op": "initialize", "result": ...}`; `{"op": "prompt", "text": ...}`, what the agent said in a turn; `{"op": METHOD,
"asked": ID}` for each `mcp/connect` and `mcp/disconnect`; `{"op": "cancelled", "method": METHOD}` for a request of the
agent's that was given up.
"""

import argparse
import asyncio
import json
import os
import sys
from typing import Any

from acp import RequestError, spawn_agent_process
from acp.schema import AcpMcpServer, ConnectMcpResponse, DisconnectMcpResponse, TextContentBlock


def tell(op: str, **said: Any) -> None:
    print(json.dumps({"op": op, **said}), flush=True)


class Backend:
    """One connection: an MCP server of its own."""

    def __init__(self, name: str, client: "Provider", process: asyncio.subprocess.Process) -> None:
        self.name, self.client, self.process = name, client, process
        self.number = 0
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.tasks = {asyncio.ensure_future(self.read())}

    def write(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(self, method: str, params: Any) -> Any:
        self.number += 1
        number = self.number
        self.waiting[number] = asyncio.get_running_loop().create_future()
        self.write(id=number, method=method, **({} if params is None else {"params": params}))
        try:
            answer = await self.waiting[number]
        except asyncio.CancelledError:
            tell("cancelled", method=method)
            self.write(method="notifications/cancelled", params={"requestId": number})
            raise
        if "error" in answer:
            error = answer["error"]
            raise RequestError(error["code"], error["message"], error.get("data"))
        return answer["result"]

    async def read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            message = json.loads(line)
            if "method" not in message:
                future = self.waiting.pop(message["id"], None)
                if future is not None and not future.done():
                    future.set_result(message)
            elif "id" in message:
                self.tasks.add(asyncio.ensure_future(self.asked(message)))
            else:
                await self.client.agent.notify_mcp(self.name, message["method"], message.get("params"))

    async def asked(self, message: dict[str, Any]) -> None:
        try:
            result = await self.client.agent.mcp_message(self.name, message["method"], message.get("params"))
        except RequestError as error:
            self.write(id=message["id"], error=error.to_error_obj())
        else:
            self.write(id=message["id"], result=result)

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()


class Provider:
    """The client."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.agent: Any = None
        self.text = ""
        self.backends: dict[str, Backend] = {}

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        if update.session_update == "agent_message_chunk":
            self.text += update.content.text

    async def connect_mcp(self, server_id: str, **kwargs: Any) -> ConnectMcpResponse:
        tell("mcp/connect", asked=server_id)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*self.command, stdin=pipe, stdout=pipe, limit=64 * 1024 * 1024)
        name = f"backend-{len(self.backends)}"
        self.backends[name] = Backend(name, self, process)
        return ConnectMcpResponse(connection_id=name)

    async def mcp_message(self, connection_id: str, method: str, params: Any = None, **kwargs: Any) -> Any:
        return await self.backends[connection_id].ask(method, params)

    async def notify_mcp(self, connection_id: str, method: str, params: Any = None, **kwargs: Any) -> None:
        self.backends[connection_id].write(method=method, **({} if params is None else {"params": params}))

    async def disconnect_mcp(self, connection_id: str, **kwargs: Any) -> DisconnectMcpResponse:
        tell("mcp/disconnect", asked=connection_id)
        await self.backends[connection_id].end()
        return DisconnectMcpResponse()


async def main() -> None:
    at = sys.argv.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", type=json.loads, required=True)
    parser.add_argument("prompts", nargs="*")
    args = parser.parse_args(sys.argv[1:at])
    program, *rest = sys.argv[at + 1 :]
    provider = Provider(args.server)
    limits = {"limit": 64 * 1024 * 1024}
    async with spawn_agent_process(
        provider, program, *rest, env=os.environ, use_unstable_protocol=True, transport_kwargs=limits
    ) as (agent, _):
        hello = await agent.initialize(protocol_version=1)
        tell("initialize", result=hello.model_dump(mode="json", by_alias=True, exclude_none=True))
        server = AcpMcpServer(type="acp", name="toolbox", server_id="toolbox-1")
        session = (await agent.new_session(cwd="/", mcp_servers=[server])).session_id
        for prompt in args.prompts:
            provider.text = ""
            await agent.prompt(session_id=session, prompt=[TextContentBlock(type="text", text=prompt)])
            tell("prompt", text=provider.text)
        await agent.close_session(session_id=session)
    for backend in provider.backends.values():
        await backend.end()


asyncio.run(main())
