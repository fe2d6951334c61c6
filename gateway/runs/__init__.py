"""Starts, watches, answers, cancels, times out and recovers runs.

    engine.py          the `Gateway` that inbound adapters call; its other parts are in parts.py
    starting.py        from a request to its run's dispatch, and what follows the end
    recovery.py        runs that a dead gateway left
    live.py            one run in progress: the `RunContext` that outbound adapters see
    run_record.py      its record and its log, changed together
    questions.py       what its agent asks, and what its input lacks
    thread_context.py  its conversation, as the agent sees it
    log.py             its numbered events; watching.py: those who read them
    threads.py         conversations: records, checkpoints, copies; states.py: what each has come to
    webhooks.py        callbacks that are owed
    post.py            calls to other gateway processes; elsewhere.py: about runs there; bells.py: following those
    callers.py         clients and conversations of other processes

Data goes one way: outbound adapter -> LiveRun.emit -> Opener (legal order) -> RunLog (number, store, show) -> watchers.
"""

from gateway.runs.engine import Engine
