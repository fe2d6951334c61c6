"""Agent Client Protocol to core and back, pure.

version.py is the interface of a version; v1/ and v2/ implement it. What they share is here, by what it is:
    updates_in.py   an agent's updates to events: messages and tool calls
    updates_out.py  events to updates, of agents of other protocols by the text of their output
    event_forms.py  one event as one update, and what goes into `origin`
    questions.py    permissions and forms
    turn.py         how a prompt ends
    content.py      content blocks
    agents.py       `initialize`, and the options of a session
    errors.py       the error tree as JSON-RPC errors
In v1/ and v2/:
    updates_out.py  events to updates
    version.py      requests, answers and questions
    v2/memory.py    what an agent of version 2 has said in a session, with tool_calls.py
    v2/updates.py   what belongs to no run
"""

from adapters.agent_client.codec.errors import ERRORS

__all__ = ["ERRORS"]
