"""Rules of a governed route (AIP-44) for both halves: folders that a session may have, and history.

The route's `Governor` judges paths. A refusal names the place where the path was said, and does not tell what exists.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from msgspec import Raw

from adapters.agent_client.wire import AIP44, JsonObject, meta_of, with_meta
from gateway.contract import governing
from gateway.core.errors import Denied, Invalid
from gateway.wire import jsonrpc

LONGEST: Final = 4096
"""Bytes of a path. No system takes longer ones, and to look one up takes time that grows with its square."""
_UNTRUSTED: Final = b'"_meta":{"aip44":{"untrusted":true}}}'
_members = msgspec.json.Decoder(dict[str, Any]).decode


async def admitted(governor: governing.Governor, path: Any, at: str, *, write: bool = False) -> str:
    """An absolute path with its links gone. Raises Invalid (`at` is its place in the params) where it is not admitted.

    A path that is no file's name at all (a URI, a NUL, half a character, a very long one) is not admitted.
    """
    if not isinstance(path, str):
        raise Invalid(f"{at}: should be a path", path=at)
    try:
        if len(path.encode()) > LONGEST:
            raise Denied("too long a path")
        place = await asyncio.to_thread(governor.admit, path, write=write)
        place.encode()  # a link may lead to a name that is no text, and cannot be passed on
        return place
    except Denied as error:
        raise Invalid(f"{at}: {error}", path=at, detail=error.detail) from None
    except (ValueError, OSError) as error:
        raise Invalid(f"{at}: not a path", path=at, detail=repr(error)) from None


async def folders(governor: governing.Governor | None, params: Raw) -> Raw:
    """Params of a request that opens a session, with `cwd` and `additionalDirectories` as they are without links.

    Raises Invalid for a folder that is not within the authorised roots. Unchanged where nothing governs.
    """
    if governor is None or not params:
        return params
    said = jsonrpc.unpack(params)
    if not isinstance(said, dict):
        return params
    new = dict(said)
    if said.get("cwd") is not None:
        new["cwd"] = await admitted(governor, said["cwd"], "/cwd")
    more = said.get("additionalDirectories")
    if isinstance(more, list):
        new["additionalDirectories"] = [
            await admitted(governor, each, f"/additionalDirectories/{at}") for at, each in enumerate(more)
        ]
    return params if new == said else jsonrpc.raw(new)


def untrusted(update: JsonObject) -> JsonObject:
    """An update, marked as history: whoever reads it must not take it for what somebody says now."""
    return with_meta(update, AIP44, {**meta_of(update, AIP44), "untrusted": True})


def untrusted_bytes(update: bytes) -> bytes:
    if b'"_meta"' not in update and len(update) > 2:
        return update[:-1] + b"," + _UNTRUSTED
    return jsonrpc.encoded(untrusted(_members(update)))
