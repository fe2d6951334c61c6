"""Clients made with real SDKs that go on whatever happens to the gateways, and hold them to what they acknowledged.

`steadfast.py KIND --seconds N --until COUNT --clients N URL...` under the environment of KIND's SDK. Each URL is a
gateway's, or a proxy's in front of them; a client asks any, and another whenever it is cut off or refused. They go on
for so long, and until COUNT has been counted: which of their runs a kill costs is chance. It prints one JSON object of
counts, and ends with 1 and a traceback where something is wrong: an answer that is not the agent's, or one that was
acknowledged and is gone.

| KIND | SDK | does |
|---|---|---|
| `e2b` | agent-protocol-client | creates a task here, has its steps executed there; cut off, it looks at the list |
| `editor` | agent-client-protocol | prompts over WebSocket; cut off, it loads its session elsewhere, with all said |
| `mcp` | mcp | calls agents as tools over Streamable HTTP; cut off, it opens another session elsewhere |
| `bee` | acp-sdk | runs agents over HTTP+SSE, whose deltas add up; cut off, it opens another session elsewhere |
| `context` | mcp, with Agent Context's messages | delegates a task; cut off, it does so again elsewhere: one task |
"""

import argparse
import asyncio
import contextlib
import json
import random
import time
import uuid
from collections import Counter
from typing import Any

PATIENCE = 60.0
COUNTS: Counter[str] = Counter()


class Places:
    """The URLs, in an order that is the same each time."""

    def __init__(self, urls: list[str], number: int) -> None:
        self.urls = urls
        self.dice = random.Random(number)

    def any(self) -> str:
        return self.dice.choice(self.urls)


class Gone(Exception):
    """Cut off, or refused for now."""


async def again(deadline: float, what: str) -> None:
    assert time.monotonic() < deadline, f"nobody does it: {what}"
    await asyncio.sleep(0.05)


# --- agent-protocol-client


async def e2b(places: Places, number: int) -> None:
    """One task of three steps at the agent `writer`."""
    from agent_protocol_client import AgentApi, ApiClient, ApiException, Configuration, TaskRequestBody

    said = f"client {number}"
    deadline = time.monotonic() + PATIENCE
    task = None

    async def call(name: str, *args: Any, **more: Any) -> Any:
        async with ApiClient(Configuration(host=f"{places.any()}/agent-protocol/writer")) as client:
            try:
                return await getattr(AgentApi(client), name)(*args, **more)
            except ApiException as error:
                if error.status in (409, 502, 503, 504):
                    COUNTS[f"e2b: {error.status}"] += 1
                    raise Gone from error
                raise
            except (TimeoutError, OSError, client_error()) as error:
                COUNTS["e2b: cut off"] += 1
                raise Gone from error

    async def listed() -> list[Any]:
        """The steps once none is under way: a step that is asked for behind the last begins all over."""
        while True:
            with contextlib.suppress(Gone):
                steps = (await call("list_agent_task_steps", task, current_page=1, page_size=100)).steps
                if all(each.status != "running" for each in steps):
                    return list(steps)
            await again(deadline, f"list the steps of {task}")

    while task is None:
        with contextlib.suppress(Gone):
            task = (await call("create_agent_task", task_request_body=TaskRequestBody(input=said))).task_id
        await again(deadline, "create a task")
    while not any(each.is_last and each.status == "completed" for each in await listed()):
        try:
            await call("execute_agent_task_step", task)
        except Gone:
            await again(deadline, f"execute a step of {task}")
        except ApiException as error:
            COUNTS[f"e2b: failed, {error.status}"] += 1
            break
    steps = await listed()
    outputs = [each.output for each in steps if each.output]
    if failed := [more["error"] for each in steps if (more := each.additional_output) and more.get("error")]:
        COUNTS[f"e2b: {str(failed[0])[:70]}"] += 1
        return
    found = [text for output in outputs for text in output.split("\n\n")]
    assert found == [f"step {each} of 3: {said}" for each in (1, 2, 3)], f"{task}: {steps}"
    COUNTS["e2b: success"] += 1


def client_error() -> type[Exception]:
    import aiohttp

    return aiohttp.ClientError


# --- agent-client-protocol


