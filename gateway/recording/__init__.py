"""Records the wire of runs, where the route or an operator wants it (docs/decisions/0053).

It stands beside the engine and the transports, which ask it nothing while no run is recorded.

recorder.py   which runs are recorded; implements `gateway.contract.interception.RunRecorder`; asks other processes
recording.py  what was said of one run, in order, within bounds
redaction.py  takes secrets out of it, before it is kept
"""

from gateway.recording.recorder import LIMITS, MOST_SECONDS, AllRecordings, ReadRecording, Recorder, TurnRecording
from gateway.recording.recording import RunRecording
