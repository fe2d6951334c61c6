"""A session that stays open to hear that a list of the server's has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Never

from gateway.core.errors import InterlinguaError
from gateway.mcp.client.contract import UpstreamSession
from gateway.mcp.client.options import McpTarget

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0


async def listen(
    target: McpTarget, lease: Callable[[], AbstractAsyncContextManager[UpstreamSession]], changed: Callable[[], None]
) -> Never:
    """Until it is cancelled. A session by `lease`, which has subscribed to what has to be, hears of changes by itself.

    Each but the first counts as a change, too: what has changed while there was none, or (remote) unheard for long, is
    told nobody.
    """
    heard = False
    while True:
        try:
            async with lease() as session:
                if heard:
                    changed()
                heard = True
                await asyncio.wait([session.closed], timeout=target.idle if target.url else None)
        except InterlinguaError as error:
            log.info("no news of the agents: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
