"""A client for each inbound adapter in the matrix: the same five things, said in each protocol over real HTTP.

`Client.said` is the text of a run's result. A new adapter adds a class to `CLIENTS`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import httpx2
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.matrix.agent_context import AgentContext
from tests.matrix.agents import document, text_in
from tests.matrix.ends import PATIENCE, End


class Client(Protocol):
    http: httpx2.Client

    def __init__(self, base: str) -> None: ...
    def run(self, agent: str, text: str) -> End: ...
    def answer(self, asked: End, value: Any) -> End: ...
    def stream(self, agent: str, text: str) -> list[str]: ...
    def begin(self, agent: str, text: str) -> str: ...
    def cancel(self, run: str) -> End: ...
    def refused(self, path: str, body: bytes) -> httpx2.Response: ...


class Example:
    """The example protocol: everything is a stream of lines."""

    def __init__(self, base: str) -> None:
        self.http = httpx2.Client(base_url=f"{base}/example", timeout=PATIENCE)

    def _lines(self, method: str, path: str, body: Any = None, *, until: Callable[[dict[str, Any]], bool]) -> End:
        text, run = "", ""
        with self.http.stream(method, path, json=body) as response:
            assert response.status_code == 200, response.read()
            for raw in response.iter_lines():
                line = json.loads(raw)
                run = line.get("run", run)
                if isinstance(line.get("delta"), str):
                    text += line["delta"]
                if "error" in line:
                    return End("error", line["error"], run)
                if "ask" in line and until(line):
                    return End("asks", line["ask"]["question"] or json.dumps(line["ask"]), run)
                if "done" in line:
                    return End("success", text_in(line["done"]), run)
                if "cancelled" in line:
                    return End("cancelled", text, run)
                if until(line):
                    return End("running", text, run)
        raise AssertionError("the stream ended without an end")

    def run(self, agent: str, text: str) -> End:
        body = {"input": document(agent, text)}
        return self._lines("POST", f"/{agent}", body, until=lambda line: "ask" in line)

    def answer(self, asked: End, value: Any) -> End:
        answered = self.http.post(f"/runs/{asked.run}/answer", json={"answer": value})
        assert answered.status_code == 200, answered.text
        return self._lines("GET", f"/runs/{asked.run}", until=lambda line: False)

    def stream(self, agent: str, text: str) -> list[str]:
        said: list[str] = []
        with self.http.stream("POST", f"/{agent}", json={"input": document(agent, text)}) as response:
            for raw in response.iter_lines():
                line = json.loads(raw)
                if isinstance(line.get("delta"), str):
                    said.append((said[-1] if said else "") + line["delta"])
                elif isinstance(line.get("delta"), dict):
                    said.append((said[-1] if said else "") + text_in(line["delta"]))
        return said

    def begin(self, agent: str, text: str) -> str:
        body = {"input": document(agent, text)}
        return self._lines("POST", f"/{agent}", body, until=lambda line: "run" in line).run

    def cancel(self, run: str) -> End:
        answered = self.http.post(f"/runs/{run}/cancel").json()
        return End(answered["status"], "", run)

    def refused(self, path: str, body: bytes) -> httpx2.Response:
        return self.http.post(f"/{path}", content=body)


class AgentConnect:
    """REST: runs that are waited for, streamed, resumed."""

    def __init__(self, base: str) -> None:
        self.http = httpx2.Client(base_url=f"{base}/agent-connect", timeout=PATIENCE)

    def _body(self, agent: str, text: str) -> dict[str, Any]:
        return {"agent_id": agent, "input": document(agent, text), "on_disconnect": "continue"}

    def _end(self, answer: httpx2.Response) -> End:
        assert answer.status_code == 200, answer.text
        body = answer.json()
        run, output = body["run"]["run_id"], body["output"]
        match output["type"]:
            case "result":
                return End("success", text_in(output["values"]), run)
            case "interrupt":
                return End("asks", json.dumps(output["interrupt"]), run)
            case _:
                cancelled = "cancel" in output["description"]
                return End("cancelled" if cancelled else "error", output["description"], run)

    def run(self, agent: str, text: str) -> End:
        return self._end(self.http.post("/runs/wait", json=self._body(agent, text)))

    def answer(self, asked: End, value: Any) -> End:
        resumed = self.http.post(f"/runs/{asked.run}", json=value)
        assert resumed.status_code == 200, resumed.text
        return self._end(self.http.get(f"/runs/{asked.run}/wait"))

    def stream(self, agent: str, text: str) -> list[str]:
        said = []
        with self.http.stream("POST", "/runs/stream", json=self._body(agent, text)) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    said.append(text_in(json.loads(line[6:])["values"]))
        return said

    def begin(self, agent: str, text: str) -> str:
        run: str = self.http.post("/runs", json=self._body(agent, text)).json()["run_id"]
        return run

    def cancel(self, run: str) -> End:
        assert self.http.post(f"/runs/{run}/cancel", params={"wait": "true"}).status_code == 204
        return self._end(self.http.get(f"/runs/{run}/wait"))

    def refused(self, path: str, body: bytes) -> httpx2.Response:
        headers = {"content-type": "application/json"}
        return self.http.post("/runs/wait", content=body or b'{"agent_id": "%s"}' % path.encode(), headers=headers)


class AgentClient:
    """One socket a run; a question leaves it open until the answer."""

    def __init__(self, base: str) -> None:
        self.http = httpx2.Client(base_url=f"{base}/agent-client", timeout=PATIENCE)
        self._url = f"{base.replace('http', 'ws', 1)}/agent-client"
        self._open: dict[str, Conversation] = {}

    def _prompt(self, agent: str, text: str) -> Conversation:
        made = Conversation(f"{self._url}/{agent}", text)
        self._open[made.session] = made
        return made

    def run(self, agent: str, text: str) -> End:
        return self._prompt(agent, text).until_asked()

    def answer(self, asked: End, value: Any) -> End:
        conversation = self._open[asked.run]
        conversation.answer(value)
        return conversation.until_asked()

    def stream(self, agent: str, text: str) -> list[str]:
        conversation = self._prompt(agent, text)
        conversation.until_asked()
        return conversation.said

    def begin(self, agent: str, text: str) -> str:
        return self._prompt(agent, text).session

    def cancel(self, run: str) -> End:
        conversation = self._open[run]
        conversation.send(method="session/cancel", params={"sessionId": run})
        return conversation.until_asked()

    def refused(self, path: str, body: bytes) -> httpx2.Response:
        return self.http.post(f"/{path}", content=body, headers={"content-type": "application/json"})


class Conversation:
    """One prompt on a connection of its own. `said` is the text so far, after each chunk."""

    folder = "/"

    def __init__(self, url: str, text: str) -> None:
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(connect(url, max_size=None, open_timeout=PATIENCE))
        self._asked: dict[str, Any] = {}
        self.said: list[str] = []
        can: dict[str, Any] = {"elicitation": {"form": {}}}
        self._ask(0, "initialize", {"protocolVersion": 1, "clientCapabilities": can})
        self.session: str = self._ask(1, "session/new", {"cwd": self.folder, "mcpServers": []})["sessionId"]
        prompt = [{"type": "text", "text": text}]
        self.send(id=2, method="session/prompt", params={"sessionId": self.session, "prompt": prompt})

    def send(self, **message: Any) -> None:
        self._socket.send(json.dumps({"jsonrpc": "2.0", **message}))

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(PATIENCE))
        update = message.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "agent_message_chunk" and update["content"]["type"] == "text":
            self.said.append("".join([*self.said[-1:], update["content"]["text"]]))
        return message

    def _ask(self, number: int, method: str, params: Any) -> Any:
        self.send(id=number, method=method, params=params)
        while (message := self._next()).get("id") != number or "method" in message:
            pass
        assert "result" in message, message
        return message["result"]

    def until_asked(self) -> End:
        """To the agent's question, or to the end."""
        while "id" not in (message := self._next()):
            pass
        if "method" in message:
            self._asked = message
            return End("asks", json.dumps(message["params"]), self.session)
        self._stack.close()
        if "error" in message:
            return End("error", json.dumps(message["error"]), self.session)
        cancelled = message["result"]["stopReason"] == "cancelled"
        return End("cancelled" if cancelled else "success", (self.said or [""])[-1], self.session)

    def answer(self, value: Any) -> None:
        result: dict[str, Any] = {"action": "accept", "content": value}
        if self._asked["method"] == "session/request_permission":
            options = [option["optionId"] for option in self._asked["params"]["options"]]
            chosen = next(option for option in options if option in (value.get("optionId"), "true"))
            result = {"outcome": {"outcome": "selected", "optionId": chosen}}
        self.send(id=self._asked["id"], result=result)


