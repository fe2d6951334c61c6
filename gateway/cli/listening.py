"""What `serve` listens with: sockets, and a certificate whose PEM files are read again whenever they change."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gateway.cli.codes import USAGE, leave
from gateway.cli.file_changes import digest
from gateway.core.errors import Invalid

BACKLOG = 2048
PASSPHRASE = "INTERLINGUA_TLS_PASSPHRASE"
"""The environment variable that opens an encrypted key."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Leaves with USAGE and one line if there is none to be had."""
    return _opened(host, port, 1, shared=False)[0]


def listen_often(host: str, port: int, count: int) -> Sequence[socket.socket]:
    """Several on one port, among which the system spreads connections; elsewhere the same socket several times.

    Leaves with USAGE as `listen` does, also where the port's other listener would share it.
    """
    with contextlib.closing(listen(host, port)) as alone:
        if not sys.platform.startswith("linux"):
            return [alone.dup() for _ in range(count)]
        port = alone.getsockname()[1]
    return _opened(host, port, count, shared=True)


def _opened(host: str, port: int, count: int, *, shared: bool) -> Sequence[socket.socket]:
    with contextlib.ExitStack() as opened:
        try:
            name = host.encode() if host.isascii() else host  # a string loads the tables of international names
            places = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = places[0]
            found = [opened.enter_context(socket.socket(family, socket.SOCK_STREAM)) for _ in range(count)]
            for listener in found:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if shared:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                listener.bind(address)
                listener.listen(BACKLOG)
                listener.setblocking(False)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            leave(USAGE, f"cannot listen on {host}:{port}: {reason[0].lower()}{reason[1:]}")
        opened.pop_all()
        return found


class Certificate:
    """A certificate and its key, as files. `context` is made once and given to the server.

    Every new connection is shown the pair that was loaded last; an open one keeps the pair that it began with.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        """chain: the certificate, then those of the authorities between it and the root. Raises Invalid."""
        self.files = (chain, key)
        self.loaded = digest(self.files)
        self.expires, self.context = self._read()
        self._newest = self.context
        self.context.sni_callback = self._choose

    def load(self) -> None:
        """Load the current files. Raises Invalid, and keeps the pair that was loaded before."""
        self.loaded = digest(self.files)
        self.expires, self._newest = self._read()

    def __str__(self) -> str:
        """Describe it for the log: the file, and its expiry."""
        over = self.expires <= datetime.now(UTC)
        return f"{self.files[0]} ({'EXPIRED' if over else 'valid until'} {self.expires:%Y-%m-%d %H:%M} UTC)"

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called by `ssl` for each ClientHello, with or without a server name."""
        connection.context = self._newest

    def _read(self) -> tuple[datetime, ssl.SSLContext]:
        from cryptography import x509

        chain, key = self.files
        try:
            certificates = x509.load_pem_x509_certificates(_content(chain))
        except ValueError:
            raise Invalid(f"{chain}: no certificate in PEM form") from None
        if b"PRIVATE KEY-----" not in _content(key):
            raise Invalid(f"{key}: no private key in PEM form")
        asked = False

        def passphrase() -> str:
            """Return the passphrase. Without this function OpenSSL would ask at the terminal."""
            nonlocal asked
            asked = True
            return os.environ.get(PASSPHRASE, "")

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(chain, key, password=passphrase)
        except (OSError, ValueError):  # an SSLError is an OSError; a passphrase may be too long
            why = f"does not fit the first certificate of {chain}"
            if asked:
                why = f"it is encrypted, and the environment variable {PASSPHRASE} does not open it"
            raise Invalid(f"{key}: {why}") from None
        return certificates[0].not_valid_after_utc, context


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Invalid(f"{file}: {(error.strerror or str(error)).lower()}") from None


def certificate(chain: Path | None, key: Path | None, code: int = USAGE) -> Certificate | None:
    """Load the pair of `--tls-cert` and `--tls-key`; None without them. Exits with `code` and one line."""
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        leave(USAGE, "give both --tls-cert and --tls-key, or neither")
    try:
        return Certificate(chain, key)
    except Invalid as error:
        leave(code, str(error))
