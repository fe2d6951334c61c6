"""Files that are looked at again when they may have changed: written, replaced, or reached by a link that was swapped
as Kubernetes swaps the one to a mounted ConfigMap's or Secret's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from pathlib import Path

DEBOUNCE_MS = 400
"""Several writes within this time are one change."""
STEP_MS = 200
"""Between two looks of a thread that takes Python's lock for each."""
GONE_SECONDS = 0.2
MOST_STEPS = 1000
"""The most steps on the way to a file. After that its links must be circular."""


def digest(files: Iterable[Path]) -> bytes | None:
    """Hash the files; None while the first of them is missing, as it is while it is replaced."""
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

    Watched are the files themselves and, for each link on the way to one, the folder that holds the link. Other folders
    are not: the store and the audit log usually lie beside routes.yaml, and each of their writes would wake us. A file
    that was replaced is watched anew.
    """
    from watchfiles import awatch

    while True:
        here = _watched(files())
        there, links = here
        existing = {file for file in there if file.exists()}
        if not existing and not links:
            await asyncio.sleep(GONE_SECONDS)  # between two files
            continue

        def ours(_: object, changed: str, wanted: Collection[Path] = existing | links) -> bool:
            return Path(changed) in wanted

        watching = awatch(
            *existing,
            *{link.parent for link in links},
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
                if _watched(files()) == here:
                    missing = GONE_SECONDS if there - existing else None
                    if (await asyncio.wait({news}, timeout=missing))[0]:
                        with contextlib.suppress(FileNotFoundError, StopAsyncIteration):
                            news.result()
            finally:
                if not news.done():
                    news.cancel()
                await asyncio.gather(news, return_exceptions=True)


def _watched(files: Iterable[Path]) -> tuple[set[Path], set[Path]]:
    """Return the files by their paths without links, and the links on the way to them."""
    found: tuple[set[Path], set[Path]] = set(), set()
    for file in files:
        at, *rest = map(Path, file.absolute().parts)
        ahead = rest[::-1]
        for _ in range(MOST_STEPS):
            if not ahead:
                break
            step = at / ahead.pop()
            try:
                target = step.readlink()
            except OSError:  # no link
                at = at.parent if step.name == os.pardir else step
                continue
            found[1].add(step)
            ahead += map(Path, reversed(target.parts))  # an absolute target's first part leads back to the root
        found[0].add(at)
    return found
