"""`interlingua check`: prints the mistakes in a routes.yaml, or a summary."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli import loop
from gateway.cli.codes import FAILED, OK, USAGE, count, read, without
from gateway.cli.listening import Certificate
from gateway.config import Config, Route
from gateway.config.exposure import alone, exposed, issuers, warnings
from gateway.contract import TargetOptions
from gateway.core.errors import AgentBroken, InterlinguaError, Unavailable
from gateway.store.opening import faults_of_file, probe_store
from gateway.transport.guard import local
from gateway.yaml_document import Mistake

if TYPE_CHECKING:
    from gateway.agents.targets import RouteTarget


def check(
    path: Path, host: str = "127.0.0.1", tls: Certificate | None = None, *, workers: int = 1, connect: bool = False
) -> int:
    """Print a summary and return OK; print the mistakes and leave with FAILED. `host`: where it is to be served, and by
    how many `workers`.

    `connect`: ask the agents what they are, and issuers of tokens for their keys. An agent or an issuer that cannot be
    reached is a mistake, and so is a route that contradicts its agent, or an issuer without a key to use. A store on a
    server that cannot be used is USAGE, as it would be for `serve`.
    """
    config = read(path, FAILED)
    if not local(host):
        without(exposed(config), FAILED)
    if workers > 1:
        without(alone(config), FAILED)
    agents, protocols = len({route.name for route in config.routes}), len(config.inbound)
    print(f"{path}: no mistakes; {count(agents, 'agent')}, {count(protocols, 'protocol')} served")
    for route in config.routes:
        places = " or ".join(_target(target) for target in route.places)
        print(f"  {route.name} -> {places}{_match(route)}{_governed(route)}")
    for name, options in config.inbound.items():
        print(f"  {options.path or '/'} <- {name}")
    governing = (caution for route in config.routes if route.binding for caution in route.binding.cautions)
    stored = [config.mistake(("store", "url"), fault) for fault in faults_of_file(config.store.url, config.base)]
    served = warnings(config, shared=not local(host), tls=tls is not None, workers=workers)
    for caution in (*dict.fromkeys(governing), *served, *stored):
        print(f"caution: {caution}")
    if tls is not None:
        print(f"  TLS with the certificate {tls}")
    return loop.run(_asked(config)) if connect else OK


async def _asked(config: Config) -> int:
    from gateway.agents.entry import disagreements
    from gateway.cli.local import Local

    try:
        await probe_store(config.store.url)
    except Unavailable as error:
        print(config.mistake(("store", "url"), str(error)), file=sys.stderr)
        return USAGE
    mistakes = await _of_issuers(config)
    async with Local(config, serving=False) as local:
        for entry, agent in await local.everything():
            route = (entry.host or entry).route
            place = ("routes", config.routes.index(route))
            if isinstance(agent, InterlinguaError):
                where = (*place, "targets" if route.targets else "target")
                mistakes.append(config.mistake(where, f"the agent cannot be described: {agent}"))
                continue
            members = entry.targets.members if route.targets and entry.targets is not None else ()
            for at, member in enumerate(members):
                if why := await _missed(member):
                    mistakes.append(config.mistake((*place, "targets", at), why))
            which = f" (agent {agent.name})" if entry.host is not None else ""
            mistakes += [config.mistake((*place, "text", key), why + which) for key, why in disagreements(agent, route)]
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return FAILED if mistakes else OK


async def _missed(member: RouteTarget) -> str:
    """Why one of several targets, of which another has said what the agent is, would get no runs."""
    try:
        if member.agent is None:
            await member.describe()
    except (InterlinguaError, TimeoutError) as error:
        return f"the agent cannot be described: {str(error) or 'it did not answer in time'}"
    return f"it would get no runs: {member.unlike}" if member.unlike else ""


async def _of_issuers(config: Config) -> list[Mistake]:
    """Ask those whose keys judge tokens what they publish."""
    from gateway.access import published_by

    mistakes = []
    for where, options in issuers(config):
        place = (*where, "discovery")
        try:
            found = await published_by(options)
        except AgentBroken as error:
            mistakes.append(config.mistake(place, str(error)))
        except InterlinguaError as error:
            mistakes.append(config.mistake(place, f"the issuer cannot be asked: {error}"))
        else:
            print(f"  {'.'.join(map(str, where))}: {found.issuer}, {count(len(found.keys), 'key')}")
    return mistakes


def _target(target: TargetOptions) -> str:
    place = getattr(target, "url", None) or " ".join(getattr(target, "command", None) or ())
    return " ".join(part for part in (target.protocol, place, target.agent and f"({target.agent})") if part)


def _match(route: Route) -> str:
    conditions = [*route.match.protocol, *(f"{key}={value}" for key, value in route.match.metadata.items())]
    return f"  only {', '.join(conditions)}" if conditions else ""


def _governed(route: Route) -> str:
    binding = route.binding
    if binding is None:
        return ""
    by = [f"operator {binding.operator.id}"] if binding.operator else []
    by += [binding.governance.effective["name"]] if binding.governance else []
    manifest = binding.manifest
    return f"  {manifest.kind}, {manifest.tier}" + (f", governed by {' and '.join(by)}" if by else "")
