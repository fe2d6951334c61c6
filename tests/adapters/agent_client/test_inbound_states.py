"""Where an editor's session is, and its prompt, by what has happened to it."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from msgspec import Raw

from adapters.agent_client.inbound.context import OpenedBy, SessionContext
from adapters.agent_client.inbound.turns import PromptTurn, V2PromptTurn
from gateway.core.errors import Conflict
from gateway.core.types import Thread


def session() -> SessionContext:
    return SessionContext(Mock(), Thread(id="s", created_at=0.0, updated_at=0.0), "agent", Raw(b"{}"))


async def test_a_prompt_waits_for_the_last_one_and_a_session_is_opened_again_once_it_is_answered() -> None:
    state, first = session(), PromptTurn()
    state.may_reopen()
    state.begin(first)
    for refused in (lambda: state.begin(PromptTurn()), state.may_reopen):
        with pytest.raises(Conflict, match="session s is busy with its last prompt"):
            refused()
    assert state.turn is first
    state.finish(PromptTurn())
    assert state.turn is first
    state.finish(first)
    state.may_reopen()
    state.begin(second := V2PromptTurn([]))
    with pytest.raises(Conflict):
        state.may_reopen()
    second.heard()
    state.may_reopen()
    with pytest.raises(Conflict):
        state.begin(PromptTurn())


def test_a_client_is_told_what_was_until_it_was_and_not_once_it_has_left() -> None:
    state = session()
    state.opens(OpenedBy.LOAD)
    state.replays()
    assert (state.replaying, state.opened, state.closed) == (True, False, False)
    state.told()
    assert (state.replaying, state.opened, state.closed) == (False, True, False)
    state.replays()
    assert (state.replaying, state.opened) == (True, True)
    for late in (state.close, state.replays, state.told, state.close):
        late()
        assert (state.replaying, state.opened, state.closed) == (False, True, True)
