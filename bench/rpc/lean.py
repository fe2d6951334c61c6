"""What lean translators share that have an agent on stdio behind them."""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from bench.lean import Rows, serve
from bench.rpc.wires import Program

Start = Callable[[Sequence[str]], Awaitable[Program]]


class Behind:
    """The agent, and the rows on disk, from the first request on."""

    def __init__(self, command: Sequence[str], file: Path | None) -> None:
        """file: of the rows; None for none."""
        self.rows: Rows | None = None
        self._command = command
        self._file = file
        self._agent: asyncio.Future[Program] | None = None

    async def agent(self, start: Start) -> Program:
        """The agent, started by whoever asks first."""
        if self._agent is None:
            self.rows = Rows(self._file) if self._file is not None else None
            self._agent = asyncio.ensure_future(start(self._command))
            gc.collect()
            gc.freeze()
        return await self._agent


def run(translator: Callable[[Behind], Any], **more: Any) -> None:
    """The process: `--port N [--rows FILE] COMMAND ...`. more: see `bench.lean.serve`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    serve(translator(Behind(options.command, options.rows)), options.port, **more)
