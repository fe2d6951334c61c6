"""The coordination service (section 5.2): tasks go to the best agent that may have them.

A task is a run of an agent of the gateway's own, the coordinator: a retry policy over attempts, each of which is a run
of the agent that was chosen. So a task has the log, the questions, the cancelling and the recovery that every run has.

coordinator.py  Coordinator: the outbound half of that agent. TaskWork: choose an agent, have it approved, have it try,
                take the next
task_record.py  what is kept of a task: phases, moves, and the table of which move is legal when; the question whether
                an agent may have it
attempt_run.py  an attempt's run: started, found again, followed; what it says is said by the task
choosing.py     who may have a task, best first; who waits, and how much each agent has to do
tasks.py        runs seen as tasks: agent://tasks; which run a task is

    inbound -> Tasks -> Gateway.runs.start(coordinator) -> Coordinator.run -> Gateway.runs.start(agent) -> agent
    inbound <- Watch <- run of the coordinator <- AttemptSpeech <- Watch <- run of the agent
"""

from adapters.agent_context.coordination.coordinator import Coordinator

__all__ = ["Coordinator"]
