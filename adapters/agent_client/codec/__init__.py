"""Agent Client Protocol to core and back, pure.

version.py is the interface of a version; v1/ and v2/ implement it. What they share is here, by what it is:
    updates_in.py   an agent's updates to events, with messages.py and tools.py
    event_forms.py  one event as one update, and what goes into `origin`
    document.py     the text of a document, for agents of other protocols
    questions.py    permissions and forms
    turn.py         how a prompt ends
    content.py      content blocks
    agents.py       `initialize`, and with options.py the options of a session
    errors.py       the error tree as JSON-RPC errors
In v1/ and v2/:
    updates_out.py  events to updates, of agents of other protocols with output_text.py
    v1/from_v2.py   what version 1 says of agents of version 2
    v2/memory.py    what an agent of version 2 has said in a session, with messages.py, tool_calls.py, terminals.py
    v2/requests.py  requests and their answers, with conversions.py, agents.py and questions.py
"""

from adapters.agent_client.codec.errors import ERRORS

__all__ = ["ERRORS"]
