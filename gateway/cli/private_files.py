"""Files of the gateway's own that others on this machine can read: the store, audit logs, the key that signs them.

They are created for their owner alone. Those that exist are left as they are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gateway.config import Config
from gateway.store.opening import store_path
from gateway.yaml_document import Where


def readable(config: Config) -> list[str]:
    """Warn of each such file, with the key that names it."""
    if os.name != "posix":  # there modes say nothing
        return []
    found = {path: where for where, path in _files(config) if _open(path)}
    return [
        str(config.mistake(where, f"others on this machine can read {path}: make it private (chmod 600)"))
        for path, where in found.items()
    ]


def _files(config: Config) -> Iterator[tuple[Where, Path]]:
    store = store_path(config.store.url, str(config.base))
    if store is not None:
        for ending in ("", "-wal", "-shm"):
            yield ("store", "url"), Path(f"{store}{ending}")
    if config.audit.key is not None:
        yield ("audit", "key"), config.base / config.audit.key
    for index, route in enumerate(config.routes):
        folder = route.binding.audit_folder if route.binding is not None else None
        if folder is not None:
            from gateway.governance.audit.files import LogFiles, log_numbers, log_path

            for number in sorted(log_numbers(folder)):
                place = LogFiles(log_path(folder, number))
                for path in (*place.files(), *place.torn()):
                    yield ("routes", index, "manifest"), path


def _open(path: Path) -> bool:
    """Whether others may read or write the file, and can reach it."""
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
        allowed = stat.S_ISREG(mode) and mode & (stat.S_IROTH | stat.S_IWOTH)
        return bool(allowed) and all(folder.stat().st_mode & stat.S_IXOTH for folder in real.parents)
    except OSError:
        return False
