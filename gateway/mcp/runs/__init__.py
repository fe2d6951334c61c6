"""One run for one call of an MCP client: started, followed, asked about, answered. For adapters' inbound halves.

client_runs.py      what all calls of a protocol share: its agents, starting and cancelling runs, progress tokens; the
                    client, as far as the agent may ask it (sampling, roots)
run_follower.py     one run for one call: notifications, questions, and the answer
rendering.py        Rendering: how a run is told (a seam); ToolRendering: as a tool's result is, for any MCP client;
                    Refusals: what people declined during it
open_questions.py   the run's open questions, put to the client of the call that follows it
question_format.py  QuestionFormat: how one question is put (a seam); Elicitation: as MCP asks
waiting_runs.py     runs that wait for an answer, and the calls that bring it, by a handle or by `requestState`
log_messages.py     notifications/message: what is told beside the answer
paging.py           lists in pages
pure:
questions.py        interrupts as forms, errors and answers; handles
tools.py            a run as the call of a tool
documents.py        agents' documents where the protocol wants objects; agents as tools
schemas.py          their schemas
keys.py             the gateway's own keys of `_meta`

A call that starts a run:

    runs = ClientRuns("name", gateway)                   # one per gateway process
    with runs.progressing(call):                         # in Service.request
        agent = await runs.agent(call.session, name)
        follower = RunFollower(runs, call, agent, rendering)
        run = await runs.start(RunRequest(...), call, told=follower.hears)
        return await follower.go(run)

One that answers the question of an earlier one: `WaitingRuns(runs).answer(...)` (a handle) or `.again(...)` (a modern
client's `requestState`) give the run, and then it is followed likewise.
"""

from gateway.mcp.runs.client_runs import CallCaller, ClientRuns
from gateway.mcp.runs.documents import Documents
from gateway.mcp.runs.log_messages import wanted
from gateway.mcp.runs.question_format import ELICITATION, QuestionFormat
from gateway.mcp.runs.rendering import Events, Refusals, Rendering, ToolRendering
from gateway.mcp.runs.run_follower import RunFollower
from gateway.mcp.runs.tools import ToolProgress, Tools
from gateway.mcp.runs.waiting_runs import Given, WaitingRuns, elsewhere

__all__ = [
    "ELICITATION",
    "CallCaller",
    "ClientRuns",
    "Documents",
    "Events",
    "Given",
    "QuestionFormat",
    "Refusals",
    "Rendering",
    "RunFollower",
    "ToolProgress",
    "ToolRendering",
    "Tools",
    "WaitingRuns",
    "elsewhere",
    "wanted",
]
