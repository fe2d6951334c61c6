"""What a run leaves in the gateway's memory, whatever its client and its agent speak."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from gateway import registry
from gateway.app import App
from gateway.config import loads
from gateway.runs.live import LiveRun
from tests.matrix.agents import ANSWERS, ROUTES, message, routes
from tests.matrix.clients import CLIENTS
from tests.support.serving import serving


@pytest.fixture
def circles() -> Iterator[list[object]]:
    """What a collection finds, which then keeps it. Until the test calls for it there is none."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize("inbound", CLIENTS)
async def test_runs_that_are_over_are_no_circles_that_wait_for_the_collector(
    urls: dict[str, str], circles: list[object], inbound: str
) -> None:
    """What refers to itself stays, with all that was said, until thousands of objects have come together; looking for
    it is then a pause for everybody.
    """
    text = routes(**{**urls, "agent_client": urls["agent_client"].replace("http", "ws")})
    app = App(loads(text + 'store: {url: "sqlite://"}\n', registry.scan(), {}))
    await app.start()
    try:
        async with serving(app.asgi, interface="asgi3") as url:
            client = CLIENTS[inbound](url)
            for outbound in [*ROUTES, *ROUTES]:  # the second run is told, so the first is over
                for behaviour, status in ("echo", "success"), ("ask", "asks"):
                    said = message(outbound, behaviour)
                    end = await asyncio.to_thread(client.run, f"{outbound}-{behaviour}", said)
                    assert end.status == status
                assert (await asyncio.to_thread(client.answer, end, ANSWERS[outbound])).status == "success"
            client.http.close()
            gc.collect()
            assert not {each.agent.name for each in circles if type(each) is LiveRun}
    finally:
        await app.stop()
