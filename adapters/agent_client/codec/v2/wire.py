"""Words of version 2 of the protocol (schema v2, `schema.json`), as far as the codec knows them."""

from __future__ import annotations

from typing import Final

VERSION: Final = 2

UPDATE: Final = "sessionUpdate"
STATE: Final = "state_update"
RUNNING: Final = "running"
IDLE: Final = "idle"
REQUIRES_ACTION: Final = "requires_action"

WHOLE: Final = {
    "agent_message": "agent_message_chunk",
    "agent_thought": "agent_thought_chunk",
    "user_message": "user_message_chunk",
}
"""Updates that say a whole message -> those that go on with it."""
CHUNK: Final = {chunk: whole for whole, chunk in WHOLE.items()}
CALL: Final = "tool_call_update"
CALL_CHUNK: Final = "tool_call_content_chunk"
PLAN: Final = "plan_update"
PLAN_REMOVED: Final = "plan_removed"
TERMINAL: Final = "terminal_update"
TERMINAL_CHUNK: Final = "terminal_output_chunk"
USAGE: Final = "usage_update"
SUBAGENT: Final = "subagent_update"
STATES: Final = frozenset({"available_commands_update", "config_option_update", "session_info_update"})
"""Updates of which only the newest counts."""

MODE: Final = "mode"
"""Category of the option that is a session's mode, and its id where version 1 calls it a mode."""
MAIN_PLAN: Final = "main"
"""Id of the one plan that version 1 has (RFD: v2 plan variants)."""