class AgentCommunication:
    """One socket a run, as `agents/run` with progress. Who is asked what no form can ask answers with its next call."""

    def __init__(self, base: str) -> None:
        self.http = httpx2.Client(base_url=f"{base}/agent-communication", timeout=PATIENCE)
        self._url = f"{base.replace('http', 'ws', 1)}/agent-communication/ws"
        self._open: dict[str, Call] = {}

    def _call(self, agent: str, input: Any, **meta: Any) -> Call:
        made = Call(self._url, agent, input, meta)
        self._open[made.name] = made
        return made

    def run(self, agent: str, text: str) -> End:
        return self._call(agent, document(agent, text)).until_asked()

    def answer(self, asked: End, value: Any) -> End:
        call = self._open[asked.run]
        if call.resume:
            meta = {"interlingua/resume": call.resume}
            return self._call(call.agent, value, **meta).until_asked()
        call.answer(value)
        return call.until_asked()

    def stream(self, agent: str, text: str) -> list[str]:
        call = self._call(agent, document(agent, text))
        call.until_asked()
        return call.said

    def begin(self, agent: str, text: str) -> str:
        return self._call(agent, document(agent, text)).name

    def cancel(self, run: str) -> End:
        self._open[run].send(method="notifications/cancelled", params={"requestId": 1})
        return self._open[run].until_asked()

    def refused(self, path: str, body: bytes) -> httpx2.Response:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return self.http.post(f"/mcp/{path}", content=body, headers=headers)


