"""What an agent is to be told first comes before the prompt, in blocks of its own, for the agent alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.contract.governing import Instruction, RuleKeeping
from gateway.core.types import JsonObject
from tests.adapters.agent_client.governed_rules import Rules
from tests.adapters.agent_client.outbound_agent import rig

SKILL = Instruction("voice", "ws://skills/voice", "Be plain.")
RESOURCE = {
    "type": "resource",
    "resource": {"uri": "ws://skills/voice", "mimeType": "text/markdown", "text": "Be plain."},
}
TEXT = {"type": "text", "text": '<skill name="voice">\nBe plain.\n</skill>'}
ABOUT = {"annotations": {"audience": ["assistant"]}, "_meta": {"aip44": {"skill": "voice"}}}
ASKED = {"type": "text", "text": "hi"}


@pytest.mark.parametrize(("takes_resources", "block"), [(True, RESOURCE), (False, TEXT)])
@pytest.mark.parametrize("same", [True, False])
async def test_a_skill_is_a_block_before_what_was_asked(
    tmp_path: Path, takes_resources: bool, block: JsonObject, same: bool
) -> None:
    async with rig(cwd=tmp_path) as it:
        assert isinstance(it.outbound, RuleKeeping)
        it.can(promptCapabilities={"embeddedContext": takes_resources})
        rules = Rules(tmp_path)
        rules.preface = (SKILL,)
        said: dict[str, Any] = {"protocol": "agent_client", "creation": {"prompt": [ASKED]}} if same else {}
        context = it.context("hi", thread="t1", **said)
        context.governor = context.governed = rules
        [task] = await it.started(context)
        prompt = await it.wire.prompt()
        assert prompt["params"]["prompt"] == [{**block, **ABOUT}, ASKED]
        it.wire.end(prompt)
        await task


@pytest.mark.parametrize("remembers", [True, False])
async def test_an_agent_that_has_forgotten_the_session_is_told_anew(tmp_path: Path, remembers: bool) -> None:
    async with rig(cwd=tmp_path) as it:
        it.can(loadSession=remembers, promptCapabilities={})
        it.handlers["session/load"] = lambda _: {}
        rules = Rules(tmp_path)
        rules.first = (SKILL,)
        context = it.context("hi", thread="t1", upstream_thread={"session": "s0", "cwd": str(tmp_path)})
        context.governor = context.governed = rules
        [task] = await it.started(context)
        prompt = await it.wire.prompt()
        assert prompt["params"]["prompt"] == ([ASKED] if remembers else [{**TEXT, **ABOUT}, ASKED])
        it.wire.end(prompt)
        await task
