"""The matrix's client of the Agent Context Protocol: an agent on a socket of its own for each run."""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from typing import Any

import httpx2
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.matrix.ends import PATIENCE, End


class AgentContext:
    """Each run is a message on a connection of its own; the client is asked by messages too."""

    def __init__(self, base: str) -> None:
        self.http = httpx2.Client(base_url=f"{base}/agent-context", timeout=PATIENCE)
        self._url = f"{base.replace('http', 'ws', 1)}/agent-context/ws"
        self._open: dict[str, Exchange] = {}

    def _message(self, agent: str, text: str) -> Exchange:
        made = Exchange(self._url, agent, text)
        self._open[made.name] = made
        return made

    def run(self, agent: str, text: str) -> End:
        return self._message(agent, text).until_asked()

    def answer(self, asked: End, value: Any) -> End:
        exchange = self._open[asked.run]
        exchange.answer(value)
        return exchange.until_asked()

    def stream(self, agent: str, text: str) -> list[str]:
        exchange = self._message(agent, text)
        end = exchange.until_asked()
        return exchange.said if exchange.said[-1:] == [end.text] else [*exchange.said, end.text]

    def begin(self, agent: str, text: str) -> str:
        return self._message(agent, text).name

    def cancel(self, run: str) -> End:
        self._open[run].send(method="notifications/cancelled", params={"requestId": 1})
        return self._open[run].until_asked()

    def refused(self, path: str, body: bytes) -> httpx2.Response:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return self.http.post(f"/{path}", content=body, headers=headers)


class Exchange:
    """One `agent/message`. `said` is the text so far, after each update."""

    def __init__(self, url: str, agent: str, text: str) -> None:
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(
            connect(url, max_size=None, open_timeout=PATIENCE, subprotocols=[Subprotocol("mcp")])
        )
        self.name = uuid.uuid4().hex
        self.said: list[str] = []
        self._asked: Any = None
        about = {"capabilities": {"agent": {"messages": True}}, "clientInfo": {"name": "matrix", "version": "1"}}
        self.send(id=0, method="initialize", params={"protocolVersion": "ACP-0.1", **about})
        assert self._next()["result"]["protocolVersion"] == "ACP-0.1"
        self.send(method="notifications/initialized")
        content = {"type": "request", "payload": {"messages": [{"text": text}]}}
        params = {"target": agent, "content": content, "_meta": {"correlationId": self.name}}
        self.send(id=1, method="agent/message", params=params)

    def send(self, **message: Any) -> None:
        self._socket.send(json.dumps({"jsonrpc": "2.0", **message}))

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(PATIENCE))
        content = message.get("params", {}).get("content", {})
        if content.get("type") == "update":
            self.said.append("".join([*self.said[-1:], _text(content)]))
        return message

    def until_asked(self) -> End:
        """To the agent's question, or to the end."""
        while "id" not in (message := self._next()):
            pass
        if "method" in message:
            self._asked = message["id"]
            return End("asks", json.dumps(message["params"]), self.name)
        self._stack.close()
        if "error" not in message:
            assert message["result"]["_meta"]["correlationId"] == self.name
            return End("success", _text(message["result"]["content"]), self.name)
        error = message["error"]
        if error["code"] == -32800:
            return End("cancelled", "", self.name)
        assert error["data"]["correlationId"] == self.name
        return End("error", json.dumps(error), self.name)

    def answer(self, value: Any) -> None:
        self.send(id=self._asked, result={"content": {"type": "response", "payload": {"answer": value}}})


def _text(content: dict[str, Any]) -> str:
    return "\n".join(each["text"] for each in content["payload"].get("messages", ()))
