"""Files that a run makes, kept in a folder that the user names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from gateway.cli.codes import USAGE, leave


class OutputFolder:
    """Takes files under the last part of their names. What is there already stays: the next `report.md` is
    `report-2.md`.
    """

    def __init__(self, path: Path) -> None:
        """Makes the folder. Leaves with USAGE where it cannot be made."""
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            leave(USAGE, f"--files: {path}: {error.strerror}")

    async def keep(self, name: str, content: AsyncIterator[bytes]) -> Path:
        """Write a file; where it is now. An agent chooses the name, so none leads out. Raises OSError."""
        wanted = Path(name.replace("\\", "/").replace("\0", "")).name
        path, file = self._new(wanted if wanted not in ("", "..") else "file")
        try:
            with file:
                async for piece in content:
                    file.write(piece)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _new(self, name: str) -> tuple[Path, BinaryIO]:
        path, number = self._path / name, 1
        while True:
            try:
                return path, path.open("xb")
            except FileExistsError:
                number += 1
                path = self._path / f"{Path(name).stem}-{number}{Path(name).suffix}"
