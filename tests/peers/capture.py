"""Reads a recorded conversation of `captures/`: which request was answered with what.

A capture is a list of blocks, `-- [CONNECTION SECONDS] >>> client N bytes` (or `<<< server`), each followed by the
bytes of one read. Line ends may have been normalised since; nothing here depends on them.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^-- \[(\d+) [\d.]+\] (>>> client|<<< server) (?:EOF|\d+ bytes)\n", re.MULTILINE)
REQUEST = re.compile(r"^(GET|POST|PUT|PATCH|DELETE) (\S+) HTTP/1\.1$", re.MULTILINE)


@dataclass
class Exchange:
    """One request and its answer. `status` is 0 where the connection ended without one."""

    method: str
    path: str
    asked: Any
    status: int
    answer: str

    @property
    def json(self) -> Any:
        """The answer's body, decoded anew each time, so that who gets it may change it."""
        return json.loads(self.answer)

    @property
    def events(self) -> list[dict[str, str]]:
        """The server-sent events of the answer, each as its fields."""
        blocks = re.findall(r"(?:^(?:id|event|data):.*\n)+", self.answer, re.MULTILINE)
        return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]


def read(file: Path) -> list[Exchange]:
    """All exchanges of a capture, in the order of the requests."""
    found: list[tuple[list[str], list[str]]] = []
    latest: dict[str, tuple[list[str], list[str]]] = {}
    parts = BLOCK.split(file.read_text(encoding="utf-8").replace("\r\n", "\n"))
    for connection, side, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if side == ">>> client" and REQUEST.match(text):
            latest[connection] = ([], [])
            found.append(latest[connection])
        if connection in latest:
            latest[connection][side == "<<< server"].append(text)
    return [_exchange("".join(asked), "".join(answered)) for asked, answered in found]


def _exchange(asked: str, answered: str) -> Exchange:
    request, _, body = asked.partition("\n\n")
    head, _, answer = answered.partition("\n\n")
    match = REQUEST.match(request)
    assert match, request
    status = re.match(r"HTTP/1\.1 (\d+)", head)
    method, path = match.groups()
    return Exchange(method, path, _decoded(body), int(status.group(1)) if status else 0, answer)


def _decoded(body: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
