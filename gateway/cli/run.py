"""`interlingua run` and `interlingua agents`, over a route table or a running gateway; `interlingua manifest`."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import UNSET
from rich.console import Console

from gateway.cli import loop
from gateway.cli.codes import CANCELLED, DEFAULT_ROUTES, FAILED, NEEDS_ANSWER, OK, USAGE, Place, leave, read
from gateway.cli.talk import AnswerText, File, Item, Note, PendingQuestion, RunEnd, Talk, as_answer, asks, ending
from gateway.cli.view import View, table, view
from gateway.contract.reading import meant, merged
from gateway.core import wording
from gateway.core.delta import ABSENT
from gateway.core.errors import InterlinguaError, Invalid
from gateway.core.projection import unwrap, wrap
from gateway.core.types import Agent, JsonObject, RunStatus

if TYPE_CHECKING:
    from gateway.config import Config, Route

CANCEL_SECONDS = 10.0


class OutputFolder:
    """Takes files under the last part of their names. A second `report.md` becomes `report-2.md`."""

    def __init__(self, path: Path) -> None:
        """Make the folder. Exits with USAGE if that is not possible."""
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            leave(USAGE, f"--files: {path}: {error.strerror}")

    async def keep(self, name: str, content: AsyncIterator[bytes]) -> Path:
        """Write a file and return its path, which is in the folder whatever its name. Raises OSError."""
        wanted = Path(name.replace("\\", "/").replace("\0", "")).name
        path, file = self._new(wanted if wanted not in ("", "..") else "file")
        try:
            with file:
                async for piece in content:
                    file.write(piece)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _new(self, name: str) -> tuple[Path, BinaryIO]:
        path, number = self._path / name, 1
        while True:
            try:
                return path, path.open("xb")
            except FileExistsError:
                number += 1
                path = self._path / f"{Path(name).stem}-{number}{Path(name).suffix}"


def talk(place: Place, *, running: bool = True) -> AbstractAsyncContextManager[Talk]:
    """The agents there. Without `running` they are only listed, which takes no audit log. Leaves with USAGE."""
    if (table := place.table) is None:
        from gateway.cli.remote import Remote

        return Remote(place.url, place.token())
    from gateway.cli.local import Local

    return Local(read(table), serving=running)


def list_agents(place: Place) -> int:
    """Print the agents: a table on a terminal, otherwise a tab-separated line each."""

    async def listed() -> int:
        async with talk(place, running=False) as there:
            agents = await there.agents()
        if not sys.stdout.isatty():
            for agent in agents:
                print(agent.name, agent.version, " ".join(agent.description.split()), sep="\t")
            return OK
        rows = [(agent.name, agent.version, agent.description) for agent in agents]
        Console().print(table(("agent", "version", "description"), rows))
        return OK

    return loop.run(listed())


def show_agent(agent: str, place: Place) -> int:
    """Print an agent's input, and how it is called in each protocol, with a made-up input."""
    from gateway import registry
    from gateway.cli.banner import called, example

    async def shown() -> int:
        async with talk(place, running=False) as there:
            wants = await there.wants(agent)
        known, name = wants.agent, wants.agent.name
        print(" ".join(part for part in (name, known.version) if part))
        if known.description:
            print(known.description)
        fields = [f"  {wording.line(leaf)}" for leaf in wording.leaves(wants.schema)]
        print("", "Its input:", *(fields or [f"  {wording.kind(wants.schema)}"]), sep="\n")
        document = wording.example(wants.schema)
        text = None if wants.pointer is None else unwrap(document, wants.pointer)
        alone = text is not None and wrap(text, wants.pointer, wants.schema) == document
        prompt = text if alone and text is not None else json.dumps(document, ensure_ascii=False)
        table = place.table
        config = None if table is None else read(table)
        adapters = registry.scan() if config is None else config.adapters
        paths: dict[str, str | None] = {one.name: one.path for one in adapters.values() if one.serve is not None}
        if config is not None:
            paths = {one: options.path for one, options in config.inbound.items()}
        url = place.url if table is None else "http://127.0.0.1:8080"
        said = shlex.quote(prompt)
        where = f"--gateway {url}" if table is None else f"--routes {shlex.quote(str(table))}"
        print("", "Try:", f"  {called()} run {name} {'' if alone else '--input '}{said} {where}", sep="\n")
        for one, path in paths.items():
            if adapters[one].example:
                line = example(adapters[one], url, path, name, document=document, prompt=prompt)
                print(f"\n{adapters[one].title}:\n  {line}")
        return OK

    return loop.run(shown())


