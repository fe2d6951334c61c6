"""Agents, as they are published."""

import uuid
from functools import lru_cache

from gateway.core.types.records import JsonObject, Record

AGENT_NAMESPACE = uuid.UUID("6f1c0f53-5a0a-5d3e-9b53-0d4b7c9d6f2a")


@lru_cache(1024)
def agent_id(name: str) -> str:
    """The UUID of an agent where a protocol wants one: UUIDv5 of the route name, the same on every replica."""
    return str(uuid.uuid5(AGENT_NAMESPACE, name))


def description(name: str, *said: str | None) -> str:
    """The first description of the agent `name` that says anything; a default where none does."""
    return next((each for each in said if each and not each.isspace()), f"The agent {name}, through Interlingua.")


class InterruptSpec(Record, frozen=True, kw_only=True):
    """One kind of question an agent may ask, as published."""

    kind: str
    payload_schema: JsonObject
    answer_schema: JsonObject


class AgentCapabilities(Record, frozen=True, kw_only=True):
    """The agent's own abilities. The gateway adds callbacks and waiting to every agent."""

    threads: bool = False
    interrupts: bool = False
    streaming: bool = False
    custom_streaming: bool = False
    cancel: bool = False
    artifacts: bool = False
    """It may produce files."""
    files: tuple[str, ...] = ()
    """Media ranges (`image/*`, `*/*`) of the files that it takes by its protocol's own means, beside its input. Without
    any, its input schema may have places for files: see `core.files`."""
    rollback: bool = False
    tool: bool = False
    """It is a plain tool: it takes arguments, no conversation. Earlier turns are never put into its input."""


class Standing(Record, frozen=True, kw_only=True):
    """How an agent is weighed against others when nobody names the one that is to do a task. None: not known.

    `quality` and `security` are ratings from 0 to 10, more is better; `cost` is what a token costs, in the one
    currency of the operator's choice; `speed` is tokens a second.
    """

    approve: bool = False
    """A person must approve before it is given a task."""
    quality: float | None = None
    cost: float | None = None
    speed: float | None = None
    security: float | None = None


class ModelTraits(Record, frozen=True, kw_only=True):
    """Traits of a language model, each from 0 to 1 relative to other models (an expensive one has `cost` 1)."""

    cost: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5


class Agent(Record, frozen=True, kw_only=True):
    """An agent as it is published, in every protocol's own form.

    `name` is the route's name, what clients call it. Schemas are JSON Schemas. `text_input` and `text_output`
    are JSON pointers to the text inside the documents, None where a document has none (see projection.py).
    `input_assumed` and `output_assumed`: the agent publishes no such schema, and the gateway's stands in for it.
    `extra` holds what the target's protocol publishes beyond this, by protocol id, verbatim. `model` is given where
    the agent stands for a language model: then it may serve requests to complete a text. `converses`: earlier turns of
    a thread reach it, by its own memory or by replay. `thread_schema`: of the state of a thread, where the agent keeps
    it; `{}` where it does not say what that is.
    """

    name: str
    version: str = "0.0.0"
    description: str = ""
    input_schema: JsonObject
    output_schema: JsonObject
    config_schema: JsonObject = {}
    thread_schema: JsonObject | None = None
    update_schema: JsonObject | None = None
    interrupts: tuple[InterruptSpec, ...] = ()
    capabilities: AgentCapabilities = AgentCapabilities()
    labels: dict[str, list[str]] = {}
    text_input: str | None = None
    text_output: str | None = None
    input_assumed: bool = False
    output_assumed: bool = False
    url: str | None = None
    extra: dict[str, JsonObject] = {}
    standing: Standing = Standing()
    model: ModelTraits | None = None
    converses: bool = False

    @property
    def id(self) -> str:
        """Its UUID (see `agent_id`)."""
        return agent_id(self.name)
