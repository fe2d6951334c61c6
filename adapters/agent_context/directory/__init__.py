"""The directory: which agents there are, where they are, how good they are, what they have done.

directory.py    Directory: what the other rooms ask for; registering, beating, leaving
members.py      who registered, as this process sees it, and the link to each
registered.py   one registered agent, its record, its connection, and whether it is there
replication.py  what all replicas tell each other
evaluation.py   how good an agent is: what others say of it, and what the gateway measured
conduct.py      what it does that is unusual; access that is revoked
listing.py      all agents of all protocols, and those that match a search
announcing.py   the gateway's agents at other directories
"""

from __future__ import annotations

from adapters.agent_context.directory.directory import Directory

__all__ = ["Directory"]
