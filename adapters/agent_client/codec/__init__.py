"""Agent Client Protocol to core and back, pure.

An agent of this protocol speaks:
    updates_in.py   its updates to events, with messages.py and tools.py
    event_forms.py  one event as one update, and what goes into `origin`
A client of this protocol is told:
    updates_out.py  events to updates; of agents of other protocols with output_text.py and document.py, of agents of
                    version 2 with v2_for_v1.py
Both ways:
    questions.py    permissions and forms
    turn.py         how a prompt ends
    content.py      content blocks
    agents.py       `initialize`, and with options.py the options of a session
    errors.py       the error tree as JSON-RPC errors
"""

from adapters.agent_client.codec.errors import ERRORS

__all__ = ["ERRORS"]
