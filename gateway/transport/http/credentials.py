"""The gateway's credentials for an agent: a token, a key, a certificate, or a token fetched from a token server."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from gateway.core.errors import AgentBroken, AgentError, AgentFailed, AgentGone
from gateway.transport.http.client import HttpAuth, HttpClient
from gateway.transport.http.response import HttpResponse, Unreachable

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

UNSAID_SECONDS = 300.0
"""How long a token is used whose server does not say how long it is valid."""
EARLY_SECONDS, EARLY_SHARE = 30.0, 0.2
"""How long before its end a token is replaced: so many seconds, or that share of its time where it is less."""
REQUEST_SECONDS = 10.0
MAX_ANSWER = 256 * 1024
_SHOWN = 200


def credentials_of(target: Any) -> HttpAuth:
    """The credentials of a target's options (`gateway.contract.TargetOptions`). One for each outbound half: it keeps
    the token, and the certificate.
    """
    auth, tls = target.auth, target.tls
    return HttpAuth(
        bearer=auth.bearer.get_secret_value() if auth.bearer else "",
        api_key=auth.api_key.get_secret_value() if auth.api_key else "",
        header=getattr(target, "api_key_header", "x-api-key"),
        tokens=TokenSource(auth.oauth2) if auth.oauth2 is not None else None,
        tls=ReloadedTls(tls.files, tls.context) if tls is not None else None,
    )


class TokenSource:
    """Tokens by client credentials (RFC 6749, section 4.4). The server is asked once for all who wait."""

    def __init__(self, options: Any) -> None:
        """`options`: see `gateway.contract.options.OAuth2`."""
        self._options = options
        tls = options.tls
        self._auth = HttpAuth(tls=ReloadedTls(tls.files, tls.context)) if tls is not None else None
        parts = urlsplit(options.token_url)
        self._host = parts.netloc.rpartition("@")[2]
        self._server = f"{parts.scheme}://{self._host}"
        self._token = ""
        self._until = 0.0
        self._asking: asyncio.Task[str] | None = None

    async def token(self) -> str:
        """The token to send now. Raises AgentGone, AgentTimeout, AgentFailed, AgentBroken: nothing was sent then."""
        if self._token and time.monotonic() < self._until:
            return self._token
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._asked(), name=f"a token of {self._host}")
            self._asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._asking)

    def refused(self, token: str) -> None:
        """The agent does not take the token: ask for another, unless that was done meanwhile."""
        if token == self._token:
            self._until = 0.0

    async def _asked(self) -> str:
        try:
            async with HttpClient(self._server, auth=self._auth, timeout=REQUEST_SECONDS) as client:
                return self._taken(await self._request(client))
        except AgentError as error:
            told = f"no token could be had of {self._host}: {error}"
            kinds: tuple[type[AgentError], ...] = (AgentBroken, AgentFailed, AgentGone)
            kind = next((one for one in kinds if isinstance(error, one)), type(error))
            raise kind(told, detail=error.detail, untaken=True) from None

    async def _request(self, client: HttpClient) -> HttpResponse:
        options = self._options
        secret = options.client_secret.get_secret_value() if options.client_secret is not None else None
        fields = {"grant_type": "client_credentials"}
        for name in ("scope", "audience", "resource"):
            if (value := getattr(options, name)) is not None:
                fields[name] = value
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        if secret is None:  # the certificate shows who it is: RFC 8705, section 2
            fields["client_id"] = options.client_id
        elif options.send == "body":
            fields |= {"client_id": options.client_id, "client_secret": secret}
        else:  # each is encoded as in a form before: section 2.3.1
            pair = f"{quote_plus(options.client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        body = urlencode(fields).encode()
        return await client.request("POST", options.token_url, body=body, headers=headers, max_bytes=MAX_ANSWER)

    def _taken(self, answer: HttpResponse) -> str:
        """The token of an answer, which is kept."""
        if answer.status != 200:
            why = f"it answered {answer.status}{_reason(answer)}"
            raise AgentGone(why) if answer.status == 429 or answer.status >= 500 else AgentFailed(why)
        found = answer.json()
        if not isinstance(found, dict):
            raise AgentBroken("its answer is no JSON object")
        token, kind = found.get("access_token"), str(found.get("token_type", ""))
        if not (isinstance(token, str) and token and token.isascii() and token.isprintable()):
            raise AgentBroken("its answer has no access_token that a header can have")
        if kind.lower() != "bearer":
            raise AgentBroken(f"its tokens are of the type {kind[:_SHOWN]!r}, not Bearer")
        valid = _seconds(found.get("expires_in"))
        self._token, self._until = token, time.monotonic() + valid - min(EARLY_SECONDS, valid * EARLY_SHARE)
        return token


def _seconds(given: Any) -> float:
    """`expires_in`; some servers send it as text."""
    try:
        return UNSAID_SECONDS if given is None or isinstance(given, bool) else max(0.0, float(given))
    except (TypeError, ValueError):
        return UNSAID_SECONDS


def _reason(answer: HttpResponse) -> str:
    """`error` and `error_description` (section 5.2) in a line."""
    try:
        found: Any = msgspec.json.decode(answer.body)
    except (ValueError, RecursionError):
        return ""
    names = ("error", "error_description")
    said = [str(found[name])[:_SHOWN] for name in names if found.get(name)] if isinstance(found, dict) else []
    return "".join(f": {' '.join(one.split())}" for one in said)


class ReloadedTls:
    """The context for new connections: made again when one of its files has changed."""

    def __init__(self, files: Sequence[Path], make: Callable[[], ssl.SSLContext]) -> None:
        """`make` reads the files. Raises ValueError for those that cannot be used."""
        self._files = files
        self._make = make
        self._seen: list[tuple[int, int, int] | None] = []
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """The context of the files as they are; of those before while they cannot be used. Raises Unreachable."""
        now = [_state(file) for file in self._files]
        if self._context is None or now != self._seen:
            try:
                self._context = self._make()
            except ValueError as error:
                if self._context is None:
                    raise Unreachable(f"no TLS connection can be made: {error}") from None
                if now != self._seen:
                    log.warning("TLS goes on with the files of before: %s", error)
            self._seen = now
        return self._context


def _state(file: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
