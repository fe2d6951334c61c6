"""THE contract between the gateway and its adapters. Above it: engine, router, store. Below it: one folder a protocol.

An adapter folder exports one value, `ADAPTER`. Its inbound half turns requests into calls of `Gateway` and events
into answers; its outbound half turns a run into calls of an agent and what the agent says into events. Neither half
knows any other protocol, and neither touches a run's state: only the engine does.

    client -> Inbound -> Gateway (engine) -> Outbound -> agent
    client <- Inbound <- Watch (run log)  <- RunContext.emit <- agent

What passes beside runs (a conversation's modes, files that an agent asks for) is in backchannel.py; agents that an
inbound half brings are in hosting.py; the rules of a governed route are in governing.py.
How a client is known by its token is in access/, whether a value fits a schema in fitting.py, what a prompt makes of an
agent's input, and leaves to ask, in filling.py, and what a text means as
the answer to a question in reading.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.contract.backchannel import Caller, News, Relay, Supervised, ThreadContext, ThreadWatch
from gateway.contract.governing import (
    APPROVAL,
    APPROVALS,
    OF_CALL,
    Governor,
    Instruction,
    RunGovernor,
    ToolServer,
    risk_of,
)
from gateway.contract.hosting import Hosted, Hosting, Kept
from gateway.contract.inbound import (
    LIST_SECONDS,
    Batch,
    Callback,
    Conversing,
    Gateway,
    GatewayAgents,
    GatewayBackchannel,
    GatewayFiles,
    GatewayRecords,
    GatewayRuns,
    GatewayThreads,
    Inbound,
    Informed,
    Knowing,
    Leaving,
    Requests,
    Snapshot,
    Take,
    Watch,
    Watched,
    unwatched,
)
from gateway.contract.options import Auth, HttpUrl, InboundOptions, Options, TargetOptions
from gateway.contract.outbound import Discovering, Outbound, Prefacing, RunContext, Stateful

__all__ = [
    "APPROVAL",
    "APPROVALS",
    "LIST_SECONDS",
    "OF_CALL",
    "Adapter",
    "Auth",
    "Batch",
    "Callback",
    "Caller",
    "Conversing",
    "Discovering",
    "Gateway",
    "GatewayAgents",
    "GatewayBackchannel",
    "GatewayFiles",
    "GatewayRecords",
    "GatewayRuns",
    "GatewayThreads",
    "Governor",
    "Hosted",
    "Hosting",
    "HttpUrl",
    "Inbound",
    "InboundOptions",
    "Informed",
    "Instruction",
    "Kept",
    "Knowing",
    "Leaving",
    "News",
    "Options",
    "Outbound",
    "Prefacing",
    "Relay",
    "Requests",
    "RunContext",
    "RunGovernor",
    "Snapshot",
    "Stateful",
    "Supervised",
    "Take",
    "TargetOptions",
    "ThreadContext",
    "ThreadWatch",
    "ToolServer",
    "Watch",
    "Watched",
    "risk_of",
    "unwatched",
]


@dataclass(frozen=True)
class Adapter:
    """One protocol. `name` is its folder, its key in the route table and its id in spans.

    `serve(options, gateway)` makes the inbound half, `call(target)` the outbound half; None where a half does not
    exist. `path` is the default mount point. `losses` names what this
    protocol cannot say, with the reason (docs are made from it). Making the value imports nothing heavy.
    `example` is a shell line to try, shown by `serve`: `{gateway}` is its address, `{url}` the
    mount's, `{agent}` an agent's name, `{input}` an input of it as JSON, `{prompt}` a prompt as JSON.
    `socket` is the path below the mount of a WebSocket that carries what a `Conversing` inbound says on stdin and
    stdout; `editors` is true for the protocol that `interlingua stdio` speaks unless told otherwise.
    """

    name: str
    title: str
    path: str = ""
    serve: Callable[[Any, Gateway], Inbound] | None = None
    serve_options: type[InboundOptions] = InboundOptions
    call: Callable[[Any], Outbound] | None = None
    target_options: type[TargetOptions] = TargetOptions
    losses: Mapping[str, str] = field(default_factory=dict)
    example: str = ""
    socket: str | None = None
    editors: bool = False
