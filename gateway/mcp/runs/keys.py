"""The gateway's own keys of `_meta`, the same in every protocol over MCP; and what a `_meta` says of a run."""

from __future__ import annotations

from typing import Final

from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.stopping import cut_short
from gateway.core.types import JsonObject, Run
from gateway.mcp.wire import PROGRESS_TOKEN

RESUME: Final = "interlingua/resume"
"""Of a call: which question it answers (`questions.handle`). Of an answer: with what to answer."""
OUTCOME: Final = "interlingua/outcome"
"""Of a call that answers: answered (the default), declined or cancelled."""
CONFIG: Final = "interlingua/config"
"""Of a call: the run's configuration, where its params have no place for it."""
INTERRUPT: Final = "interlingua/interrupt"
"""Of an answer: the question that is open."""
RUN_ID: Final = "interlingua/run"
LOST: Final = "interlingua/lost"
"""Of an answer: what could not be said, how often, by name (`Adapter.losses`)."""
OUTPUT: Final = "interlingua/output"
"""Of the answer of a tool that failed or asks: the output so far."""
FAILURE: Final = "interlingua/failure"
"""Of the answer of a tool that failed: the code of the error tree, and whether it may be tried again."""
STOPPED: Final = "interlingua/stopReason"
"""Of an answer: why the run stopped before its work was done (max_tokens, max_turn_requests, refusal)."""
PUBLISHED: Final = "interlingua/agent"
"""Of an agent or tool: what its protocol has no key for (version, labels, interrupts)."""

INTERRUPTED: Final = -32050
"""Error code of a run that waits for an answer which its client cannot be asked for."""

TRACE: Final = ("traceparent", "tracestate", "baggage")
OWN: Final = (PROGRESS_TOKEN, *TRACE)
OURS: Final = ("interlingua/", "io.modelcontextprotocol/")
"""Keys of a `_meta` with these names (OWN), or with these beginnings (OURS), are no metadata of runs."""


def metadata(meta: JsonObject) -> JsonObject:
    """A run's metadata, of the `_meta` of the call that starts it."""
    return {key: value for key, value in meta.items() if key not in OWN and not key.startswith(OURS)}


def config(meta: JsonObject) -> JsonObject:
    """A run's configuration in the same. Raises Invalid for what is none."""
    found = meta.get(CONFIG, {})
    if not isinstance(found, dict):
        path = "/_meta/" + delta.escape(CONFIG)
        raise Invalid(f"{path}: it must be an object", path=path)
    return found


def traceparent(meta: JsonObject) -> str | None:
    """The trace that the call is part of."""
    found = meta.get(TRACE[0])
    return found if isinstance(found, str) else None


def told(run: Run) -> JsonObject:
    """`_meta` of an answer: which run it was, what could not be said, and why it stopped early, if it did."""
    said: JsonObject = {RUN_ID: run.id}
    if run.losses:
        said[LOST] = dict(run.losses)
    if cut_short(run.stop_reason) is not None:
        said[STOPPED] = run.stop_reason
    return said
