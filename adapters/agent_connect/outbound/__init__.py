"""Calling Agent Connect agents.

agent.py     AgentConnectOutbound: what the gateway calls
start.py     sending a run: by stream, in the background or blocking, on a thread or not
follow.py    seeing it to its end: streams, questions, cancels
poll.py      what became of it, asked of the agent: blocking waits, or its record
locate.py    which agent it is, and what it says of itself
request.py   the body that starts a run
calls.py     HTTP, and what refusals mean
"""

from adapters.agent_connect.outbound.agent import AgentConnectOutbound

__all__ = ["AgentConnectOutbound"]
