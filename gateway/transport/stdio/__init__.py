"""Agents that are subprocesses: one message a line on stdin and stdout. Knows no protocol.

pipe.py        spawn, StdioPipe: what adapters use
lines.py       both pipes' ends: whole lines, backpressure
reader.py      what nobody may have to wait for: an agent's stderr, a command's output
stderr.py      stderr: logged within measure, the last lines kept
process.py     starts the warden, hears from it how the agent fares
warden.py      a program of its own beside each agent: no process is left, even when the gateway is killed
own_stdio.py   OwnPipe: this program's own stdin and stdout, where the gateway is somebody's agent
supervisor.py  Supervisor: starts a connection when it is needed, keeps it warm, starts it again when it dies
"""

from gateway.transport.pipe import LIMIT
from gateway.transport.stdio.pipe import StdioPipe, spawn
from gateway.transport.stdio.process import Exit, Grace
from gateway.transport.stdio.supervisor import Supervisor

__all__ = ["LIMIT", "Exit", "Grace", "StdioPipe", "Supervisor", "spawn"]
