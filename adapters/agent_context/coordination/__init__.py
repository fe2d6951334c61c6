"""The coordination service (section 5.2): tasks go to the best agent that may have them.

A task is a run of an agent of the gateway's own, the coordinator. What it does is start a run of the agent it has
chosen, an attempt, pass on what that says, and try the next agent when it fails. So a task has the log, the questions,
the cancelling and the recovery that every run has.

coordinator.py  Coordinator: the outbound half of that agent     job.py     one task under way, and what is kept of it
choosing.py     who may have a task, best first                  consent.py asking a person first
queue.py        who waits, and how much each agent has to do     attempts.py  an attempt: started, found again, followed
mirror.py       what an attempt says, said by the task           work.py    all steps of a task, from beginning to end
tasks.py        runs seen as tasks: agent://tasks                index.py   which run a task is

    inbound -> Tasks -> Gateway.start(coordinator) -> Coordinator.run -> Gateway.start(agent) -> agent
    inbound <- Watch <- run of the coordinator     <- Mirror          <- Watch
"""

from adapters.agent_context.coordination.coordinator import Coordinator

__all__ = ["Coordinator"]