class Screen:
    """What the editor shows."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @property
    def shown(self) -> str:
        return " ".join("".join(self.texts).split())

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        told = update.model_dump(by_alias=True)
        if told["sessionUpdate"] in ("agent_message_chunk", "user_message_chunk"):
            self.texts.append(told["content"].get("text", "") + " " * (told["sessionUpdate"] == "user_message_chunk"))

    def on_connect(self, _: Any) -> None:
        """Called by the SDK."""


class Session:
    """A session of three prompts at an agent that says them again, over as many connections as it takes."""

    def __init__(self, number: int) -> None:
        self.agent = ("echo", "coder")[number % 2]
        """One of Agent Connect, or an editor's own."""
        self.words = [f"number {number} has {each}" for each in ("this", "that", "more")]
        self.acknowledged: list[str] = []
        self.tried = ""
        self.id: str | None = None

    @property
    def over(self) -> bool:
        return len(self.acknowledged) == len(self.words)

    async def begin(self, connection: Any, screen: Screen) -> None:
        from acp import PROTOCOL_VERSION

        await connection.initialize(protocol_version=PROTOCOL_VERSION)
        if self.id is None:
            self.id = (await connection.new_session(cwd="/tmp", mcp_servers=[])).session_id
            return
        await connection.load_session(cwd="/tmp", session_id=self.id, mcp_servers=[])
        COUNTS["editor: sessions loaded"] += 1
        for word in self.acknowledged:
            assert screen.shown.count(word) >= 2, f"{self.id}: {word!r} is not in {screen.shown!r}"

    async def prompt(self, connection: Any, screen: Screen) -> None:
        from acp.schema import TextContentBlock

        screen.texts.clear()
        word = self.words[len(self.acknowledged)]
        repeated, self.tried = self.tried == word, word
        said = await connection.prompt(session_id=self.id, prompt=[TextContentBlock(type="text", text=word)])
        assert said.stop_reason == "end_turn", said
        shown = screen.shown  # before it perhaps the rest of the turn that was cut off
        assert shown == word or (repeated and shown.endswith(word)), screen.texts
        self.acknowledged.append(word)
        COUNTS[f"editor: prompts of {self.agent}"] += 1


async def editor(places: Places, number: int) -> None:
    """One session, from its first prompt to its last."""
    from acp import RequestError, connect_to_agent
    from acp.ws import create_websocket_stream

    session = Session(number)
    deadline = time.monotonic() + PATIENCE
    while not session.over:
        screen: Any = Screen()
        url = f"{places.any().replace('http', 'ws', 1)}/agent-client/{session.agent}"
        try:
            async with contextlib.AsyncExitStack() as stack, asyncio.timeout(20):
                stream = await create_websocket_stream(url)
                stack.push_async_callback(stream.close)
                connection = connect_to_agent(screen, stream)
                stack.push_async_callback(connection.close)
                await session.begin(connection, screen)
                while not session.over:
                    await session.prompt(connection, screen)
        except AssertionError:
            raise
        except RequestError as error:
            COUNTS[f"editor: refused, {error.code}"] += 1
        except Exception:  # whatever the SDK makes of a connection that was cut off, or not made
            COUNTS["editor: cut off"] += 1
        if not session.over:
            await again(deadline, f"prompt in {session.id}")


# --- mcp


async def mcp(places: Places, number: int) -> None:
    """Calls of agents of four protocols as tools, in one session as long as it holds."""
    from mcp import Client

    deadline = time.monotonic() + PATIENCE
    said = f"number {number} again"
    left = [(name, "message", said, said) for name in ("echo", "coder")]
    left.append(("stream", "prompt", said, said))
    left.append(("slow", "message", "1 second", " ".join(f"tick {each}" for each in range(1, 11)) + " done"))
    while left:
        try:
            async with asyncio.timeout(20), Client(f"{places.any()}/agent-communication/mcp") as client:
                while left:
                    name, key, word, wanted = left[-1]
                    result = await client.call_tool(name, {key: word})
                    text = " ".join(result.content[0].text.split())
                    if result.is_error:
                        COUNTS[f"mcp: failed: {text[:70]}"] += 1
                    else:
                        assert wanted in text, text
                        COUNTS[f"mcp: calls of {name}"] += 1
                    left.pop()
        except AssertionError:
            raise
        except Exception as error:
            COUNTS["mcp: cut off"] += 1
            await again(deadline, f"call a tool: {error!r}")


# --- acp-sdk


async def bee(places: Places, number: int) -> None:
    """Runs of agents of three protocols, in one session as long as it holds."""
    from acp import ClientSession, McpError
    from acp.client.sse import sse_client

    deadline = time.monotonic() + PATIENCE
    said = f"number {number} again"
    left = [("echo", "message", "message"), ("coder", "message", "message"), ("stream", "prompt", "text")]
    while left:
        try:
            async with (
                asyncio.timeout(20),
                sse_client(f"{places.any()}/agent-communication/sse") as streams,
                ClientSession(*streams) as session,
            ):
                deltas: dict[str, list[dict[str, Any]]] = {}
                hearing = asyncio.ensure_future(hear(session, deltas))
                try:
                    await unless(hearing, session.initialize())
                    while left:
                        name, key, answer = left[-1]
                        await unless(hearing, bee_run(session, deltas, name, {key: said}, answer))
                        left.pop()
                finally:
                    hearing.cancel()
        except* AssertionError:
            raise
        except* McpError as errors:
            COUNTS[f"bee: failed: {str(errors.exceptions[0])[:70]}"] += 1
            await again(deadline, f"run {left[-1]}: {errors.exceptions}")
        except* Exception as errors:  # whatever the SDK makes of a connection that was cut off, or not made
            COUNTS["bee: cut off"] += 1
            await again(deadline, f"run {left[-1]}: {errors.exceptions}")


