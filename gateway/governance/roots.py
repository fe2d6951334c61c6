"""Which paths an operator may work on: a session's `cwd`, and every path in a request for files.

Without a sandbox it is the workspace's folder. With one it is what the sandbox mounts: paths as they are inside of it,
so `..` goes by the text and links cannot be seen from here, unless its provider runs on this machine.
"""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

import msgspec

from gateway.core.errors import Denied
from gateway.governance.manifests import Sandbox


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """A folder. `here`: a path of this machine, whose links are followed."""

    path: str
    writable: bool = True
    here: bool = True

    def holds(self, path: str) -> bool:
        """Whether an absolute path is the folder or below it, `..` and links considered."""
        tidy, top = posixpath.normpath(path), posixpath.normpath(self.path)
        if self.here:
            tidy, top = os.path.realpath(path), os.path.realpath(self.path)
        return tidy == top or tidy.startswith(top.rstrip("/") + "/")


class Roots(msgspec.Struct, frozen=True):
    """All there are. None: nowhere."""

    roots: tuple[Root, ...]

    def admit(self, path: str, *, write: bool = False) -> str:
        """The path with its links and `..` gone. Raises Denied if it is not absolute, outside, or not to be written.

        The innermost root that holds a path decides whether it may be written. What has no file yet is judged by the
        folders that there are.
        """
        if not posixpath.isabs(path) or "\0" in path:
            raise Denied("not an absolute path", detail=path)
        holding = [root for root in self.roots if root.holds(path)]
        if not holding:
            raise Denied("outside of the workspace", detail=path)
        innermost = max(holding, key=lambda root: len(posixpath.normpath(root.path)))
        if write and not innermost.writable:
            raise Denied("not to be written", detail=path)
        return os.path.realpath(path) if innermost.here else posixpath.normpath(path)


def roots_of(workspace: Path, sandbox: Sandbox | None) -> Roots:
    """The roots of a workspace, or of the sandbox that it is worked on in."""
    if sandbox is None:
        return Roots((Root(path=str(workspace)),))
    return Roots(
        tuple(
            Root(path=mount.at, writable=mount.writable and not sandbox.read_only, here=sandbox.local)
            for mount in sandbox.mounts
        )
    )
