"""What an agent of this protocol tells beside its run, passed on to a client of the same."""

from __future__ import annotations

from adapters.agent_communication.codec.deltas_out import NOTIFICATION
from adapters.agent_communication.wire import PROTOCOL, RUN
from gateway.core import events as e
from gateway.mcp.runs import wanted
from gateway.mcp.runs.log_messages import INFO
from gateway.mcp.server.contract import Call
from gateway.mcp.wire import MESSAGE, PROGRESS, PROGRESS_TOKEN


class Notifications:
    """See `gateway.mcp.runs.Native`. For one call."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def takes(self, event: e.Custom) -> bool:
        return event.name == PROTOCOL and NOTIFICATION in (event.data or ())

    def pass_on(self, event: e.Custom) -> None:
        """See `Native`. Progress goes to who asked for it, a message to who asked for its level."""
        method, params = event.data[NOTIFICATION], event.data.get("params")
        token = self._call.progress_token
        if method == MESSAGE:
            if not isinstance(params, dict) or not wanted(self._call.log_level, params.get("level", INFO)):
                return
        elif token is None or self._call.method != RUN:
            return
        elif method == PROGRESS:
            params = {**(params if isinstance(params, dict) else {}), PROGRESS_TOKEN: token}
        self._call.notify(method, params)
