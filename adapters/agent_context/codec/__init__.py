"""Core to the Agent Context Protocol and back. Pure: no clocks, no fresh ids, no IO.

agents.py   agents as the directory has them     content.py  payloads, inputs and outputs
ranking.py  which agent is the best for a task    errors.py   the error tree as JSON-RPC errors, and back
nlip.py     payloads in the form of NLIP          files.py    files in payloads
"""

from adapters.agent_context.codec.errors import ERRORS

__all__ = ["ERRORS"]
