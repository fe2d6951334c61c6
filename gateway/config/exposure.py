"""What a route table would show to anybody on the network, and its governance does not let it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from gateway.adapter import InboundOptions
from gateway.config.models import Config
from gateway.document import Mistake

SERVED = ("server", "bridge")
"""Kinds of manifests whose clients have to be authenticated on network transports (AIP-44, security)."""


def exposed(config: Config, inbound: Mapping[str, InboundOptions] | None = None) -> tuple[Mistake, ...]:
    """A mistake for each governed route that clients of a protocol reach without saying who they are.

    They are mistakes on a network only: who may connect to a loopback address is on this machine already. `inbound` is
    what is served, if that is not what the config says.
    """
    served = config.inbound if inbound is None else inbound
    found: list[Mistake] = []
    for index, route in enumerate(config.routes):
        if route.binding is None or route.binding.manifest.kind not in SERVED:
            continue
        reaching = [name for name in served if not route.match.protocol or name in route.match.protocol]
        if doors := [name for name in reaching if not served[name].authenticates]:
            message = (
                f"its clients have to be authenticated on a network, and those of {', '.join(doors)} are not: "
                "authenticate them below `inbound`, or name other protocols in the route's `match`"
            )
            found.append(config.mistake(("routes", index, "manifest"), message))
    return tuple(found)


def cautions(config: Config) -> tuple[Mistake, ...]:
    """What is `exposed`, and each protocol that lets anybody in where another one asks."""
    asking = ", ".join(name for name, options in config.inbound.items() if options.authenticates)
    others = [name for name, options in config.inbound.items() if asking and not options.authenticates]
    message = f"anybody may use the agents here, for which clients of {asking} have to be authenticated"
    return (*exposed(config), *(config.mistake(("inbound", name), message) for name in others))


def local(host: str) -> bool:
    """Whether only this machine reaches an address. A name other than localhost is taken for one that others know."""
    literal = address(host)
    return literal.is_loopback if literal is not None else host == "localhost"


def address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is written as, without its zone; the IPv4 one that IPv6 may wrap. None for a name."""
    try:
        given = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(given, "ipv4_mapped", None) or given
