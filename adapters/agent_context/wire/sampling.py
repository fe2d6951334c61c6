"""The params and result of `sampling/createMessage` (section 4.3), as MCP has them: what has to be read of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from adapters.agent_context.wire.base import Number, Params, Unit, Whole, Wire


class Block(Wire):
    """A content block; of any type but text the other members are kept as they are."""

    type: str
    text: str | None = None


class SamplingMessage(Wire):
    """One message of the conversation."""

    role: Literal["user", "assistant"]
    content: Block | list[Block]

    @property
    def blocks(self) -> list[Block]:
        """The content as a list."""
        return self.content if isinstance(self.content, list) else [self.content]


class ModelHint(Wire):
    """A name, or a part of one, of a model that would do."""

    name: str | None = None


class ModelPreferences(Wire):
    """What matters most for the choice of the model; each 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: Unit | None = None
    speed_priority: Unit | None = None
    intelligence_priority: Unit | None = None


class CreateMessage(Params):
    """`sampling/createMessage`."""

    messages: list[SamplingMessage]
    max_tokens: Annotated[Whole, Field(gt=0)]
    system_prompt: str | None = None
    temperature: Number | None = None
    stop_sequences: list[str] | None = None
    model_preferences: ModelPreferences | None = None
    include_context: str | None = None
    metadata: dict[str, Any] | None = None


class MessageCreated(Params):
    """The result of `sampling/createMessage`."""

    role: Literal["user", "assistant"]
    content: Block | list[Block]
    model: str
    stop_reason: str | None = None
