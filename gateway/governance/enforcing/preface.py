"""What the agent of a session is told before what was asked: the skills of its operator, in its first turn."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.contract.governing import Instruction
from gateway.governance.skills import Skill

SKILLS = "skills"
"""What skills that an agent could not be told of are counted as."""


def instructions(skills: Sequence[Skill]) -> tuple[Instruction, ...]:
    """As outbound adapters see them. What has no instructions is nothing to be told."""
    return tuple(Instruction(skill.id, skill.ref, skill.body) for skill in skills if skill.body)


def plain(told: Sequence[Instruction]) -> str:
    """The same as text."""
    return "\n\n".join(one.plain for one in told)
