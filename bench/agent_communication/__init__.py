"""What the gateway costs a client of the pre-alpha Agent Communication Protocol, and what deltas and snapshots of large
documents cost.

agent.py      the agents: one grows a text, one a list; on stdio
wires.py      Streamable HTTP's client end, beside those of rpc/wires.py
caller.py     one connection of a client: requests, and the deltas it is told
jobs.py       what the load can do with callers
bare.py       the proxy that does nothing, for comparison
lean.py       a translator of tool calls that does nothing else, with two rows a call or without
routes.py     the gateway's agents here
measure.py    calls: time added to a delta, deltas a second
documents.py  large documents: deltas to snapshots, snapshots and chunks to deltas
report.py     tables
"""
