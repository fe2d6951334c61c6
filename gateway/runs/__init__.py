"""Starts, watches, answers, cancels, times out and recovers runs.

    engine.py     the `Gateway` that inbound adapters call
    live.py       one run in progress: the `RunContext` that outbound adapters see
    run_files.py  its files
    shielded.py   changes of it that are carried out whole
    unwritten.py  its end, while the store does not take it
    turns.py      runs that wait for others on their thread
    log.py        its numbered events, and watchers
    garbage.py    what ended runs leave in memory
    threads.py    conversations: records, checkpoints, copies
    webhooks.py   callbacks that are owed

Data goes one way: outbound adapter -> LiveRun.emit -> Opener (legal order) -> RunLog (number, store, show) -> watchers.
"""

from gateway.runs.engine import Engine

__all__ = ["Engine"]
