"""`gateway.transport.guard`: which addresses callbacks may reach, and that nothing gets around it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine
from ipaddress import ip_address
from typing import Any

import pytest

from gateway.core.errors import Denied, Invalid, Refused
from gateway.transport.guard import Guard
from gateway.transport.http import HttpClient, Unreachable
from tests.support import aio
from tests.support.aio import EACH_LOOP
from tests.support.raw_http import Exchange, serving

pytestmark = EACH_LOOP


def names(**table: list[str]) -> Callable[[str, int], Coroutine[Any, Any, list[str]]]:
    """A resolver that gives each name its addresses, one list a call, the last one for ever."""
    asked: dict[str, int] = {}

    async def resolve(host: str, port: int) -> list[str]:
        answers = table.get(host.removesuffix(".test"))
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        turn = asked[host] = asked.get(host, 0) + 1
        return answers[min(turn, len(answers)) - 1].split()

    return resolve


INTERNAL = {
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "10.1.2.3": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "169.254.169.254": "link-local",
    "100.64.0.1": "carrier-grade NAT",
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "192.0.0.1": "reserved",
    "192.0.2.1": "documentation",
    "192.88.99.1": "reserved",
    "198.18.0.1": "benchmarking",
    "198.51.100.1": "documentation",
    "203.0.113.1": "documentation",
    "224.0.0.1": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::2": "IPv4-compatible",
    "::7f00:1": "IPv4-compatible",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:8.8.8.8": "IPv4-mapped",
    "64:ff9b::7f00:1": "NAT64",
    "64:ff9b::808:808": "NAT64",
    "64:ff9b:1::1": "NAT64",
    "2002:7f00:1::": "6to4",
    "2001:0:1::1": "Teredo",
    "2001:1::1": "reserved",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "fc00::1": "private",
    "fd12:3456::1": "private",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "4000::1": "reserved",
    "5f00::1": "reserved",
}
PUBLIC = ["8.8.8.8", "172.32.0.1", "100.128.0.1", "169.253.0.1", "223.255.255.254", "2606:4700::1111", "2a00::1"]


@pytest.mark.parametrize("address", INTERNAL)
def test_an_internal_address_is_refused_and_its_kind_named(address: str) -> None:
    assert Guard().refusal(ip_address(address)) == INTERNAL[address]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    assert Guard().refusal(ip_address(address)) is None


@pytest.mark.parametrize("address", PUBLIC + list(INTERNAL))
def test_a_literal_in_a_url_is_judged_like_a_resolved_address(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    literal = f"http://{host}/hook"
    named = Guard(resolve=names(name=[address])).check("http://name.test/hook")
    if address in PUBLIC:
        assert aio.run(Guard().check(literal)).addresses == (address,)
        assert aio.run(named).addresses == (address,)
    else:
        for check in (Guard().check(literal), named):
            with pytest.raises(Denied, match=INTERNAL[address]) as caught:
                aio.run(check)
            assert ip_address(caught.value.detail) == ip_address(address)


def test_the_message_does_not_tell_the_caller_what_the_name_resolves_to() -> None:
    with pytest.raises(Denied) as caught:
        aio.run(Guard(resolve=names(db=["10.20.30.40"])).check("http://db.test/"))
    assert "10.20" not in str(caught.value)


def test_a_name_with_one_internal_address_is_refused_whole() -> None:
    with pytest.raises(Denied):
        aio.run(Guard(resolve=names(mixed=["8.8.8.8 10.0.0.1"])).check("http://mixed.test/"))


def test_allowed_networks_may_be_called_and_no_others() -> None:
    guard = Guard(["10.1.7.7/16", "::1/128", "fd00::5"])
    for address in ("10.1.2.3", "::1", "fd00::5", "::ffff:10.1.2.3", "2002:a01:203::", "64:ff9b::a01:203"):
        assert guard.refusal(ip_address(address)) is None, address
    for address in ("10.2.0.1", "127.0.0.1", "fd00::6", "::ffff:10.2.0.1"):
        assert guard.refusal(ip_address(address)) is not None, address


def test_allowing_a_range_that_carries_ipv4_does_not_allow_internal_ipv4() -> None:
    for network, public, internal in (
        ("64:ff9b::/96", "64:ff9b::808:808", "64:ff9b::7f00:1"),
        ("::ffff:0:0/96", "::ffff:8.8.8.8", "::ffff:127.0.0.1"),
        ("::/96", "::808:808", "::7f00:1"),
        ("2002::/16", "2002:808:808::", "2002:7f00:1::"),
    ):
        guard = Guard([network])
        assert guard.refusal(ip_address(public)) is None
        assert guard.refusal(ip_address(internal)) == "loopback"


def test_allowing_the_first_ipv4_addresses_does_not_allow_ipv6_loopback() -> None:
    guard = Guard(["0.0.0.0/8"])
    assert guard.refusal(ip_address("::2")) is None, "it carries 0.0.0.2"
    assert [guard.refusal(ip_address(address)) for address in ("::", "::1")] == ["unspecified", "loopback"]


def test_an_entry_that_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="not appear to be"):
        Guard(["intranet"])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://a.test/", "must be http"),
        ("file:///etc/passwd", "must be http"),
        ("gopher://a.test", "must be http"),
        ("//a.test/", "must be http"),
        ("a.test/hook", "must be http"),
        ("http://user@a.test/", "user name"),
        ("http://user:pw@a.test/", "user name"),
        ("http://:@a.test/", "user name"),
        ("http://", "no host"),
        ("http:///path", "no host"),
        ("http://a.test:99999/", "cannot be read"),
        ("http://[::1/", "cannot be read"),
        ("http://a.test\\@127.0.0.1/", "characters"),
        ("http://a.test/\r\nX: y", "characters"),
        ("http://a. test/", "characters"),
        ("http://unknown.test/", "cannot be resolved"),
        ("http://addressless.test/", "cannot be resolved"),
        (f"http://{'a' * 64}.test/", "cannot be resolved"),
    ],
)
def test_a_url_that_cannot_be_a_callback_is_invalid(url: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        aio.run(Guard(resolve=names(a=["8.8.8.8"], addressless=[""])).check(url))


def test_a_good_url_gives_its_host_port_and_addresses() -> None:
    guard = Guard(resolve=names(a=["8.8.8.8 2606:4700::1111"]))
    found = aio.run(guard.check("https://A.test/hook?x=1"))
    assert (found.host, found.port, found.addresses) == ("a.test", 443, ("8.8.8.8", "2606:4700::1111"))
    assert aio.run(guard.check("http://a.test:8443")).port == 8443
    assert aio.run(guard.check("http://a.test")).port == 80


@pytest.mark.parametrize("host", ["localhost", "localhost.", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"])
def test_other_spellings_of_loopback_are_refused_through_the_systems_resolver(host: str) -> None:
    with pytest.raises(Refused):
        aio.run(Guard().check(f"http://{host}/"))


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "10.1", "169.254.43518"])
def test_an_address_in_an_old_spelling_is_judged_whether_or_not_a_client_asks_a_resolver_for_it(host: str) -> None:
    with pytest.raises(Denied):
        Guard().check_form("http", host, userinfo=False)


def test_an_allowed_address_in_an_old_spelling_is_the_address_that_was_judged() -> None:
    guard = Guard(["127.0.0.0/8"], resolve=names())
    assert aio.run(guard.addresses("127.1", 80)) == ["127.0.0.1"]
    assert aio.run(guard.addresses("2130706433", 80)) == ["127.0.0.1"]


# -- in the client ---------------------------------------------------------------------------------


async def hello(exchange: Exchange) -> None:
    await exchange.answer(b"hello")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "127.1", "2130706433", "0x7f000001", "localhost", "rebound.test"]
)
async def test_a_guarded_client_never_connects_to_an_internal_address(host: str) -> None:
    resolve = names(rebound=["8.8.8.8", "127.0.0.1"]) if host == "rebound.test" else None

    guard = Guard(resolve=resolve)
    async with serving(hello) as server, HttpClient(guard=guard) as client:
        if resolve is not None:
            await guard.check(f"http://{host}:{server.port}/")  # fine at registration, and then
        with pytest.raises(Refused):
            await client.request("POST", f"http://{host}:{server.port}/", json=b"{}")
        assert server.connections == 0


async def test_the_connection_goes_to_the_address_that_was_judged() -> None:
    """Each connection resolves once: a second answer, which would be refused, is never asked for."""
    guard = Guard(["127.0.0.1/32"], resolve=names(hook=["127.0.0.1", "127.0.0.2"]))
    async with serving(hello) as server, HttpClient(guard=guard) as client:
        url = f"http://hook.test:{server.port}/hook"
        assert (await client.request("POST", url, json=b"{}")).body == b"hello"
        assert server.seen[0].headers["host"] == f"hook.test:{server.port}"
        assert (await client.request("POST", url)).body == b"hello"  # the kept connection
        server.seen[0].writer.close()
        await server.seen[0].writer.wait_closed()
        with pytest.raises(Denied):
            await client.request("GET", url)


async def test_a_callback_host_that_does_not_resolve_just_now_is_unreachable() -> None:
    async with HttpClient(guard=Guard(resolve=names())) as client:
        with pytest.raises(Unreachable):
            await client.request("POST", "http://gone.test/hook")
