"""Agents that are subprocesses: one message per line on stdin and stdout. Knows no protocol.

pipe.py        spawn, StdioPipe: what adapters use
lines.py       both ends of the pipes: whole lines, backpressure
reader.py      reads without blocking the writer: an agent's stderr, a command's output
stderr.py      stderr: logged at a limited rate, the last lines kept
process.py     starts the warden, reads its reports; Command: a program that is run for what it prints
warden.py      a program beside each agent: ends its processes even if the gateway is killed
own_stdio.py   OwnPipe: this program's own stdin and stdout, for a gateway that is a client's agent
supervisor.py  Supervisor: starts a connection on demand, keeps it warm, restarts it after a failure
reserve.py     Reserve: processes that are started before anybody needs them
"""

from gateway.transport.stdio.pipe import StdioPipe, spawn
from gateway.transport.stdio.process import Command, Grace
from gateway.transport.stdio.reserve import Reserve
from gateway.transport.stdio.supervisor import Supervisor
