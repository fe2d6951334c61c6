"""An agent made with the real `agent-protocol` 1.0.2 SDK, served by its own `Agent.start`.

Runs under the `e2b-server` environment: `python -P agent_protocol_server.py --port N --workspace DIR`. It is ready
when the port answers. What a task does is chosen by words in its input:

| word | behaviour |
|---|---|
| (none) | three steps, `is_last` on the third; step 1 writes the artifact `output.txt` |
| `one` | a single step, with the artifact |
| `plan` | all three steps are listed when the task is created |
| `ask` | step 1 asks a question, step 2 (the last) takes its own input as the answer |
| `slow N` | the first step takes N seconds |
| `fail` | the handler of the first step raises; `fail N`: of the N-th |
| `files` | the output names the uploaded files with their sizes, by name, instead of its input |
| `refuse` | the handler of the task itself raises |

Outputs are fixed by the input, so tests can name them: `step K of N: INPUT`, where INPUT is the step's own or else the
task's. The artifact holds the task's input.

What the SDK does of its own accord: it drops `additional_input` of tasks; lists artifacts as a bare array; floors
`total_pages`; answers any step id with the task's first step; a handler that raises is a 500 with the text
`Internal Server Error` and leaves the step `running` for good; a step after the last one is the same 500.
"""

import argparse
import asyncio
import re
from pathlib import Path

from agent_protocol import Agent, Step, Task

QUESTION = "Which colour?"


def _number(words: str, word: str, default: str) -> float:
    found = re.search(rf"\b{word} ([0-9.]+)", words)
    return float(found.group(1) if found else default)


def _has(words: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", words) is not None


def _total(words: str) -> int:
    return 1 if _has(words, "one") else 2 if _has(words, "ask") else 3


async def task_handler(task: Task) -> None:
    """Called by the SDK once a task exists: plans its first step, or all."""
    words = task.input or ""
    if _has(words, "refuse"):
        raise RuntimeError("the agent refuses this task")
    total = _total(words)
    for number in range(1, (total if _has(words, "plan") else 1) + 1):
        await Agent.db.create_step(task.task_id, name=f"Step {number}", is_last=number == total)


async def step_handler(step: Step) -> Step:
    """Called by the SDK for the next step that is still `created`: does it and plans the one after."""
    task = await Agent.db.get_task(step.task_id)
    words = task.input or ""
    total = _total(words)
    number = task.steps.index(step) + 1
    if _has(words, "fail") and number == _number(words, "fail", "1"):
        raise RuntimeError("the agent fails on purpose")
    if _has(words, "slow") and number == 1:
        await asyncio.sleep(_number(words, "slow", "1"))
    if number == 1:
        artifact = await Agent.db.create_artifact(step.task_id, "output.txt", step_id=step.step_id)
        write(Path(Agent.get_artifact_folder(task.task_id, artifact)), artifact.file_name, words)
    if _has(words, "files"):
        step.output = f"step {number} of {total}: files {', '.join(sorted(_uploaded(task)))}"
    elif _has(words, "ask"):
        step.output = QUESTION if number == 1 else f"You said: {step.input}"
    else:
        step.output = f"step {number} of {total}: {step.input or words}"
    if not step.is_last and not _has(words, "plan"):
        name = f"Step {number + 1}"
        await Agent.db.create_step(task.task_id, name=name, is_last=number + 1 == total)
    return step


def _uploaded(task: Task) -> list[str]:
    given = [each for each in task.artifacts if not each.agent_created]
    folders = [Path(Agent.get_artifact_folder(task.task_id, each)) for each in given]
    return [
        f"{each.file_name} ({(folder / each.file_name).stat().st_size})"
        for each, folder in zip(given, folders, strict=True)
    ]


def write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workspace", type=Path, required=True)
    args = parser.parse_args()
    Agent.workspace = str(args.workspace.resolve())
    Agent.setup_agent(task_handler, step_handler).start(args.port)


if __name__ == "__main__":
    main()
