"""The certificate of `serve`: reads PEM files, again whenever they change."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

from gateway.cli.codes import USAGE, leave
from gateway.cli.file_changes import digest
from gateway.core.errors import Invalid

PASSPHRASE = "INTERLINGUA_TLS_PASSPHRASE"
"""The environment variable that opens an encrypted key."""


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
