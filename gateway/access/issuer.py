"""The keys of an issuer of JSON Web Tokens, found by OpenID Connect Discovery 1.0 and fetched anew as they change.

Keys are fetched when a token is to be judged by them, never in its way once they are known: old ones are refreshed in
the background. A token whose key is not known waits for one fetch (`AwaitsKeys`), and so does every token before the
first; an issuer that does not answer is asked again after a moment, and meanwhile such tokens cannot be judged
(Unavailable). Keys that are known go on for a bounded time.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from gateway.access.options import JwtOptions
from gateway.core.errors import AgentBroken, InterlinguaError, Unavailable
from gateway.transport.http import HttpClient

log = logging.getLogger(__name__)

WELL_KNOWN: Final = "/.well-known/openid-configuration"
REFRESH_SECONDS: Final = 300.0
"""How old keys may be before they are fetched anew in the background."""
AGAIN_SECONDS: Final = 10.0
"""Between two fetches: whatever tokens name, and whether or not the issuer answers."""
FETCH_SECONDS: Final = 5.0
"""For each of the two requests of a fetch."""
MOST_BYTES: Final = 1024 * 1024
MOST_KEYS: Final = 100
"""The most keys that are read of a set, and the most that are remembered as unknown to the issuer."""
LEAST_BITS: Final = 2048
"""Of an RSA key (NIST SP 800-131A)."""

_ALGORITHMS: Final = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}


class PublishedKey(msgspec.Struct, frozen=True):
    """A public key. `algorithms`: those it may check, of those that the options accept. `jwk`: as it is published."""

    kid: str
    algorithms: tuple[str, ...]
    jwk: bytes
    key: Any


class Published(msgspec.Struct, frozen=True):
    """An issuer's name and keys, as it publishes them. `issuer`: its name, `iss` of its tokens."""

    issuer: str
    keys: tuple[PublishedKey, ...]


class AwaitsKeys(Unavailable):
    """A token cannot be judged before the keys of its issuer are fetched, which has begun.

    A look at the same token after that does not raise this again.
    """

    def __init__(self, fetching: asyncio.Future[None]) -> None:
        super().__init__("the keys of the token's issuer are being fetched; try again")
        self._fetching = fetching

    async def then(self, again: Callable[[], Awaitable[None]]) -> None:
        """Do something again after that."""
        await self.fetched()
        await again()

    async def fetched(self) -> None:
        """Wait until the keys are there, or cannot be had."""
        await asyncio.wait([self._fetching])


