"""The real `agntcy-acp` 1.5.2 client, driven from the command line. Runs under the `agntcy-acp` environment.

`python -P agent_connect_client.py COMMAND --url BASE [--api-key KEY] [--bearer TOKEN] ... [+ COMMAND ...]`; several
conversations, each with options of its own, may be had one after the other, since importing the SDK takes seconds. Each
line printed is one JSON object: where there are several, `{"op": "converse", "command": COMMAND}` as each begins;
`{"op": METHOD, "result": ...}`, where the result is what the SDK parsed, dumped by alias in JSON mode;
`{"op": METHOD, "error": {"type", "status", "body", "retryAfter"}}` for what it raised; and for streams
`{"op": METHOD, "event": {"id", "event", "data"}}` for each distinct event, then
`{"op": METHOD, "ended": {"parsed": N, "distinct": N}}`. The exit code is 0 whenever the conversation ran to its end.
METHOD is the SDK's own, `[async]` after it where the async client was used.

The agent is `--agent-id`, or the one that a search for `--name` (or for all) finds first.

| command | does |
|---|---|
| `search` | searches for `--name` (all without it) and gets the first agent found |
| `descriptor` | the agent's descriptor |
| `wait` | creates a run and waits in one call |
| `background` | creates a run, polls it until it is not `pending`, waits for the output, searches for it |
| `stream`, `stream-async` | creates a run and streams it (`--stream-mode` as given; none by default) |
| `join` | creates a background run and joins its stream |
| `thread` | creates a thread, runs on it with wait and stream, lists runs, history, patch, search, copy, delete |
| `say` | a prompt on `--thread` (a new one without it), whose state, history and runs it then gets |
| `copy` | copies `--thread`, gets the copy |
| `resume` | runs to an interrupt, resumes with `--answer`, waits (again, while it is interrupted) |
| `cancel` | creates a run, cancels it, gets and waits for it |
| `delete` | runs to the end, deletes the run, gets it once more |
| `errors` | unknown ids and bad input, one call each |
| `reach` | gets `--run-id`, streams it, resumes it with `--answer`, waits for it |

What the SDK insists on, found by running it: run objects need `run_id agent_id created_at updated_at status creation`;
the status must be one of `pending error success timeout interrupted`, in events too; a `oneOf` of results, interrupts
and errors must match exactly one; `event` must be `agent_event`; an event without `data` (a keep-alive comment that is
followed by an empty line is one, to its parser) is a ValueError; the parser gives all earlier events of the stream
again whenever a new chunk arrives, so events are told apart by `id` here; lists in a message's `content` are lost; 204
is accepted for cancel and delete, 200 with `null` too. It always sends `on_disconnect`, `multitask_strategy` and
`on_completion`, and `Accept: application/json` even for streams.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from agntcy_acp import ACPClient, ApiClient, ApiClientConfiguration, ApiException, AsyncACPClient, AsyncApiClient
from agntcy_acp.models import (
    AgentSearchRequest,
    Config,
    RunCreateStateful,
    RunCreateStateless,
    RunOutputStream,
    RunSearchRequest,
    StreamingMode,
    StreamMode,
    ThreadCreate,
    ThreadPatch,
    ThreadSearchRequest,
)

UNKNOWN = "00000000-0000-0000-0000-000000000000"
LAST: dict[str, str] = {}


def tell(op: str, **said: Any) -> None:
    print(json.dumps({"op": op, **said}), flush=True)


def dump(result: Any) -> Any:
    if isinstance(result, list):
        return [dump(item) for item in result]
    return result.model_dump(mode="json", by_alias=True) if hasattr(result, "model_dump") else result


def complain(op: str, error: Exception) -> None:
    body = error.body if isinstance(error, ApiException) else str(error)
    shown = {"type": type(error).__name__, "status": getattr(error, "status", None), "body": body}
    if later := (getattr(error, "headers", None) or {}).get("retry-after"):
        shown["retryAfter"] = later
    tell(op, error=shown)


def call(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls one method of the sync client and prints what came of it; the result, or None where it raised."""
    op = method.__name__
    try:
        result = method(*args, **kwargs)
    except Exception as error:  # the whole point is to report whatever the SDK raises
        complain(op, error)
        return None
    tell(op, result=dump(result))
    return result


class Events:
    """Prints the events of one stream once each; true from `add` where a client would stop listening."""

    def __init__(self, op: str) -> None:
        self.op, self.parsed, self.seen = op, 0, set[str]()

    def add(self, event: RunOutputStream) -> bool:
        self.parsed += 1
        if event.id in self.seen:
            return False
        self.seen.add(event.id)
        shown = dump(event)
        tell(self.op, event=shown)
        return shown["data"]["type"] in ("error", "interrupt")

    def end(self) -> None:
        tell(self.op, ended={"parsed": self.parsed, "distinct": len(self.seen)})


def listen(op: str, stream: Iterator[RunOutputStream]) -> None:
    events = Events(op)
    try:
        for event in stream:
            if events.add(event):
                break
    except Exception as error:  # as above
        complain(op, error)
    events.end()


