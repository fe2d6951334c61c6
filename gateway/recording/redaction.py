"""Takes secrets out of what is recorded. What is not certainly harmless is left out: of headers, and of bodies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec
from pydantic import BaseModel, SecretStr

from gateway.config import Config
from gateway.transport.tap import Pairs

REMOVED: Final = "[removed]"
SHORTEST: Final = 6
"""Characters of the shortest value that is looked for in texts. Shorter ones are words."""
MOST_SEEN: Final = 200
"""Credentials of requests that are looked for in later texts."""

_HARMLESS: Final = """
    accept accept-encoding accept-language acp-connection-id acp-session-id allow cache-control connection
    content-disposition content-encoding content-language content-length content-type date host last-event-id
    mcp-method mcp-name mcp-protocol-version origin retry-after server traceparent transfer-encoding user-agent vary
    x-accel-buffering x-request-id
"""
SHOWN_HEADERS: Final = frozenset(_HARMLESS.split())
"""Headers whose values are kept. Of all others the name is."""

_WORDS: Final = (
    r"(?:passw(?:or)?d|passphrase|pass|pwd|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|subscription[-_]?key|"
    r"auth|authorization|bearer|jwt|cookie|credential|signature|sig|session[-_]?key|otp|webhook)s?"
)
_SECRET: Final = re.compile(rf"(?:[a-z0-9]+[-_. ])*{_WORDS}", re.I)
_NAMED: Final = rf"[\w.-]{{0,60}}?{_WORDS}"
"""The same in a text."""
_CORRELATES: Final = frozenset({"progress_token", "progresstoken"})
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OF_PROCESSES: Final = frozenset({"env", "environment", "headers", "cookies"})
"""Members that hold other programs' settings, as objects or as lists of `{"name": ..., "value": ...}`."""
_PATTERNS: Final = (
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[a-z0-9._~+/=-]{6,}"), rf"\1\2{REMOVED}"),
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"), REMOVED),
    (re.compile(r"\b(?:sk|pk|rk|ghp|gho|ghs|ghu|xox[abprs]|glpat|github_pat|AKIA)[-_]?[A-Za-z0-9_-]{12,}"), REMOVED),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.S), REMOVED),
    (re.compile(r"://[^\s/@?#\"']{1,300}@"), rf"://{REMOVED}@"),
    (re.compile(rf"(?i)([?&;\s]|^)({_NAMED})=[^&;\s\"'<>#]+"), rf"\1\2={REMOVED}"),
    (re.compile(rf'(?i)("{_NAMED}"\s*:\s*)"(?:[^"\\]|\\.)*(?:"|$)'), rf'\1"{REMOVED}"'),
    (re.compile(rf'(?i)(\\+"{_NAMED}\\+"\s*:\s*\\+")[^"]*(?:"|$)'), rf'\1{REMOVED}\\"'),
)
"""What looks like a secret in a text: headers' values, JWTs, well-known keys, URLs, forms, JSON in text."""
_MOST_QUERY: Final = 64
"""Characters of the longest value of a query that is kept."""


class SecretRemover:
    """Knows the secrets of one gateway."""

    def __init__(self, configured: Iterable[str] = ()) -> None:
        self._configured = frozenset(configured)
        self._seen: dict[str, None] = {}
        self._known: re.Pattern[str] | None = None

    def learn(self, config: Config) -> None:
        """The configuration's secrets, in place of those of before."""
        self._configured = frozenset([*config.filled, *secrets_of(config)])
        self._known = None

    def see(self, headers: Pairs) -> None:
        """Learn the credentials of a request or an answer, which may be repeated in what is said."""
        for name, value in headers:
            if name in SHOWN_HEADERS or not _is_secret(name):
                continue
            parts = [value, value.partition(" ")[2], *(part.partition("=")[2] for part in value.split(";"))]
            for secret in map(str.strip, parts):
                if len(secret) >= SHORTEST and secret not in self._seen:
                    self._seen[secret] = None
                    self._known = None
        while len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]

    def headers(self, headers: Pairs) -> list[tuple[str, str]]:
        """Names and values, those of unknown headers left out."""
        return [
            (self.text(name), self.text(value) if name.lower() in SHOWN_HEADERS else REMOVED) for name, value in headers
        ]

    def title(self, title: str, *, bare: bool) -> str:
        """The first line of a request or an answer, or a method. `bare`: no value of a query is kept."""
        head, mark, query = title.partition("?")
        if mark:
            query = "&".join(_parameter(part, bare=bare) for part in query.split("&"))
        return self.text(f"{head}{mark}{query}")

    def body(self, data: bytes, media: str) -> str | None:
        """A body as text, None for one that is not shown."""
        if media == "application/json" or media.endswith("+json"):
            try:
                found = msgspec.json.decode(data)
                return msgspec.json.encode(self.document(found)).decode()
            except (ValueError, RecursionError):
                pass  # no JSON: looked at as text
        elif not (media.startswith("text/") or media == "application/x-www-form-urlencoded"):
            return None
        return self.text(data.decode("utf-8", "replace"))

    def document(self, value: Any) -> Any:
        """A decoded JSON document without what is a secret; one that is too deep for that is left out."""
        try:
            return self._value(value)
        except RecursionError:
            return REMOVED

    def text(self, text: str) -> str:
        """The same without what is a secret, or looks like one."""
        if self._known is None:
            self._known = self._look_for()
        text = self._known.sub(REMOVED, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def _look_for(self) -> re.Pattern[str]:
        secrets = {one for one in (*self._configured, *self._seen) if len(one) >= SHORTEST}
        forms = {*secrets, *(quote(one, safe="") for one in secrets)}
        return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))) or r"(?!)")

    def _value(self, value: Any, inside: Callable[[Any], Any] | None = None) -> Any:
        if inside is not None and not isinstance(value, dict | list):
            return inside(value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(each, inside) for each in value]
        if isinstance(value, dict):
            return {self.text(name): self._member(name, each, inside) for name, each in value.items()}
        return value

    def _member(self, name: str, value: Any, inside: Callable[[Any], Any] | None) -> Any:
        if inside is not None:
            return value if name == "name" and isinstance(value, str) else self._value(value, inside)
        if name.lower() in _OF_PROCESSES and isinstance(value, dict | list):
            return self._value(value, _removed)
        if _is_secret(name) and value is not None and not isinstance(value, bool):
            return value if isinstance(value, int | float) and name.lower().endswith("tokens") else REMOVED
        return self._value(value)


def _removed(value: Any) -> Any:
    return value if value is None or isinstance(value, bool) else REMOVED


def _is_secret(name: str) -> bool:
    """Whether what has that name is a secret."""
    name = _CAMEL.sub("_", name)
    return name.lower() not in _CORRELATES and _SECRET.fullmatch(name) is not None


def _parameter(part: str, *, bare: bool) -> str:
    name, mark, value = part.partition("=")
    hidden = bare or _is_secret(name) or len(value) > _MOST_QUERY
    return f"{name}{mark}{REMOVED if value and hidden else value}"


def secrets_of(value: Any, name: str = "") -> Iterator[str]:
    """The secrets in a configuration: what it calls so, and the credentials and queries of URLs. `name`: the key."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from secrets_of(getattr(value, field), field)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from secrets_of(each, str(key))
    elif isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from secrets_of(each, name)
    elif isinstance(value, str) and _is_secret(name):
        yield value
    elif "://" in (text := str(value)):
        try:
            parts = urlsplit(text)
            found = [parts.password, parts.username, *(each for _, each in parse_qsl(parts.query))]
        except ValueError:
            return
        yield from (each for each in found if each)
