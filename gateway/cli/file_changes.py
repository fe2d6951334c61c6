"""Files that are looked at again when they may have changed: written, replaced, swapped as a mounted ConfigMap is."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from pathlib import Path

DEBOUNCE_MS, STEP_MS = 200, 50
"""Several writes in a row are one change."""
GONE_SECONDS = 0.2
KUBERNETES_DATA = "..data"
"""What a mounted ConfigMap swaps when it changes, instead of the file."""


def digest(files: Iterable[Path]) -> bytes | None:
    """What the files say now; None while the first of them is gone, which is between two of its kind."""
    found = hashlib.sha256()
    for number, file in enumerate(files):
        try:
            content = hashlib.sha256(file.read_bytes()).digest()
        except OSError:
            if not number:
                return None
            content = b""
        found.update(content + str(file).encode("utf-8", "surrogateescape") + b"\0")
    return found.digest()


async def changes(files: Callable[[], Collection[Path]]) -> AsyncIterator[None]:
    """Yields once it is watching, and whenever one of the files may have changed; nothing that changes meanwhile is
    missed. `files` is asked again each time.

    A folder is watched only where a file is a link in it. Else the file alone is: the store and the audit log usually
    lie beside it, and each of their writes would wake us. What has been replaced is another file, watched anew.
    """
    from watchfiles import awatch

    while True:
        now = {file.absolute() for file in files()}
        links = {file for file in now if file.is_symlink()}
        folders = {folder for file in links for folder in (file.parent, file.resolve().parent)}
        names = {KUBERNETES_DATA, *(name for file in links for name in (file.name, file.resolve().name))}
        plain = {file for file in now - links if file.exists()}
        if not plain and not folders:
            await asyncio.sleep(GONE_SECONDS)  # between two files
            continue

        def ours(_: object, changed: str, plain: Collection[Path] = plain, names: Collection[str] = names) -> bool:
            return Path(changed) in plain or Path(changed).name in names

        watching = awatch(
            *plain,
            *folders,
            watch_filter=ours,
            recursive=False,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            yield_on_timeout=False,
        )
        async with contextlib.aclosing(watching):
            news = asyncio.ensure_future(anext(watching))
            try:
                await asyncio.sleep(0)  # it begins to watch
                yield None
                if {file.absolute() for file in files()} == now:
                    with contextlib.suppress(FileNotFoundError, StopAsyncIteration):
                        await news
            finally:
                if not news.done():
                    news.cancel()
                await asyncio.gather(news, return_exceptions=True)
        if now - links - plain:
            await asyncio.sleep(GONE_SECONDS)
