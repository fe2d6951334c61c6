"""The program's exit codes, the one way to exit with lines to read, and where a command finds agents: in a route table,
whose mistakes it exits with, or at a running gateway.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from gateway.config import Config, Mistake

OK = 0
FAILED = 1
USAGE = 2
NEEDS_ANSWER = 3
CANCELLED = 130

DEFAULT_ROUTES = Path("routes.yaml")
TOKEN_VARIABLE = "INTERLINGUA_TOKEN"

log = logging.getLogger("interlingua")


def leave(code: int, *lines: str) -> NoReturn:
    for line in lines:
        print(line, file=sys.stderr)
    raise SystemExit(code)


def perhaps_tls(url: str) -> str:
    """What to say of a gateway that closes a connection instead of answering, behind the rest."""
    return f" (if it serves TLS, it is https{url[4:]})" if url.startswith("http:") else ""


def count(number: int, one: str, more: str = "") -> str:
    """`1 agent`, `2 agents`; `more` where the plural is no `s` behind."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"


def read(path: Path, code: int = USAGE) -> Config:
    """Load the config. Exits with `code` and the mistakes."""
    from gateway.config import DocumentError, load
    from gateway.registry import BrokenAdapter

    if path == DEFAULT_ROUTES and not path.exists():
        leave(
            code,
            'there is no routes.yaml here; name the route table that you mean, or see README.md, "Your own agents"',
        )
    try:
        return load(path)
    except DocumentError as error:
        leave(code, *map(str, error.mistakes))
    except BrokenAdapter as error:
        leave(code, *str(error).splitlines())


def without(mistakes: Iterable[Mistake], code: int = USAGE) -> None:
    """Exit with `code` and the mistakes, if there are any."""
    if lines := [str(mistake) for mistake in mistakes]:
        leave(code, *lines)


@dataclass(frozen=True)
class Place:
    """A route table whose agents are run here, or a running gateway."""

    routes: Path | None
    gateway: str | None
    token_file: Path | None

    @property
    def table(self) -> Path | None:
        """The route table to run here (./routes.yaml unless named); None with a gateway. Exits with USAGE."""
        if self.routes is not None and self.gateway is not None:
            leave(USAGE, "give --routes or --gateway, not both")
        if self.gateway is not None:
            return None
        if self.routes is None and not DEFAULT_ROUTES.exists():
            leave(USAGE, "there is no routes.yaml here; name one with --routes FILE, or a gateway with --gateway URL")
        return self.routes or DEFAULT_ROUTES

    @property
    def url(self) -> str:
        """The gateway's."""
        assert self.gateway is not None, "or there is a table"
        return self.gateway.rstrip("/")

    def token(self) -> str | None:
        """The user's token for the gateway, if any. Warns if it would be sent in clear text.

        Exits with USAGE for a file without a token.
        """
        from urllib.parse import urlsplit

        from gateway.transport.guard import local

        found = _token(self.token_file)
        address = urlsplit(self.url)
        if found and address.scheme in ("http", "ws") and not local(address.hostname or ""):
            log.warning("the token goes to %s unencrypted: use https", self.gateway)
        return found


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip() or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        leave(USAGE, f"--token-file: {file}: {getattr(error, 'strerror', None) or 'not UTF-8'}")
    if not token:
        leave(USAGE, f"--token-file: {file} is empty")
    return token
