"""Finds what a route table exposes to the network against its governance, and other exposures to warn of."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from gateway.access import JwtOptions
from gateway.config.models import Config
from gateway.contract import InboundOptions, TargetOptions
from gateway.contract.options import ProgramOrUrl, RouteLimits
from gateway.store.opening import store_path
from gateway.transport.guard import local
from gateway.yaml_document import Mistake, Where

if TYPE_CHECKING:
    from gateway.governance.declined import Driven

_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh")
"""Of an argument by which an interpreter is given its program."""
_INTERPRETERS = r"python[\d.]*|node|bun|tsx|ruby|perl|bash|sh|zsh"
"""Others fetch a package of that name, or take the file to another machine."""


def exposed(config: Config, inbound: Mapping[str, InboundOptions] | None = None) -> tuple[Mistake, ...]:
    """Return a mistake for each governed route that clients of a protocol reach without authentication.

    AIP-44 has servers authenticate clients on network transports (Security); whatever kind the manifest says, a client
    that drives an agent too, the gateway serves the route to others. They are mistakes on a network only: who may
    connect to a loopback address is on this machine already. `inbound` is what is served, if that is not what the
    config says.
    """
    served = config.inbound if inbound is None else inbound
    found: list[Mistake] = []
    for index, route in enumerate(config.routes):
        if route.binding is None:
            continue
        reaching = [name for name in served if not route.match.protocol or name in route.match.protocol]
        if doors := [name for name in reaching if not served[name].authenticates]:
            message = (
                f"its clients have to be authenticated on a network, and those of {', '.join(doors)} are not: "
                "authenticate them below `inbound`, or name other protocols in the route's `match`"
            )
            found.append(config.mistake(("routes", index, "manifest"), message))
    return tuple(found)


def warnings(config: Config, *, shared: bool, tls: bool, workers: int = 1) -> tuple[Mistake, ...]:
    """Return all that there is to warn of where a config is served. shared: other machines reach the port; tls: it
    speaks TLS.
    """
    found = [*cautions(config), *in_clear(config, inbound=shared and not tls)]
    if shared:
        found += unasked(config)
    if workers > 1:
        found += of_several(config, workers)
    return (*found, *_readable(config))


def cautions(config: Config) -> tuple[Mistake, ...]:
    """Return what is `exposed`, protocols open beside closed ones or shut for everybody, clients without a token, what
    of documents is left to others, and commands that cannot be started here.
    """
    asking = ", ".join(name for name, options in config.inbound.items() if options.authenticates)
    others = [name for name, options in config.inbound.items() if asking and not options.authenticates]
    message = f"anybody may use the agents here, for which clients of {asking} have to be authenticated"
    found = [*exposed(config), *(config.mistake(("inbound", name), message) for name in others)]
    nobody = (
        "nobody may do anything here: name `clients`, what the bearers of a `jwt` may do, or what is for `anonymous`"
    )
    found += [
        config.mistake(("inbound", name, options.shut), nobody)
        for name, options in config.inbound.items()
        if options.shut
    ]
    for route in config.routes:
        if route.binding is not None:
            from gateway.governance import declined

            for target in route.places:
                found += declined.cautions(route.binding, driven(config, target))
    return tuple(dict.fromkeys((*found, *_without_a_token(config), *_not_there(config))))


def unasked(config: Config) -> tuple[Mistake, ...]:
    """Return a warning if no protocol asks who its clients are, for a port that other machines reach. Where some do,
    the others are among the `cautions`.
    """
    if not config.inbound or any(options.authenticates for options in config.inbound.values()):
        return ()
    message = "whoever reaches the port from another machine may use every agent: `authentication` below each protocol"
    return (config.mistake(("inbound",), f"{message} (`access` below agent_context) says who may"),)


def _not_there(config: Config) -> Iterator[Mistake]:
    """Warn of commands that this machine cannot start: no such folder, program or script."""
    for where, target in _targets(config):
        if not isinstance(target, ProgramOrUrl) or not target.command:
            continue
        folder, (program, *arguments) = target.cwd or Path(), target.command
        if not folder.is_dir():
            yield config.mistake((*where, "cwd"), f"there is no folder {folder.absolute()}")
            continue
        path = str((folder / program).absolute()) if os.path.dirname(program) else program
        if which(path, path=target.env.get("PATH")) is None:
            place = f"in {folder.absolute()}" if path != program else "on the PATH"
            found = "is not executable" if path != program and Path(path).exists() else "was not found"
            yield config.mistake((*where, "command"), f"{program} {found} {place}")
        elif re.fullmatch(_INTERPRETERS, Path(program).name):
            script = next((said for said in arguments if said != "-u"), "")
            if script.endswith(_SCRIPTS) and not (folder / script).exists():
                yield config.mistake((*where, "command"), f"{script} was not found in {folder.absolute()}")


def driven(config: Config, target: TargetOptions) -> Driven:
    """How a route is reached and reaches its agent at a target, as documents that govern it speak of it."""
    from gateway.governance.declined import Driven

    native = [name for name, adapter in config.adapters.items() if adapter.editors]
    url = getattr(target, "url", None) or ""
    return Driven(
        native=target.protocol in native,
        url=url,
        near=not url or local(urlsplit(url).hostname or ""),
        served=any(name in config.inbound for name in native),
    )


def in_clear(config: Config, *, inbound: bool) -> tuple[Mistake, ...]:
    """Return a warning for each token that would cross a network unencrypted.

    inbound: whether other machines reach the port, and it speaks no TLS. A `public_url` with https says that a proxy
    in front of it does.
    """
    found: list[Mistake] = []
    if inbound and not (config.public_url or "").startswith("https:"):
        message = "{} tokens would cross the network unencrypted: serve with --tls-cert and --tls-key, or, where a "
        message += "proxy in front ends TLS, say so by a `public_url` with https://"
        asking = [name for name, options in config.inbound.items() if options.authenticates]
        found += [config.mistake(("inbound", name), message.format("its clients'")) for name in asking]
        if config.telemetry.monitors.tokens:
            found.append(config.mistake(("telemetry", "monitors", "tokens"), message.format("these")))
        if config.operators is not None:
            found.append(config.mistake(("operators",), message.format("operators'")))
    for where, target in _targets(config):
        auth, url = target.auth, getattr(target, "url", None)
        if (auth.bearer or auth.api_key or auth.oauth2) and (host := _reached_in_clear(url)):
            found.append(config.mistake((*where, "auth"), f"is sent to {host} unencrypted: use https or wss"))
        if auth.oauth2 is not None and (host := _reached_in_clear(auth.oauth2.token_url)):
            message = f"its secret is sent to {host} unencrypted: use https"
            found.append(config.mistake((*where, "auth", "oauth2"), message))
    for name, options in config.inbound.items():
        for place, sent_to in options.sends.items():
            if host := _reached_in_clear(sent_to):
                found.append(
                    config.mistake(("inbound", name, *place), f"is sent to {host} unencrypted: use https or wss")
                )
    for where, jwt in issuers(config):
        if host := _reached_in_clear(jwt.discovery):
            message = f"whoever is between here and {host} may say whose tokens are valid: use https"
            found.append(config.mistake((*where, "discovery"), message))
    if config.telemetry.headers and (host := _reached_in_clear(config.telemetry.otlp)):
        found.append(config.mistake(("telemetry", "headers"), f"are sent to {host} unencrypted: use https"))
    return tuple(found)


def alone(config: Config) -> tuple[Mistake, ...]:
    """Return what keeps a config from being served by several workers."""
    if config.store.url.partition("://")[2]:
        return ()
    return (
        config.mistake(
            ("store", "url"), "a store in memory is of one process: several workers need a file or a server"
        ),
    )


def of_several(config: Config, workers: int) -> tuple[Mistake, ...]:
    """Return what is not the same with several workers as with one."""
    message = f"each of {workers} workers starts this program for its own clients"
    starts = [where for where, target in _targets(config) if getattr(target, "command", None)]
    found = [config.mistake((*where, "command"), message) for where in starts]
    limited: list[tuple[Where, RouteLimits]] = [(("limits", "route"), config.limits.route)]
    limited += [(("routes", index, "limits"), route.limits) for index, route in enumerate(config.routes)]
    for where, limits in limited:
        if limits.runs is not None and limits.runs < workers:
            message = f"{limits.runs} cannot be divided among {workers} workers: each takes one"
            found.append(config.mistake((*where, "runs"), message))
    for name in ("client", "door"):
        if getattr(config.limits, name).model_fields_set:
            message = f"each of {workers} workers counts for itself: together they take up to {workers} times as much"
            found.append(config.mistake(("limits", name), message))
    return tuple(found)


def issuers(config: Config) -> Iterator[tuple[Where, JwtOptions]]:
    """The options for tokens whose issuer is asked for its keys, each with its place in the file."""
    for where, section in _sections(config):
        if isinstance(section, JwtOptions) and section.discovery is not None:
            yield where, section


def _without_a_token(config: Config) -> Iterator[Mistake]:
    """Warn of clients and operators that can show nothing by which they would be known."""
    for where, section in _sections(config):
        if getattr(section, "jwt", section) is None:
            for at, client in enumerate(section.clients):
                if client.digest is None and getattr(client, "public_key", None) is None:
                    message = f"{client.name} cannot come in: give it a token or token_sha256, or name a `jwt`"
                    yield config.mistake((*where, "clients", at), message)


def _sections(config: Config) -> Iterator[tuple[Where, Any]]:
    """Every section of the file, at any depth, with its place; routes are none."""
    sections: list[tuple[Where, Any]] = [((), config)]
    for where, section in sections:  # grows while it is walked: sections inside sections
        yield where, section
        inner = section.items() if isinstance(section, dict) else section
        sections += [((*where, key), value) for key, value in inner if isinstance(value, BaseModel | dict)]


def _targets(config: Config) -> Iterator[tuple[Where, TargetOptions]]:
    """Every target of every route, with its place in the file."""
    for index, route in enumerate(config.routes):
        for at, target in enumerate(route.places):
            yield ("routes", index, *(("targets", at) if route.targets else ("target",))), target


def _reached_in_clear(url: str | None) -> str | None:
    """Return the host of a URL, if it is another machine and the connection is not encrypted."""
    parts = urlsplit(url or "")
    return parts.hostname if parts.scheme in ("http", "ws") and not local(parts.hostname or "") else None


def _readable(config: Config) -> list[Mistake]:
    """Warn of files of the gateway's own that others on this machine can read: the store, audit logs, the key that
    signs them. They are created for their owner alone; those that exist are left as they are.
    """
    if os.name != "posix":  # there modes say nothing
        return []
    found = {path: where for where, path in _own_files(config) if _open_to_others(path)}
    return [
        config.mistake(where, f"others on this machine can read {path}: make it private (chmod 600)")
        for path, where in found.items()
    ]


def _own_files(config: Config) -> Iterator[tuple[Where, Path]]:
    store = store_path(config.store.url, str(config.base))
    if store is not None:
        for ending in ("", "-wal", "-shm"):
            yield ("store", "url"), Path(f"{store}{ending}")
    if config.audit.key is not None:
        yield ("audit", "key"), config.base / config.audit.key
    for index, route in enumerate(config.routes):
        folder = route.binding.audit_folder if route.binding is not None else None
        if folder is not None:
            from gateway.governance.audit.files import LogFiles, log_numbers, log_path

            for number in sorted(log_numbers(folder)):
                place = LogFiles(log_path(folder, number))
                for path in (*place.files(), *place.torn()):
                    yield ("routes", index, "manifest"), path


def _open_to_others(path: Path) -> bool:
    """Whether others may read or write the file, and can reach it."""
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
        allowed = stat.S_ISREG(mode) and mode & (stat.S_IROTH | stat.S_IWOTH)
        return bool(allowed) and all(folder.stat().st_mode & stat.S_IXOTH for folder in real.parents)
    except OSError:
        return False
