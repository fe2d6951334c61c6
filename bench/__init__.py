"""What the gateway costs: an agent, the gateway and a load, each a process of its own, on this machine.

`python -m bench` (or `make bench`) measures every figure directly at the agent and through the gateway, alternately in
the same run, since on a shared machine only their difference means something. docs/performance.md says how to read it.

__main__.py   arguments; the only place that prints
sizes.py      how much of everything: full, quick, tiny
measure.py    the measurements, in order
growth.py     what one costs beside few others, and beside many
workers.py    one worker beside several, on SQLite and on PostgreSQL
compare.py    two versions of the gateway in turns
peers/        other gateways in front of the same agents
stage.py      the processes: started, asked for their memory and processor time, ended
way.py        which files a chunk and a request pass; a program of its own
memory.py     how much memory the gateway has after how many runs; a program of its own
idle.py       what an idle WebSocket takes, beside servers that do nothing; a program of its own
load.py       the load: does one job at a time, told on its standard input
bare.py       a proxy of well-known libraries that does nothing else, for comparison
lean.py       a translator that does nothing else, without and with two rows a run: the floor
agent.py      the Agent Connect echo agent and the example one
http.py       both ends of HTTP/1.1 that agent and load stand on, as lean as can be
rpc/          what the next two share: a client, rounds each way, an agent without an event loop
agent_client/ the same for editors: their agent on stdio, their load, what is measured and reported
agent_communication/  the same for clients of that protocol, and what large documents cost, as deltas and as snapshots
stamp.py      what a chunk is
chunks.py     what the load notes of the chunks of a stream
rounds.py     turns, medians, who took how much of a core
report.py     the text
wanted.py     the summary: what is wanted, what was measured
tables.py     what reports are made of
"""
