"""What the gateway costs an editor: an agent of the Agent Client Protocol on stdio, and editors that prompt it.

The same prompts go to the agent directly, through a proxy that does nothing, through the gateway over WebSocket and
through `interlingua stdio`, and as runs of Agent Connect's `values` streaming to the gateway.

agent.py      the agent
editor.py     one connection to one: requests, sessions, what they are told
jobs.py       what the load can do with editors
bare.py       the proxy that does nothing, for comparison
measure.py    the measurements, in order
report.py     tables
"""