async def listen_async(op: str, stream: AsyncIterator[RunOutputStream]) -> None:
    events = Events(op)
    try:
        async for event in stream:
            if events.add(event):
                break
    except Exception as error:  # as above
        complain(op, error)
    events.end()


class Conversation:
    """The commands; one instance serves one."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        keys = {"x-api-key": args.api_key} if args.api_key else None
        self.configuration = ApiClientConfiguration(host=args.url.rstrip("/"), api_key=keys)
        self.api = ACPClient(api_client=ApiClient(self.configuration))
        if args.bearer:
            self.api.api_client.default_headers["Authorization"] = f"Bearer {args.bearer}"

    def agent(self) -> str:
        if self.args.agent_id:
            return self.args.agent_id
        found = call(self.api.search_agents, AgentSearchRequest(name=self.args.name))
        return found[0].agent_id if found else UNKNOWN

    def asked(self, agent_id: str, message: str | None = None) -> dict[str, Any]:
        """What a run is created with, as the options say."""
        given = json.loads(self.args.input) if self.args.input else {"message": self.args.message}
        asked: dict[str, Any] = {"agent_id": agent_id, "input": {"message": message} if message else given}
        if self.args.tag:
            asked["config"] = Config(configurable={}, tags=self.args.tag)
        if self.args.stream_mode:
            modes = [StreamingMode(mode) for mode in self.args.stream_mode]
            asked["stream_mode"] = StreamMode(modes if len(modes) > 1 else modes[0])
        return asked

    def stateless(self) -> RunCreateStateless:
        return RunCreateStateless(**self.asked(self.agent()))

    def search(self) -> None:
        found = call(self.api.search_agents, AgentSearchRequest(name=self.args.name))
        if found:
            call(self.api.get_agent_by_id, found[0].agent_id)

    def descriptor(self) -> None:
        call(self.api.get_acp_descriptor_by_id, self.agent())

    def wait(self) -> None:
        call(self.api.create_and_wait_for_stateless_run_output, self.stateless())

    def background(self) -> None:
        run = call(self.api.create_stateless_run, self.stateless())
        if run is None:
            return
        deadline = time.monotonic() + self.args.within
        while run and dump(run)["status"] == "pending" and time.monotonic() < deadline:
            time.sleep(0.05)
            run = self.api.get_stateless_run(run.run_id)
        tell("get_stateless_run", result=dump(run))
        call(self.api.wait_for_stateless_run_output, run.run_id)
        call(self.api.search_stateless_runs, RunSearchRequest(agent_id=run.agent_id))

    def stream(self) -> None:
        method = self.api.create_and_stream_stateless_run_output
        listen(method.__name__, method(self.stateless()))

    def join(self) -> None:
        run = call(self.api.create_stateless_run, self.stateless())
        if run:
            method = self.api.stream_stateless_run_output
            listen(method.__name__, method(run.run_id))
            call(self.api.wait_for_stateless_run_output, run.run_id)

    def thread(self) -> None:
        api, agent_id = self.api, self.agent()
        thread = call(api.create_thread, ThreadCreate(metadata={"team": "red"}))
        if thread is None:
            return
        there = thread.thread_id
        first = RunCreateStateful(**self.asked(agent_id))
        second = RunCreateStateful(**self.asked(agent_id, self.args.second))
        waited = call(api.create_and_wait_for_thread_run_output, there, first)
        method = api.create_and_stream_thread_run_output
        listen(method.__name__, method(there, second))
        run = call(api.create_thread_run, there, first)
        if run:
            call(api.wait_for_thread_run_output, there, run.run_id)
            joined = api.stream_thread_run_output
            listen(joined.__name__, joined(there, run.run_id))
        if waited:
            call(api.get_thread_run, there, waited.run.run_id)
        call(api.list_thread_runs, there)
        call(api.get_thread, there)
        call(api.get_thread_history, there)
        call(api.patch_thread, there, ThreadPatch(metadata={"colour": "blue"}))
        call(api.search_threads, ThreadSearchRequest(metadata={"colour": "blue"}))
        twin = call(api.copy_thread, there)
        call(api.delete_thread, there)
        call(api.get_thread, there)
        if twin:
            call(api.get_thread, twin.thread_id)

    def there(self) -> str | None:
        return LAST["thread"] if self.args.thread == "-" else self.args.thread

    def say(self) -> None:
        api, agent_id = self.api, self.agent()
        there = self.there()
        if there is None:
            thread = call(api.create_thread, ThreadCreate())
            if thread is None:
                return
            there = LAST["thread"] = thread.thread_id
        run = call(api.create_thread_run, there, RunCreateStateful(**self.asked(agent_id)))
        if run:
            call(api.wait_for_thread_run_output, there, run.run_id)
            told = api.get_thread_run_with_http_info(there, run.run_id)
            tell("headers", result={name.lower(): value for name, value in told.headers.items()})
        call(api.get_thread, there)
        call(api.get_thread_history, there)

    def copy(self) -> None:
        twin = call(self.api.copy_thread, self.there())
        if twin:
            LAST["thread"] = twin.thread_id
            call(self.api.get_thread, twin.thread_id)

    def resume(self) -> None:
        waited = call(self.api.create_and_wait_for_stateless_run_output, self.stateless())
        for _ in range(5):
            if not waited or dump(waited)["run"]["status"] != "interrupted":
                return
            run_id = waited.run.run_id
            if call(self.api.resume_stateless_run, run_id, json.loads(self.args.answer)) is None:
                return
            waited = call(self.api.wait_for_stateless_run_output, run_id)

    def cancel(self) -> None:
        run = call(self.api.create_stateless_run, self.stateless())
        if run:
            call(self.api.cancel_stateless_run, run.run_id)
            call(self.api.get_stateless_run, run.run_id)
            call(self.api.wait_for_stateless_run_output, run.run_id, _request_timeout=self.args.within)

    def delete(self) -> None:
        waited = call(self.api.create_and_wait_for_stateless_run_output, self.stateless())
        if waited:
            call(self.api.delete_stateless_run, waited.run.run_id)
            call(self.api.get_stateless_run, waited.run.run_id)

    def errors(self) -> None:
        api, agent_id = self.api, self.agent()
        call(api.get_agent_by_id, UNKNOWN)
        call(api.get_acp_descriptor_by_id, UNKNOWN)
        call(api.create_stateless_run, RunCreateStateless(agent_id=UNKNOWN, input={"message": "x"}))
        call(api.create_stateless_run, RunCreateStateless(agent_id=agent_id, input={"message": 5}))
        call(api.create_and_wait_for_stateless_run_output, RunCreateStateless(agent_id=agent_id, input={}))
        bad = RunCreateStateless(agent_id=agent_id, input={"message": 5})
        method = api.create_and_stream_stateless_run_output
        listen(method.__name__, method(bad))
        call(api.get_stateless_run, UNKNOWN)
        call(api.wait_for_stateless_run_output, UNKNOWN)
        call(api.resume_stateless_run, UNKNOWN, {"message": "x"})
        call(api.cancel_stateless_run, UNKNOWN)
        call(api.delete_stateless_run, UNKNOWN)
        call(api.get_thread, UNKNOWN)
        call(api.create_thread_run, UNKNOWN, RunCreateStateful(agent_id=agent_id, input={"message": "x"}))
        call(api.get_thread_run, UNKNOWN, UNKNOWN)

    def reach(self) -> None:
        there = self.args.run_id
        call(self.api.get_stateless_run, there)
        method = self.api.stream_stateless_run_output
        listen(method.__name__, method(there))
        if call(self.api.resume_stateless_run, there, json.loads(self.args.answer)):
            call(self.api.wait_for_stateless_run_output, there)

    async def with_async_client(self) -> None:
        asked = self.stateless()
        async with AsyncACPClient(api_client=AsyncApiClient(self.configuration)) as api:
            method = api.create_and_stream_stateless_run_output
            await listen_async(f"{method.__name__} [async]", method(asked))


def split(argv: list[str]) -> list[list[str]]:
    """The arguments of each conversation."""
    found: list[list[str]] = [[]]
    for one in argv:
        if one == "+":
            found.append([])
        else:
            found[-1].append(one)
    return found


def main() -> None:
    names = "search descriptor wait background stream join thread say copy resume cancel delete errors reach"
    commands = {name: getattr(Conversation, name) for name in names.split()}
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=[*commands, "stream-async"])
    parser.add_argument("--url", required=True, help="the base of the server's paths")
    parser.add_argument("--api-key")
    parser.add_argument("--bearer", help="token that every request of the sync client shows")
    parser.add_argument("--run-id", help="of a run that there is")
    parser.add_argument("--thread", help="of a thread that there is; `-`: the one that was made or copied last")
    parser.add_argument("--name", help="of the agent to search for")
    parser.add_argument("--agent-id", help="of the agent, so that none is searched for")
    parser.add_argument("--message", default="red green blue", help="the run's input is {message: this}")
    parser.add_argument("--second", default="pink grey", help="the message of a thread's second run")
    parser.add_argument("--input", help="the run's input as JSON, for another shape")
    parser.add_argument("--tag", action="append", help="of the run's config")
    parser.add_argument("--stream-mode", action="append", choices=["values", "custom"])
    parser.add_argument("--answer", default='{"approved": true}', help="to an interrupt, as JSON")
    parser.add_argument("--within", type=float, default=60.0, help="seconds to poll or wait at most")
    conversations = split(sys.argv[1:])
    for given in conversations:
        args = parser.parse_args(given)
        if len(conversations) > 1:
            tell("converse", command=args.command)
        conversation = Conversation(args)
        if args.command in commands:
            commands[args.command](conversation)
        else:
            asyncio.run(conversation.with_async_client())


if __name__ == "__main__":
    main()
