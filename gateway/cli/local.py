"""A `Talk` with the agents of a route table, run in this process: what `--routes FILE` talks to.

The runs are the operator's own and are kept nowhere: the store is a temporary one, whatever the file says.
"""

from __future__ import annotations

import asyncio
import getpass
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

import msgspec

from gateway.agents.entry import Entry
from gateway.app import App
from gateway.cli.talk import AnswerText, File, Item, ListedAgent, Notes, RunEnd, Wants, as_text, asks
from gateway.config import Config, Route
from gateway.contract import next_batch
from gateway.core import events as e
from gateway.core.errors import AgentGone, Conflict, InterlinguaError
from gateway.core.output import Output
from gateway.core.stopping import cut_short
from gateway.core.types import Agent, Answer, Identity, Run, RunRequest
from gateway.registry import OPERATOR


class Local:
    """Use as an async context manager; one run at a time."""

    def __init__(self, config: Config, *, serving: bool = True) -> None:
        """Without `serving` agents are described and none is run."""
        self._directory = tempfile.TemporaryDirectory(prefix="interlingua-", ignore_cleanup_errors=True)
        store = config.store.model_copy(update={"url": f"sqlite:///{self._directory.name}/runs.db"})
        own = config.model_copy(update={"store": store, "inbound": {}})
        self._app = App(own, serving=serving)
        self._begun: asyncio.Future[Run] | None = None
        self._answered = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._app.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._directory:
            await self._app.stop()

    async def agents(self) -> Sequence[ListedAgent]:
        found = await self._app.gateway.agents.list(OPERATOR)
        return [ListedAgent(agent.name, agent.version, agent.description) for agent in found]

    async def wants(self, agent: str) -> Wants:
        found, _ = await self.described(agent)
        return Wants(ListedAgent(found.name, found.version, found.description), found.input_schema, found.text_input)

    async def described(self, name: str) -> tuple[Agent, Route]:
        """The agent as its target describes it, and its route. Raises NotFound, and whatever the target raises."""
        entry = await self._app.gateway.agents.find(name, OPERATOR)
        return await entry.need(), entry.route

    async def everything(self) -> Sequence[tuple[Entry, Agent | InterlinguaError]]:
        """Every agent as its target describes it, or why it does not; and each target that stands for many and does not
        say for which.
        """
        agents = self._app.gateway.agents
        away = [(host, AgentGone(host.reason)) for host in agents.unlisted]
        described = await asyncio.gather(*map(_described, agents.entries))
        return [*zip(agents.entries, described, strict=True), *away]

    async def run(self, agent: str, prompt: str | None, document: Any = None) -> AsyncIterator[Item]:
        gateway = self._app.gateway
        found = await gateway.agents.get(agent, OPERATOR)
        said = {} if prompt == "" else document
        request = RunRequest(agent=found.name, input=said, prompt=prompt, protocol=OPERATOR)
        self._begun = asyncio.ensure_future(gateway.runs.start(request))
        run = await asyncio.shield(self._begun)
        output, text, notes = Output(found), AnswerText(""), Notes()
        async with gateway.runs.watch(run.id) as watch:
            while (batch := await next_batch(watch)) is not None:
                changed = [output.apply(event) for _, event in batch.events]
                if any(changed):
                    text = as_text(output.document, found.text_output)
                    yield text
                for _, event in batch.events:
                    async for item in self._told(event, found, watch.run, text, notes):
                        yield item

    async def _told(
        self, event: e.Event, agent: Agent, run: Run, text: AnswerText, notes: Notes
    ) -> AsyncIterator[Item]:
        """The items that an event shows besides the text."""
        if isinstance(event, e.Interrupted):
            asked = event.interrupt
            self._answered.clear()
            specs = {spec.kind: spec.answer_schema for spec in agent.interrupts}
            schema = asked.answer_schema or specs.get(asked.kind, {})
            yield asks(asked.payload, schema, kind=asked.kind, message=asked.message)
            await self._answered.wait()
        elif isinstance(event, e.TERMINAL):
            failure = run.failure
            why = failure.message if failure else run.cancel_reason or cut_short(run.stop_reason) or ""
            yield RunEnd(run.status, why, text)
        elif isinstance(event, e.ArtifactAdded):
            yield File(event.artifact.id, event.artifact.name, event.artifact.size)
        else:
            told = msgspec.to_builtins(event)
            if (line := notes.of({**told, "type": told["event"]})) is not None:
                yield line

    async def answer(self, value: Any) -> None:
        id = await self._id()
        asked = (await self._app.gateway.runs.get(id)).interrupts
        run = await self._app.gateway.runs.answer(id, Answer(value=value, by=_user()))
        if asked and run.interrupts[:1] == asked[:1]:
            raise Conflict("the answer counts, and it takes those of others as well: nobody else is here to give them")
        self._answered.set()

    def read(self, file: File) -> AsyncIterator[bytes]:
        return self._app.gateway.files.open(file.id)

    async def cancel(self) -> bool:
        if self._begun is None:
            return False
        await self._app.gateway.runs.cancel(await self._id(), wait=True)
        return True

    async def _id(self) -> str:
        """The run's id, as soon as the run is stored."""
        assert self._begun is not None, "called once a run is asked for"
        return (await asyncio.shield(self._begun)).id

    async def leave(self) -> str:
        """See `Talk.leave`: the run ends with this program."""
        await self.cancel()
        return "the run is cancelled: it was kept nowhere else"


async def _described(entry: Entry) -> Agent | InterlinguaError:
    try:
        return await entry.need()
    except InterlinguaError as error:
        return error


def _user() -> Identity | None:
    """The user at the terminal by the machine's name, by which a policy can name an approver."""
    try:
        return Identity(id=getpass.getuser())
    except (OSError, KeyError, ImportError):
        return None