async def bee_run(
    session: Any, deltas: dict[str, list[dict[str, Any]]], name: str, given: dict[str, Any], answer: str
) -> None:
    from acp import types

    token = uuid.uuid4().hex
    heard = deltas[token] = []
    params = types.RunAgentRequestParams(name=name, input=given, _meta={"progressToken": token})
    asked = types.ClientRequest(types.RunAgentRequest(method="agents/run", params=params))
    output = (await session.send_request(asked, types.RunAgentResult)).output
    (said,) = given.values()
    assert output[answer].split() == said.split(), output
    assert "".join(each.get(answer, "") for each in heard) in ("", output[answer]), heard
    COUNTS[f"bee: runs of {name}"] += 1


async def hear(session: Any, deltas: dict[str, list[dict[str, Any]]]) -> None:
    """Keep what is told, by progress token, until the stream has ended: the SDK tells nobody that it has."""
    async for message in session.incoming_messages:
        told = getattr(message, "root", message)
        if getattr(told, "method", "") == "notifications/agents/run/progress":
            deltas[told.params.progressToken].append(told.params.delta)


async def unless(ended: "asyncio.Future[None]", work: Any) -> Any:
    """What `work` comes to, unless the stream ends first."""
    doing = asyncio.ensure_future(work)
    await asyncio.wait([ended, doing], return_when=asyncio.FIRST_COMPLETED)
    if not doing.done():
        doing.cancel()
        raise Gone
    return doing.result()


# --- mcp, with the messages of Agent Context


async def context(places: Places, number: int) -> None:
    """A task, delegated by the same id until it has been answered, and what an agent is told directly."""
    import mcp_types as types
    from mcp import Client, MCPError
    from pydantic import BaseModel

    class Anything(BaseModel, extra="allow"):
        """A result that the SDK has no model for."""

    deadline = time.monotonic() + PATIENCE
    said, task = f"number {number} once", f"{number}-{uuid.uuid4().hex}"
    payload = {"messages": [{"text": said}]}
    asked: dict[str, Any] = {"id": task, "type": "errand", "requirements": {"capabilities": ["repeating"]}}
    delegation = {"source": None, "target": None, "task": {**asked, "payload": payload}}
    content = {"type": "request", "payload": payload}
    told = {"source": None, "target": ("echo", "coder")[number % 2], "content": content}
    left: list[tuple[str, dict[str, Any]]] = [("agent/message", told), ("agent/delegate", delegation)]

    async def ask(client: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in params.items() if value is not None}
        request: Any = types.Request[dict[str, Any], str](method=method, params=given)
        found: dict[str, Any] = (await client.session.send_request(request, Anything)).model_dump()
        return found

    async def ended(client: Any) -> None:
        (listing,) = (await client.read_resource("agent://tasks")).contents
        known = [each for each in json.loads(listing.text)["tasks"] if each["id"] == task]
        (status,) = [each["status"] for each in known]
        assert status in ("completed", "failed"), known
        COUNTS["context: tasks"] += 1
        COUNTS[f"context: {status}"] += 1

    known = False
    while not known:
        try:
            async with asyncio.timeout(20), Client(f"{places.any()}/agent-context") as client:
                while left:
                    method, params = left[-1]
                    try:
                        found = await ask(client, method, params)
                        assert said in json.dumps(found), found
                        COUNTS[f"context: {method}"] += 1
                    except MCPError as error:
                        COUNTS[f"context: failed: {str(error)[:70]}"] += 1
                        if (error.error.data or {}).get("retryable") is not False:
                            raise
                    left.pop()
                await ended(client)
                known = True
        except AssertionError:
            raise
        except Exception as error:
            COUNTS["context: cut off"] += 1
            await again(deadline, f"{left[-1:]}: {error!r}")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("e2b", "editor", "mcp", "bee", "context"))
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--until", required=True)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("urls", nargs="+")
    args = parser.parse_args()
    over = time.monotonic() + args.seconds

    async def client(number: int) -> None:
        places = Places(args.urls, number)
        while time.monotonic() < over or not COUNTS[args.until]:
            await globals()[args.kind](places, number)

    async with asyncio.TaskGroup() as group:
        for number in range(args.clients):
            group.create_task(client(number))
    print(json.dumps(dict(sorted(COUNTS.items()))))


if __name__ == "__main__":
    asyncio.run(main())
