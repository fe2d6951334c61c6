"""Guards callbacks against server-side request forgery (SSRF): they may not go to internal addresses.

A webhook's URL comes from a client. `Guard.check` refuses a bad one when it is handed in; the same
guard given to `HttpClient(guard=...)` judges the addresses that a connection is really made to, at
the moment it is made. A name is resolved once for that and the connection goes to the addresses that
were judged, so a name that answers differently the second time (rebinding) gains nothing.

Judged by address, never by the spelling of a host: what `localhost.` means is the resolver's business, and
`127.1` or `0x7f000001` is the address that it is an old spelling of. HTTP libraries connect to some of these
without asking a resolver, so nothing here depends on which do.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from gateway.core.errors import Denied, Invalid

Address: TypeAlias = IPv4Address | IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

DNS_TIMEOUT = 10.0
_DEFAULT_PORTS = {"http": 80, "https": 443}

# IANA's special-purpose registries: everything that is not a public unicast address. Written out
# because `ipaddress.is_global` answers differently across the Python versions that we run on.
_REFUSED = [
    (ip_network(cidr), kind)
    for cidr, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::ffff:0:0/96", "IPv4-mapped"),
        ("::/96", "IPv4-compatible"),
        ("64:ff9b::/96", "NAT64"),
        ("64:ff9b:1::/48", "NAT64"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
    )
]
_GLOBAL_UNICAST = IPv6Network("2000::/3")  # the rest of IPv6 is not handed out
_EMBEDDING = [  # (network, bits right of the IPv4 address in it)
    (IPv6Network("::ffff:0:0/96"), 0),
    (IPv6Network("::/96"), 0),
    (IPv6Network("64:ff9b::/96"), 0),
    (IPv6Network("2002::/16"), 80),
]


class Resolved(msgspec.Struct, frozen=True):
    """A URL that may be called, and the addresses that its host had when it was checked."""

    url: str
    host: str
    port: int
    addresses: tuple[str, ...]


class Guard:
    """Checks addresses. `allow` lists CIDRs that may be called although they are internal.

    `what` is what errors call the address. Raises ValueError for an `allow` entry that is no CIDR.
    `resolve` (host, port) -> addresses is the
    system's resolver unless a test brings its own; it raises OSError for an unknown name.
    """

    def __init__(self, allow: Iterable[str] = (), *, resolve: Resolve | None = None, what: str = "callback") -> None:
        self._what = what
        self._allow = [ip_network(cidr, strict=False) for cidr in allow]
        self._resolve = resolve or _system_resolve

    async def check(self, url: str) -> Resolved:
        """Check a URL that a client gave.

        Raises Invalid if it is no http(s) URL, carries credentials or its name does not resolve;
        Denied if any address of its host is internal and not allowed.
        """
        if any(ch <= " " or ch in "\\\x7f" for ch in url):
            raise Invalid(f"the {self._what} URL has characters that no URL has")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as exc:
            raise Invalid(f"the {self._what} URL cannot be read", detail=str(exc)) from exc
        self.check_form(parts.scheme, host, userinfo="@" in parts.netloc)
        port = port or _DEFAULT_PORTS[parts.scheme]
        try:
            async with asyncio.timeout(DNS_TIMEOUT):
                addresses = await self.addresses(host, port)
        except (OSError, UnicodeError) as exc:  # TimeoutError is an OSError
            message = f"the {self._what} host {host!r} cannot be resolved"
            raise Invalid(message, detail=repr(exc)) from exc
        return Resolved(url, host, port, tuple(addresses))

    def check_form(self, scheme: str, host: str, *, userinfo: bool) -> None:
        """Do the part of `check` that needs no DNS, for every URL about to be called, redirects too."""
        if scheme not in _DEFAULT_PORTS:
            raise Invalid(f"the {self._what} URL must be http or https, not {scheme!r}")
        if userinfo:
            raise Invalid(f"the {self._what} URL must not carry a user name or password")
        if not host:
            raise Invalid(f"the {self._what} URL names no host")
        literal = _literal(host)
        if literal is not None:
            self._judge(host, literal)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of `host`, all of them checked, for one connection.

        Raises Denied if one is refused (a name with one internal address is not to be trusted with
        its others), OSError if the name does not resolve.
        """
        literal = _literal(host)
        found = [str(literal)] if literal is not None else await self._resolve(host, port)
        if not found:
            raise OSError(f"no address for {host!r}")
        for address in found:
            self._judge(host, ip_address(address))
        return found

    def _judge(self, host: str, address: Address) -> None:
        kind = self.refusal(address)
        if kind is not None:
            message = f"the {self._what} host {host!r} has an internal address ({kind})"
            raise Denied(message, detail=str(address))

    def refusal(self, address: Address) -> str | None:
        """Return the reason why `address` may not be called ("loopback", "private", ...), or None if it may.

        An address that carries an IPv4 address goes where that one is: allowing such a range does
        not allow the internal addresses that can be written in it.
        """
        inner = _embedded(address)
        if inner is not None and self._allowed(inner):
            return None
        if self._allowed(address):
            return None if inner is None else self.refusal(inner)
        for network, kind in _REFUSED:
            if address in network:
                return kind
        if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
            return "reserved"
        return None

    def _allowed(self, address: Address) -> bool:
        return any(address in network for network in self._allow)


def _literal(host: str) -> Address | None:
    """Parse a host that is an address, IPv4 also in the spellings that only `inet_aton` accepts."""
    with contextlib.suppress(ValueError):
        return ip_address(host)
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def _embedded(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv6Address):
        for network, shift in _EMBEDDING:
            if address in network and int(address) > 1:  # :: and ::1 carry nothing
                return IPv4Address((int(address) >> shift) & 0xFFFFFFFF)
    return None


async def _system_resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


def local(host: str) -> bool:
    """Whether only this machine reaches an address. Any name but localhost counts as known to others."""
    literal = address(host)
    return literal.is_loopback if literal is not None else host == "localhost"


def address(host: str) -> Address | None:
    """Parse a host that is an address, without its zone; IPv4 that IPv6 may wrap. None for a name."""
    try:
        given = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(given, "ipv4_mapped", None) or given