def run_agent(
    agent: str,
    prompt: str | None,
    place: Place,
    *,
    answers: Sequence[str],
    files: Path | None,
    document: Any = None,
) -> int:
    """Run an agent, show its output, and keep its files in the folder `files`. Returns the exit code.

    Without a prompt `document` is the agent's input.
    """
    folder = OutputFolder(files) if files is not None else None

    async def run() -> int:
        async with talk(place) as there:
            with view(agent) as shown:
                return await _Following(there, shown, list(answers), folder).follow(agent, prompt, document)

    return loop.run(run())


class _Following:
    """One run on the terminal. The first Ctrl-C cancels the run and waits for its end, the second exits at once.

    At a question Ctrl-C and Ctrl-D both cancel the run. Where nobody can be asked, the question is left as it is.
    """

    def __init__(self, place: Talk, shown: View, answers: list[str], folder: OutputFolder | None) -> None:
        self._place = place
        self._shown = shown
        self._answers = answers
        self._folder = folder
        self._lost = False  # a file that was to be kept
        self._cancelled = False
        self._asking: asyncio.Future[str | None] | None = None

    async def follow(self, agent: str, prompt: str | None, document: Any) -> int:
        work = asyncio.ensure_future(self._items(agent, prompt, document))
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            self._cancelled = True
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()  # what is done now is not to be given up
            try:
                await self._end(work)
            finally:
                work.cancel()
        return await work

    async def _end(self, work: asyncio.Future[int]) -> None:
        """Cancel the run, or the question, and wait for the work to say how it ended."""
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()
        elif not await self._cancel():
            return
        await asyncio.wait({work}, timeout=CANCEL_SECONDS)

    async def _cancel(self) -> bool:
        """Cancel the run. Returns whether there is one that is cancelled; prints why one is not."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                return await self._place.cancel()
        except (InterlinguaError, TimeoutError) as error:
            self._shown.note(f"the run could not be cancelled: {str(error) or 'no answer'}")
            return False

    async def _items(self, agent: str, prompt: str | None, document: Any) -> int:
        async with aclosing(self._place.run(agent, prompt, document)) as items:  # type: ignore[type-var]
            async for item in items:
                code = await self._show(item)
                if code is not None:
                    return code
        return FAILED

    async def _show(self, item: Item) -> int | None:
        """Show one item. Returns the exit code when there is nothing more to wait for."""
        match item:
            case AnswerText():
                self._shown.text(item)
            case Note(text):
                self._shown.note(text)
            case File(_, name, size, url):
                if self._folder is not None:
                    await self._keep(self._folder, item)
                else:
                    self._shown.note(f"file: {name} ({size} bytes) {url or 'gone with this run; --files DIR keeps it'}")
            case PendingQuestion():
                return await self._answer(item)
            case RunEnd(status, why, text):
                if text is not None and text.whole:
                    self._shown.text(text)
                if status is RunStatus.SUCCESS and not why:
                    return FAILED if self._lost else OK
                own = self._cancelled and status is RunStatus.CANCELLED
                self._shown.note("cancelled" if own else ending(status, why))
                return CANCELLED if self._cancelled or status is RunStatus.CANCELLED else FAILED
        return None

    async def _keep(self, folder: OutputFolder, file: File) -> None:
        try:
            kept = await folder.keep(file.name, self._place.read(file))
        except (OSError, InterlinguaError) as error:
            self._lost = True
            self._shown.note(f"file: {file.name} ({file.size} bytes) could not be kept: {error}")
        else:
            self._shown.note(f"file: {kept} ({file.size} bytes)")

    async def _answer(self, question: PendingQuestion) -> int | None:
        """Answer from the command line, then from the terminal, until the agent takes it."""
        while True:
            try:
                value = await self._value(question)
            except EOFError:
                self._cancelled = True
                if await self._cancel():
                    self._shown.note("cancelled")
                return CANCELLED
            if value is UNSET:
                self._shown.note(f"question: {question.text}")
                if question.choices:
                    self._shown.note(f"choices: {', '.join(question.choices)}")
                elif listed := wording.listing(question.schema):
                    self._shown.note(listed)
                self._shown.note("nobody is here to answer: run it on a terminal, or give --answer TEXT")
                self._shown.note(await self._place.leave())
                return NEEDS_ANSWER
            try:
                await self._place.answer(value)
            except Invalid as error:
                self._shown.note(f"the agent does not take this answer: {error}")
            else:
                return None

    async def _value(self, question: PendingQuestion) -> Any:
        """Ask for the answer; UNSET without a terminal. Raises EOFError when the user gives up.

        A person is asked for one value after the other; from the command line a text answers all of the question.
        """
        fields = list(wording.leaves(question.schema))
        if self._answers or len(fields) < 2:
            typed = self._answers.pop(0) if self._answers else await self._typed(question)
            return UNSET if typed is None else as_answer(typed, question.schema)
        self._shown.note(question.text)
        answer: JsonObject = {}
        for leaf in fields:
            value = await self._field(leaf, question.schema)
            if value is UNSET:
                return UNSET
            if value is not ABSENT:
                answer = merged(answer, _placed(value, leaf.path))
        return answer

    async def _field(self, leaf: wording.Leaf, form: JsonObject) -> Any:
        """Ask for one value of a form; ABSENT if it is left out, UNSET without a terminal."""
        definitions: JsonObject = {key: form[key] for key in ("$defs", "definitions") if key in form}
        schema = leaf.schema | definitions
        while True:
            typed = await self._typed(asks(None, leaf.schema, message=wording.line(leaf)))
            if typed is None:
                return UNSET
            if not typed.strip() and ("default" in leaf.schema or not leaf.required):
                return leaf.schema.get("default", ABSENT)
            found = meant(schema, typed)
            if found is not UNSET:
                return found
            self._shown.note(f"it must be {wording.kind(leaf.schema)}")

    async def _typed(self, question: PendingQuestion) -> str | None:
        """Ask the user; None without a terminal. Raises EOFError when the user gives up."""
        if self._cancelled:
            raise EOFError
        self._asking = asyncio.ensure_future(self._shown.ask(question))
        try:
            return await self._asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise EOFError from None


def _placed(value: Any, path: Sequence[str]) -> JsonObject:
    """Make an object with the value at the end of a path of names."""
    for name in reversed(path):
        value = {name: value}
    placed: JsonObject = value
    return placed


def print_manifest(agent: str, routes: Path | None) -> int:
    """Print an ACP.md (AIP-44) for an agent, as the gateway offers it. Asks the agent what it can do.

    Raises NotFound if there is none, and whatever its target raises.
    """
    from gateway.cli.local import Local

    config = read(routes or DEFAULT_ROUTES)

    async def asked() -> tuple[Agent, Route]:
        async with Local(config, serving=False) as local:
            return await local.described(agent)

    print(acp_md(config, *loop.run(asked())), end="")
    return OK


def acp_md(config: Config, agent: Agent, route: Route) -> str:
    """The file for an agent of the config."""
    from gateway.governance.printing import bridge, page

    served = any(config.adapters[name].editors for name in config.inbound)
    front = bridge(agent, route.binding, ("stdio", "websocket") if served else ("stdio",))
    ways = [f"`interlingua stdio {agent.name}` speaks for it on standard input and output."]
    if served:
        ways.append("`interlingua serve` offers it to editors over WebSocket.")
    return page(front, "\n".join([f"# {agent.name}", "", "An agent behind Interlingua.", *ways]))
