"""THE contract between the gateway and its adapters. Above it: engine, router, store. Below it: one folder a protocol.

An adapter folder exports one value, `ADAPTER`. Its inbound half turns requests into calls of `Gateway` and events
into answers; its outbound half turns a run into calls of an agent and what the agent says into events. Neither half
knows any other protocol, and neither touches a run's state: only the engine does.

    client -> Inbound -> Gateway (engine) -> Outbound -> agent
    client <- Inbound <- Watch (run log)  <- RunContext.emit <- agent

gateway.py      what an inbound half may ask: runs, threads, files, agents, records, and the back-channel
outbound.py     what an outbound half has, and the run that it is given; what an inbound half has is in this file
optional.py     what either may have besides, and who asks for it
backchannel.py  what passes beside runs: a conversation's modes, files that an agent asks its client for
interception.py what may stand between the engine and an outbound half
wrapping.py     what wrappers of outbound halves give the halves that they wrap
governing.py    the rules of a governed route, as the halves see them that know of rules
filling.py      a prompt as an agent's input, and the form for what is missing; reading.py: a text as an answer
fitting.py      whether a value fits a schema (keywords.py: the library that says so)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from starlette.responses import Response
from starlette.routing import BaseRoute

from gateway.contract.backchannel import Caller, News, ThreadContext, ThreadWatch
from gateway.contract.gateway import (
    LIST_SECONDS,
    Batch,
    Gateway,
    GatewayAgents,
    GatewayBackchannel,
    GatewayFiles,
    GatewayLimits,
    GatewayRecords,
    GatewayRuns,
    GatewayThreads,
    Kept,
    Requests,
    Snapshot,
    Take,
    Watch,
    Watched,
    next_batch,
    paged,
    unguessable,
)
from gateway.contract.governing import CallNews, RuleKeeping
from gateway.contract.interception import InterceptedRun, Intercepting
from gateway.contract.optional import (
    Callback,
    CallingBack,
    Conversing,
    Demanding,
    Discovering,
    Extended,
    Hosted,
    Hosting,
    Informed,
    Knowing,
    Leaving,
    Placed,
    Relay,
    Stateful,
    Supervised,
)
from gateway.contract.options import Auth, HttpUrl, InboundOptions, Options, TargetOptions
from gateway.contract.outbound import Outbound, RunContext, Runner
from gateway.core.errors import InterlinguaError
from gateway.core.types import Json


class Inbound(Protocol):
    """Serves one protocol's clients. What it may offer beyond this is in optional.py."""

    def routes(self) -> Sequence[BaseRoute]:
        """Starlette routes below the protocol's mount point. Called once."""

    def refusal(self, error: InterlinguaError) -> Response:
        """An error as this protocol answers it; for requests below the mount point that reach no route."""


class Adapter(Struct, frozen=True):
    """One protocol. `name` is its folder, its key in the route table and its id in spans.

    `serve(options, gateway)` makes the inbound half, `call(target)` the outbound half; None where a half does not
    exist. `path` is the default mount point. `losses` names what this
    protocol cannot say, with the reason (docs are made from it). Making the value imports nothing heavy.
    `example` is a shell line to try, shown at `/` and by `interlingua agents`: `{gateway}` is its address, `{url}` the
    mount's, `{agent}` an agent's name, `{input}` an input of it as JSON, `{prompt}` a prompt as JSON.
    `formerly` is an earlier name, which routes.yaml may still use. `unnamed` is false for a protocol that is served
    only where `inbound` names it.
    `late` is true where the inbound half has nothing to do before its first request: unless its options authenticate
    clients, that makes it. `hosts` is true where it is `Hosting`: it is made by the start, and if it is `late`, its
    routes are made by the first request.
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
    losses: Mapping[str, str] = {}
    example: str = ""
    formerly: str = ""
    unnamed: bool = True
    socket: str | None = None
    editors: bool = False
    late: bool = False
    hosts: bool = False

    def call_line(self, gateway: str, path: str | None, agent: str, *, document: Json, prompt: str) -> str:
        """`example` for an agent of the gateway at that address, with an input and the prompt that means the same."""
        line = self.example.replace("{gateway}", gateway).replace("{url}", f"{gateway}{path or ''}")
        line = line.replace("{agent}", agent)
        for name, value in (("{input}", document), ("{prompt}", prompt)):
            line = line.replace(name, json.dumps(value, ensure_ascii=False).replace("'", "'\\''"))
        return line
