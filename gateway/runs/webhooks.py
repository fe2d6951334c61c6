"""Callbacks that are owed to clients: each at least once, after the commit that caused it, retried with growing gaps.

Those of one run come in order: a later one waits until the one before is done with.
What is owed is in the store, so a restart forgets none. A callback that is refused for good (4xx other than 408, 425,
429, or an address the guard forbids) is dropped and logged; one that keeps failing is given up after a day.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from gateway import tracing
from gateway.contract import CallingBack, Inbound
from gateway.core.errors import AgentError, InterlinguaError, Refused
from gateway.core.types import Run
from gateway.store import Delivery, Store
from gateway.transport.http import HttpClient

log = logging.getLogger(__name__)

GIVE_UP_SECONDS = 24 * 3600.0
TIMEOUT_SECONDS = 15.0
AGAIN = frozenset({408, 425, 429})
POLL_SECONDS = 30.0
MOST_AT_ONCE = 100
FIRST_GAP_SECONDS = 0.5
LONGEST_GAP_SECONDS = 600.0


class Webhooks:
    """Delivers what is owed. `nudge` after every commit that owes one; `run` is a task of the gateway's."""

    def __init__(self, store: Store, inbound: Callable[[str], Inbound | None], client: HttpClient) -> None:
        self._store = store
        self._inbound = inbound
        self._client = client
        self._due = asyncio.Event()
        self._underway: set[str] = set()
        self._turn: dict[str, str] = {}
        """By run, the callback that others of the run wait for: the oldest that is still owed."""
        self._behind = 0
        """How many waited for one of their run when it was looked last."""

    def nudge(self, delivery: Delivery) -> None:
        """Something new is owed."""
        self._due.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._due.clear()
                owed, self._behind = await self._owed(), 0
                for delivery in owed:
                    if self._turn.setdefault(delivery.run.id, delivery.id) != delivery.id:
                        self._behind += 1
                    elif delivery.id not in self._underway:
                        self._underway.add(delivery.id)
                        group.create_task(self._deliver(delivery))
                try:
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._due.wait()
                except TimeoutError:
                    continue

    async def _owed(self) -> list[Delivery]:
        try:
            known = len(self._underway) + self._behind  # many of them are to keep nobody else waiting
            return await self._store.deliveries(time.time(), limit=MOST_AT_ONCE + known)
        except InterlinguaError as error:  # the store is in trouble; what is owed stays owed
            log.error("callbacks cannot be read: %s", error)
            return []

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            again = await self._attempt(delivery.run, delivery.attempts + 1)
            if again is None or time.time() - delivery.run.updated_at > GIVE_UP_SECONDS:
                if again is not None:
                    log.warning("run %s: callback given up: %s", delivery.run.id, again)
                await self._store.delivered(delivery.id)
                del self._turn[delivery.run.id]
                return
            gap = min(LONGEST_GAP_SECONDS, FIRST_GAP_SECONDS * 2.0**delivery.attempts)
            log.info("run %s: callback failed (%s), again in %.1f s", delivery.run.id, again, gap)
            await self._store.postpone(delivery.id, time.time() + gap)
            asyncio.get_running_loop().call_later(gap, self._due.set)
        except InterlinguaError as error:
            log.error("run %s: callback could not be recorded: %s", delivery.run.id, error)
        except Exception:
            log.exception("run %s: callback failed", delivery.run.id)
        finally:
            self._underway.discard(delivery.id)
            self._due.set()

    async def _attempt(self, run: Run, attempt: int) -> str | None:
        """None when it is done with, else why it should be tried again. `attempt` counts from 1."""
        webhook = run.request.webhook
        inbound = self._inbound(webhook.protocol) if webhook else None
        if webhook is None or not isinstance(inbound, CallingBack):
            return None
        callback = inbound.callback(run)
        with tracing.callback_span(run, webhook.protocol, webhook.url, attempt) as span:
            headers = dict(callback.headers)
            if span.traceparent is not None:
                headers["traceparent"] = span.traceparent
            try:
                answer = await self._client.request(
                    "POST", webhook.url, body=callback.body, headers=headers, timeout=TIMEOUT_SECONDS
                )
            except Refused as error:
                span.ended(again=False, why=error)
                log.warning("run %s: callback refused: %s", run.id, error)
                return None
            except AgentError as error:
                span.ended(again=True, why=error)
                return str(error)
            again = answer.status >= 500 or answer.status in AGAIN
            span.ended(again=again, status=answer.status)
        if again:
            return f"status {answer.status}"
        if answer.status >= 300:
            log.warning("run %s: callback answered %d; not tried again", run.id, answer.status)
        return None
