"""Where log lines go: stderr, coloured on a terminal, plain lines elsewhere, or an object of JSON a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]

PLAIN = "%(asctime)s %(levelname)s %(name)s: {worker}%(message)s"


class JsonFormatter(logging.Formatter):
    """One line of JSON: `time` (RFC 3339, UTC), `level`, `logger`, `message`, and `exception` where there is one.
    `worker` where there are several.
    """

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._own = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        said: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._own,
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def configure(level: str, form: LogFormat = "text", worker: int | None = None) -> None:
    """Send everything from `level` up to stderr. Libraries that tell of every request are quieter. `worker`: which one
    of several processes this is.
    """
    marked = "" if worker is None else f"[{worker}] "
    handler: logging.Handler
    if form == "json":
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter(worker))
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(console=Console(stderr=True), show_path=False, log_time_format="%H:%M:%S")
        handler.setFormatter(logging.Formatter(f"{marked}%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(PLAIN.format(worker=marked)))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in ("uvicorn", "httpx2", "httpcore2", "watchfiles", "websockets", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