class Call:
    """One `agents/run` on a connection of its own. `said` is the text so far, after each delta."""

    def __init__(self, url: str, agent: str, input: Any, meta: dict[str, Any]) -> None:
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(
            connect(url, max_size=None, open_timeout=PATIENCE, subprotocols=[Subprotocol("mcp")])
        )
        self.name, self.agent, self.resume = uuid.uuid4().hex, agent, ""
        self.said: list[str] = []
        self._asked: Any = None
        about = {"capabilities": {"elicitation": {}}, "clientInfo": {"name": "matrix", "version": "1"}}
        self.send(id=0, method="initialize", params={"protocolVersion": "2025-11-25", **about})
        assert "result" in self._next()
        self.send(method="notifications/initialized")
        params = {"name": agent, "input": input, "_meta": {"progressToken": "t", **meta}}
        self.send(id=1, method="agents/run", params=params)

    def send(self, **message: Any) -> None:
        self._socket.send(json.dumps({"jsonrpc": "2.0", **message}))

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(PATIENCE))
        if message.get("method") == "notifications/agents/run/progress":
            self.said.append("".join([*self.said[-1:], text_in(message["params"]["delta"])]))
        return message

    def until_asked(self) -> End:
        """To the agent's question, or to the end."""
        while "id" not in (message := self._next()):
            pass
        if "method" in message:
            self._asked = message["id"]
            return End("asks", json.dumps(message["params"]), self.name)
        self._stack.close()
        error = message.get("error")
        if error is None:
            return End("success", text_in(message["result"]["output"]), self.name)
        self.resume = (error.get("data") or {}).get("resume", "")
        if self.resume:
            return End("asks", json.dumps(error), self.name)
        return End("cancelled" if error["code"] == -32800 else "error", json.dumps(error), self.name)

    def answer(self, value: Any) -> None:
        self.send(id=self._asked, result={"action": "accept", "content": value})


class AgentProtocol:
    """Tasks and steps. It has no way to stream, and none to cancel: leaving is all a client can do."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.http = httpx2.Client(base_url=f"{base}/agent-protocol", timeout=PATIENCE)

    def _step(self, agent: str, task: str, text: str | None) -> End:
        path = f"/{agent}/ap/v1/agent/tasks/{task}/steps"
        answer = self.http.post(path, json={"input": text} if text is not None else {})
        assert answer.status_code == 200, answer.text
        step = answer.json()
        handle = f"{agent}/{task}"
        if not step["is_last"]:
            return End("asks", step["output"] or "", handle)
        failed = (step.get("additional_output") or {}).get("error")
        return End("error", json.dumps(failed), handle) if failed else End("success", step["output"], handle)

    def run(self, agent: str, text: str) -> End:
        task = self.http.post(f"/{agent}/ap/v1/agent/tasks", json={"input": text}).json()["task_id"]
        return self._step(agent, task, None)

    def answer(self, asked: End, value: Any) -> End:
        agent, task = asked.run.split("/")
        return self._step(agent, task, json.dumps(value) if isinstance(value, dict) else value)

    def stream(self, agent: str, text: str) -> list[str]:
        return [self.run(agent, text).text]

    def begin(self, agent: str, text: str) -> str:
        raise NotImplementedError("the protocol cannot")

    def cancel(self, run: str) -> End:
        raise NotImplementedError("the protocol cannot")

    def refused(self, path: str, body: bytes) -> httpx2.Response:
        headers = {"content-type": "application/json"}
        return self.http.post(f"/{path}/ap/v1/agent/tasks", content=body, headers=headers)


CLIENTS: dict[str, type[Client]] = {
    "example": Example,
    "agent_client": AgentClient,
    "agent_communication": AgentCommunication,
    "agent_connect": AgentConnect,
    "agent_context": AgentContext,
    "agent_protocol": AgentProtocol,
}
CANCELS = ("example", "agent_client", "agent_communication", "agent_connect", "agent_context")
"""Inbound protocols that can cancel."""
