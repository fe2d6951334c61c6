"""The real `agent-protocol-client` 1.1.0, driven from the command line. Runs under the `e2b-client` environment.

`python -P agent_protocol_client.py COMMAND --url BASE ...` (-P, or the SDK's module would be this file), where BASE
excludes `/ap/v1` (the client adds it). Each line printed is one JSON object, `{"op": OPERATION, "result": ...}` as the
client parsed it, or `{"op": OPERATION, "error": {"type", "status", "body", "retryAfter"}}`; the exit code is 0 whenever
the conversation itself ran to its end.

| command | does |
|---|---|
| `create` | creates a task |
| `steps` | creates a task (or takes `--task`) and executes steps until one says `is_last`, at most `--limit` |
| `planned` | lists the steps of `--task`, and gets the first of them |
| `artifacts` | lists a task's artifacts |
| `upload` | uploads a file to `--task` |
| `all` | every operation of the client on one new task, pagination and unknown ids too |

What the client insists on: Task `task_id artifacts[]`; Step `task_id step_id status(created|running|completed) is_last
artifacts[]`; Artifact `artifact_id agent_created file_name`; a task's artifacts listed in an object with `pagination`,
never as a bare array (the real server sends one, which this client refuses with a ValidationError); pages count from 1;
anything but a 2xx is an ApiException. An upload is named by a path on disk; bytes are taken for a path too.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from agent_protocol_client import AgentApi, ApiClient, ApiException, Configuration, StepRequestBody, TaskRequestBody

UNKNOWN = "00000000-0000-0000-0000-000000000000"
PAGE = 2


def _plain(result: Any) -> Any:
    if isinstance(result, (bytes, bytearray)):
        return result.decode("latin-1")
    return json.loads(result.json(by_alias=True)) if hasattr(result, "json") else result


async def say(op: str, call: Awaitable[Any]) -> Any:
    """Awaits one operation and prints what came of it; the result, or None where it failed."""
    try:
        result = await call
    except Exception as error:  # the whole point is to report whatever the SDK raises
        body = error.body if isinstance(error, ApiException) else str(error)
        text = body.decode(errors="replace") if isinstance(body, bytes) else body
        status = getattr(error, "status", None)
        shown = {"type": type(error).__name__, "status": status, "body": text}
        if later := (getattr(error, "headers", None) or {}).get("retry-after"):
            shown["retryAfter"] = later
        print(json.dumps({"op": op, "error": shown}), flush=True)
        return None
    print(json.dumps({"op": op, "result": _plain(result)}), flush=True)
    return result


async def create(api: AgentApi, args: argparse.Namespace) -> Any:
    extra = json.loads(args.additional_input)
    body = TaskRequestBody(input=args.input, additional_input=extra)
    return await say("create_agent_task", api.create_agent_task(task_request_body=body))


async def task_id(api: AgentApi, args: argparse.Namespace) -> str:
    if args.task:
        return args.task
    task = await create(api, args)
    return task.task_id if task else UNKNOWN


async def steps(api: AgentApi, args: argparse.Namespace, task: str) -> list[str]:
    """Executes steps until the last; the ids of those executed."""
    done = []
    for number in range(args.limit):
        text = args.step_input[number] if number < len(args.step_input) else None
        body = StepRequestBody(input=text) if text is not None else None
        call = api.execute_agent_task_step(task, step_request_body=body)
        step = await say("execute_agent_task_step", call)
        if step is None:
            break
        done.append(step.step_id)
        if step.is_last:
            break
    return done


async def planned(api: AgentApi, task: str) -> None:
    call = api.list_agent_task_steps(task, current_page=1, page_size=100)
    listed = await say("list_agent_task_steps", call)
    if listed and listed.steps:
        await say("get_agent_task_step", api.get_agent_task_step(task, listed.steps[0].step_id))


async def pages(api: AgentApi, args: argparse.Namespace) -> None:
    page = 1
    while True:
        call = api.list_agent_tasks(current_page=page, page_size=PAGE)
        listed = await say("list_agent_tasks", call)
        if not listed or len(listed.tasks) < PAGE or page >= args.limit:
            return
        page += 1


async def upload(api: AgentApi, task: str, file: str, relative_path: str | None = None) -> Any:
    call = api.upload_agent_task_artifacts(task, file, relative_path=relative_path)
    return await say("upload_agent_task_artifacts", call)


async def everything(api: AgentApi, args: argparse.Namespace) -> None:
    """Every operation of the client, on one new task; then what unknown ids are answered with."""
    task = await task_id(api, args)
    done = await steps(api, args, task)
    created = await say("get_agent_task", api.get_agent_task(task))
    for page in range(1, len(done) + 1):
        call = api.list_agent_task_steps(task, current_page=page, page_size=1)
        await say("list_agent_task_steps", call)
    for step in done:
        await say("get_agent_task_step", api.get_agent_task_step(task, step))
    artifact = await upload(api, task, args.file, "sub/dir")
    call = api.list_agent_task_artifacts(task, current_page=1, page_size=10)
    listed = await say("list_agent_task_artifacts", call)
    there = [*(listed.artifacts if listed else []), *(created.artifacts if created else [])]
    for name in dict.fromkeys(item.artifact_id for item in [*there, *([artifact] if artifact else [])]):
        call = api.download_agent_task_artifact(task, name)
        await say("download_agent_task_artifact", call)
    await pages(api, args)
    await say("create_agent_task (no body)", api.create_agent_task())
    await say("get_agent_task (unknown)", api.get_agent_task(UNKNOWN))
    await say("list_agent_task_steps (unknown)", api.list_agent_task_steps(UNKNOWN))
    await say("execute_agent_task_step (unknown)", api.execute_agent_task_step(UNKNOWN))
    await say("get_agent_task_step (unknown)", api.get_agent_task_step(UNKNOWN, UNKNOWN))
    await say("list_agent_task_artifacts (unknown)", api.list_agent_task_artifacts(UNKNOWN))
    call = api.download_agent_task_artifact(task, UNKNOWN)
    await say("download_agent_task_artifact (unknown)", call)


async def converse(args: argparse.Namespace) -> None:
    async with ApiClient(Configuration(host=args.url.rstrip("/"))) as client:
        if args.bearer:
            client.set_default_header("Authorization", f"Bearer {args.bearer}")
        api = AgentApi(client)
        match args.command:
            case "create":
                await create(api, args)
            case "steps":
                await steps(api, args, await task_id(api, args))
            case "planned":
                await planned(api, args.task)
            case "artifacts":
                call = api.list_agent_task_artifacts(args.task)
                await say("list_agent_task_artifacts", call)
            case "upload":
                await upload(api, args.task, args.file)
            case "all":
                await everything(api, args)


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = ["create", "steps", "planned", "artifacts", "upload", "all"]
    parser.add_argument("command", choices=commands)
    parser.add_argument("--url", required=True, help="the base that /ap/v1 is appended to")
    parser.add_argument("--bearer", help="token that every request shows")
    parser.add_argument("--input", default="write a haiku", help="of a task that is created")
    parser.add_argument("--additional-input", default="{}", help="of that task, as JSON")
    parser.add_argument("--step-input", action="append", default=[], help="of the next step")
    parser.add_argument("--task", help="an existing task")
    parser.add_argument("--file", help="to upload; else a small up.txt is made")
    parser.add_argument("--limit", type=int, default=20, help="of steps, and of pages")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.file is None:
            args.file = str(Path(folder, "up.txt"))
            Path(args.file).write_text("uploaded", encoding="utf-8")
        asyncio.run(converse(args))


if __name__ == "__main__":
    main()
