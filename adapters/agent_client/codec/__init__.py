"""Agent Client Protocol to core and back, pure.

Here is version 1, in whose words the halves speak to one another, and what both versions share, by what it is:
    version.py      requests, answers and questions of a version
    updates_in.py   an agent's updates to events: messages and tool calls
    updates_out.py  events to updates, of agents of other protocols by the text of their output; updates_out_v1.py
    event_forms.py  one event as one update, and what goes into `origin`
    questions.py    permissions and forms
    turn.py         how a prompt ends
    content.py      content blocks
    agents.py       `initialize`, and the options of a session
    errors.py       the error tree as JSON-RPC errors
In v2/, where version 2 differs, are modules of the same names, and:
    memory.py       what an agent has said in a session, with tool_calls.py
    updates.py      what belongs to no run
"""

from adapters.agent_client.codec.errors import ERRORS

__all__ = ["ERRORS"]
