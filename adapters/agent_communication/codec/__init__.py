"""Core to the pre-alpha Agent Communication Protocol and back. Pure: no clocks, no fresh ids, no IO.

agents.py      agents, templates and tools as they are published; input and output documents
deltas_out.py  a run's events -> progress notifications; its end -> the answer of agents/run
deltas_in.py   an agent's progress and answer -> events
errors.py      the error tree as JSON-RPC errors

The same run as the call of a tool, and interrupts as forms, errors and answers, are in gateway/mcp/runs.
"""

from adapters.agent_communication.codec.errors import ERRORS

__all__ = ["ERRORS"]
