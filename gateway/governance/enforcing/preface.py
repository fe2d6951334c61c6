"""What the agent of a session is told before what was asked: the skills of its operator, in its first turn."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.adapter.governing import Instruction
from gateway.core import delta
from gateway.core.delta import ABSENT
from gateway.core.projection import LAST
from gateway.core.types import Json
from gateway.governance.skills import Skill

SKILLS = "skills"
"""What skills that an agent could not be told of are counted as."""


def instructions(skills: Sequence[Skill]) -> tuple[Instruction, ...]:
    """As outbound adapters see them. What has no instructions is nothing to be told."""
    return tuple(Instruction(skill.id, skill.ref, skill.body) for skill in skills if skill.body)


def plain(told: Sequence[Instruction]) -> str:
    """The same as text."""
    return "\n\n".join(one.plain for one in told)


def prefixed(document: Json, pointer: str | None, text: str) -> Json:
    """The document with a text before that at the pointer (see `projection`); ABSENT where it has none there."""
    if pointer is None:
        return ABSENT
    steps: list[str | int] = []
    value = document
    for step in delta.split(pointer):
        if step == LAST and isinstance(value, list) and value:
            steps.append(len(value) - 1)
            value = value[-1]
        else:
            steps.append(step)
            value = delta.pointer_get(value, delta.join([step]))
    if isinstance(value, str):
        return delta.pointer_set(document, delta.join(steps), f"{text}\n\n{value}" if value else text)
    if isinstance(value, list) and value and all(isinstance(one, dict) and "type" in one for one in value):
        return delta.pointer_set(document, delta.join(steps), [{"type": "text", "text": text}, *value])
    return ABSENT
