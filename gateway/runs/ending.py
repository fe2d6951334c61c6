"""How a run ends: what its record says then, which events say it, whom it is told. Changes nothing itself."""

from __future__ import annotations

import logging
import time

import msgspec
from msgspec.structs import replace

from gateway.core import errors, stopping
from gateway.core import events as e
from gateway.core.errors import AgentBroken, InterlinguaError
from gateway.core.output import Output
from gateway.core.types import NULL, Failure, Run, RunStatus, StopReason
from gateway.runs.log import RunLog
from gateway.runs.threads import new_id
from gateway.store import Delivery

_logger = logging.getLogger(__name__)


def concluded(run: Run, end: e.Event, log: RunLog) -> tuple[Run, list[e.Event]]:
    """The run's last record, and its last events: `end`, after a correction where the result differs from the deltas.

    A run that has not succeeded keeps what was said until then as its output. One that stopped for a reason that is a
    failure (`core.stopping`) keeps that reason, too.
    """
    if run.interrupts:
        run = replace(run, interrupts=())
    if isinstance(end, e.RunFinished) and end.stop_reason in stopping.SHORT:
        run = replace(run, stop_reason=end.stop_reason)
        if (failed := stopping.failure(end.stop_reason, log.output.text(end))) is not None:
            end = e.RunFailed(failure=failed, origin=end.origin)
    match end:
        case e.RunFinished():
            correction, final = log.finished(end)
            end = replace(end, output=final)
            run = replace(run, status=RunStatus.SUCCESS, output=final, stop_reason=end.stop_reason)
            return run, [correction, end] if correction is not None else [end]
        case e.RunFailed():
            status = RunStatus.TIMEOUT if end.timeout else RunStatus.ERROR
            return replace(run, status=status, failure=end.failure, output=_partial(log.output)), [end]
        case _:
            stop = StopReason.CANCELLED
            return replace(run, status=RunStatus.CANCELLED, stop_reason=stop, output=_partial(log.output)), [end]


def _partial(output: Output) -> msgspec.Raw:
    return NULL if output.empty else msgspec.Raw(output.encoded)


def delivery(run: Run, before: Run) -> Delivery | None:
    """The delivery owed to the run's webhook after this change of its record."""
    if run.request.webhook is None or not run.status.stopped or run.status is before.status:
        return None
    return Delivery(id=new_id(), run=run, due_at=time.time())


def failure(error: InterlinguaError) -> Failure:
    """An error of the tree as the run's record keeps it."""
    return Failure(code=error.code, message=str(error), retryable=error.retryable)


def of_error(raised: Exception, what: str) -> e.RunFailed:
    """The end that an adapter's exception makes; a task group's is unwrapped to the first of the error tree.

    Anything else is our own mistake: logged with its trace, told as no more than an internal error.
    """
    error = errors.first(raised)
    if error is None:
        _logger.error("%s: the adapter failed", what, exc_info=raised)
        return e.RunFailed(failure=Failure(code="internal", message="internal error"))
    _logger.info("%s failed: %s %s", what, error, error.detail)
    return e.RunFailed(failure=failure(error))


def without_result() -> e.RunFailed:
    """The end of a run whose adapter returned without a terminal event."""
    return e.RunFailed(failure=failure(AgentBroken("the agent stopped without a result")))


def timed_out(limit: float | None) -> e.RunFailed:
    """The end of a run that took longer than its route allows, or (None) whose agent did."""
    if limit is None:
        return e.RunFailed(failure=Failure(code="agent_timeout", message="the agent did not answer", retryable=True))
    return e.RunFailed(failure=Failure(code="agent_timeout", message=f"no result within {limit:g} s"), timeout=True)