class IssuerKeys:
    """The keys of one issuer. `now`: the clock, in seconds."""

    def __init__(self, options: JwtOptions, now: Callable[[], float] = time.monotonic) -> None:
        assert options.discovery is not None
        self.now = now
        self._options = options
        self._published = Published("", ())
        self._fetched = self._tried = -math.inf
        self._failed = False
        self._fetching: asyncio.Task[None] | None = None
        self._asked: set[tuple[str, str]] = set()
        self._nobodys: set[tuple[str, str]] = set()
        """Keys, by id and algorithm, that were asked for, and not among those that were fetched after that."""

    def current(self) -> Published:
        """The issuer's name and keys, as last fetched, while they may be trusted. A new object once they have changed.

        Raises AwaitsKeys, Unavailable.
        """
        now = self.now()
        if now >= self._fetched + self._options.keep:
            raise self._unknown(now)
        if now >= self._fetched + REFRESH_SECONDS and now >= self._tried + AGAIN_SECONDS:
            self._fetch()
        return self._published

    def find(self, kid: str | None, algorithm: str) -> tuple[str, Any] | None:
        """The issuer's name, and its key with this id for the algorithm. Without an id: its only key for the algorithm.

        None if the issuer has no such key. Raises AwaitsKeys, Unavailable.
        """
        name = (kid or "", algorithm)
        try:
            published = self.current()
        except AwaitsKeys:
            self._ask(name)
            raise
        fitting = [key for key in published.keys if algorithm in key.algorithms and kid in (None, key.kid)]
        if len(fitting) == 1 or (fitting and kid is not None):
            return published.issuer, fitting[0].key
        if fitting or name in self._nobodys:
            return None
        self._ask(name)
        raise self._unknown(self.now())

    def _ask(self, name: tuple[str, str]) -> None:
        """Remember which key the next fetch is to find."""
        if len(self._asked) < MOST_KEYS:
            self._asked.add(name)

    def _unknown(self, now: float) -> Unavailable:
        """Why nothing can be said now: the issuer is asked, or was a moment ago."""
        if self._fetching is not None or now >= self._tried + AGAIN_SECONDS:
            return AwaitsKeys(self._fetch())
        why = "the issuer of the token cannot be asked for its keys" if self._failed else "the token's key is not known"
        return Unavailable(f"{why}; try again later", retry_after=self._tried + AGAIN_SECONDS - now)

    def _fetch(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._tried = self.now()
            self._fetching = asyncio.create_task(self._fetch_them(), name=f"keys of {self._options.discovery}")
        return self._fetching

    async def _fetch_them(self) -> None:
        asked = self._asked
        self._asked = set()
        try:
            published = await published_by(self._options)
        except InterlinguaError as error:
            self._failed = True
            log.warning("%s: no keys: %s", self._options.discovery, error)
            return
        except Exception:
            self._failed = True
            log.exception("%s: no keys", self._options.discovery)
            return
        finally:
            self._fetching = None
        self._failed = False
        self._fetched = self.now()
        if published != self._published:
            log.info("%s: keys %s", self._options.discovery, ", ".join(repr(key.kid) for key in published.keys))
            self._published = published
        there = {(key.kid, algorithm) for key in published.keys for algorithm in key.algorithms}
        self._nobodys = set([*asked, *self._nobodys][:MOST_KEYS]) - there


async def published_by(options: JwtOptions) -> Published:
    """Ask an issuer what it publishes. Raises InterlinguaError: it does not answer, or not as the standards say."""
    url = options.discovery
    assert url is not None
    async with HttpClient(timeout=FETCH_SECONDS, max_bytes=MOST_BYTES) as client:
        metadata = await _document(client, url + WELL_KNOWN)
        issuer, place = metadata.get("issuer"), metadata.get("jwks_uri")
        wanted = options.issuer
        if not isinstance(issuer, str) or (issuer.rstrip("/") != url if wanted is None else issuer != wanted):
            raise AgentBroken(f"it calls itself {issuer!r}, not {url if wanted is None else wanted!r}: see `issuer`")
        if not isinstance(place, str) or not place.startswith(("https://", "http://")):
            raise AgentBroken("it does not say where its keys are (jwks_uri)")
        if url.startswith("https://") and not place.startswith("https://"):
            raise AgentBroken(f"its keys are at {place}, which is not encrypted")
        given = (await _document(client, place)).get("keys")
    keys = tuple(_usable(given if isinstance(given, list) else [], options.algorithms))
    if not keys:
        raise AgentBroken(f"it publishes no key for {', '.join(options.algorithms)}")
    return Published(issuer, keys)


async def _document(client: HttpClient, url: str) -> dict[str, Any]:
    found = await client.request("GET", url, headers={"Accept": "application/json"})
    if found.status != 200:
        raise AgentBroken(f"{url} is answered {found.status}")
    try:
        return msgspec.json.decode(found.body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise AgentBroken(f"{url} is no JSON object") from error


def _usable(given: Sequence[Any], algorithms: Iterable[str]) -> Iterable[PublishedKey]:
    """The keys of a JWK set that check signatures by one of the algorithms. Others are left out."""
    from jwt import PyJWK, PyJWTError

    for each in given[:MOST_KEYS]:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig":
            continue
        kind, kid = str(each.get("kty")), each.get("kid", "")
        fitting = _ALGORITHMS.get((kind, None if kind == "RSA" else str(each.get("crv"))), ())
        able = tuple(name for name in algorithms if name in fitting and each.get("alg", name) == name)
        if not able or not isinstance(kid, str):
            continue
        try:
            key = PyJWK(each, able[0]).key
        except (PyJWTError, ValueError, TypeError):
            continue
        if getattr(key, "key_size", LEAST_BITS) >= LEAST_BITS or kind != "RSA":
            yield PublishedKey(kid, able, msgspec.json.encode(each), key)
