"""One run for one call of an MCP client: started, followed, asked about, answered. For adapters' inbound halves.

client_runs.py      what all calls of a protocol share: its agents, starting, answering and cancelling runs, progress
                    tokens; the client, as far as the agent may ask it (sampling, roots)
run_follower.py     one run for one call: notifications, questions, and the answer; Rendering: how it is told (a seam)
open_questions.py   a run's questions, put to the client of the call that follows it
log_messages.py     notifications/message: what is told beside the answer
paging.py           lists in pages
tools.py            a run as the call of a tool; Refusals: what people declined during it
pure:
questions.py        interrupts as forms, errors and answers; handles; QuestionFormat: how one is put (a seam)
documents.py        agents' documents where the protocol wants objects, and their schemas; agents as tools
keys.py             the gateway's own keys of `_meta`

A call that starts a run:

    runs = ClientRuns("name", gateway)                   # one per gateway process
    with runs.progressing(call):                         # in Service.request
        agent = await runs.agent(call.session, name)
        follower = RunFollower(runs, call, agent, rendering)
        run = await runs.start(RunRequest(...), call, told=follower.hears)
        return await follower.go(run)

One that answers the question of an earlier one: `runs.answered(...)` gives the run, and then it is followed likewise.
"""

from gateway.mcp.runs.client_runs import CallCaller, ClientRuns
from gateway.mcp.runs.documents import Documents
from gateway.mcp.runs.questions import ELICITATION, QuestionFormat, elsewhere
from gateway.mcp.runs.run_follower import Rendering, RunFollower
from gateway.mcp.runs.tools import Events, Refusals, ToolProgress, ToolRendering, Tools
