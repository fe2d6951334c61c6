"""Fixtures for the whole suite: the peers, started once for all tests that only talk to them.

A test that needs a server of its own (its requests counted, its key, its crash) starts one with the context managers
of `tests/support/peers.py` instead.
"""

import contextlib
import functools
import gc
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import httpcore2
import pytest
from httpx2._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings
from hypothesis.internal.entropy import deterministic_PRNG
from websockets.asyncio import client as asyncio_client
from websockets.sync import client as sync_client

from tests.support import peers
from tests.support.agent_client import agent_client_agent_server
from tests.support.agent_communication import mcp_agents_server
from tests.support.agent_context import agents_server as agent_context_agents
from tests.support.aio import Clock, run
from tests.support.examples import EXAMPLES, MORE
from tests.support.forking import place
from tests.support.postgres import PostgresServer
from tests.support.processes import Process

# Property tests are judged by what they find, not by how long a busy machine takes over it.
settings.register_profile(
    "unhurried",
    deadline=None,
    max_examples=EXAMPLES,
    derandomize=not MORE,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")

# Where the machine forbids bytecode, each worker would work out all asserts anew, which takes it half a minute, and
# each program that the tests start would compile itself.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Each client of httpx2 reads the machine's authorities anew: 50 ms, in tests that have a client each.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)

# Who says nothing else waits as long as a busy machine may take, not 5 s.
for waiting in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, waiting, 60.0)
for way in (asyncio_client.connect.__init__, sync_client.connect):
    way.__kwdefaults__ |= {"open_timeout": 60, "ping_timeout": 60}

# What a shell starts in the background ignores SIGINT, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

place()  # by the process that starts the workers, so that they share what they fork off

gc.disable()  # until all tests are there: nearly nothing made until then is garbage, and to look for it takes a fifth


SLOW_FIRST = ("e2e", "bench", "admin", "cli", "store", "fuzz", "helm", "contract", "matrix", "peers_selftest", "mcp")
"""The folders whose files take long: last, the longest would keep one worker busy while the others have nothing."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """In a run of everything the second worker reads the tests from the last file, the third and the fourth from the
    middle, so that each needs to work out the asserts of a part of the files and finds the others done."""
    everything = session.config.args_source is pytest.Config.ArgsSource.TESTPATHS
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if everything and worker in ("gw1", "gw2", "gw3"):
        root = session.config.rootpath
        files = sorted((root / "tests").rglob("test_*.py"))
        middle = len(files) // 2
        first, last = files[:middle], files[middle:]
        ways = {"gw1": files[::-1], "gw2": last + first, "gw3": first[::-1] + last[::-1]}
        for file in ways[worker]:
            with contextlib.suppress(Exception):  # which is told when its turn comes
                importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(tests).parts[0]
        return SLOW_FIRST.index(folder) if folder in SLOW_FIRST else len(SLOW_FIRST)

    items.sort(key=rank)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine is run to its end, in bounded time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    loop = pyfuncitem.callspec.params.get("loop_factory") if hasattr(pyfuncitem, "callspec") else None
    ahead = isinstance(loop, type) and issubclass(loop, Clock)
    run(pyfuncitem.obj(**given), 100_000 if ahead else 120, loop_factory=loop)
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A coroutine with the mark `loop` is run on a loop of each kind that this names."""
    mark = metafunc.definition.get_closest_marker("loop")
    if mark and inspect.iscoroutinefunction(metafunc.function):
        metafunc.fixturenames.append("loop_factory")
        metafunc.parametrize("loop_factory", mark.args, ids=lambda factory: factory.__module__.partition(".")[0])


def pytest_collection_finish() -> None:
    """What stands now stays: garbage is looked for only in what the tests make, which takes a tenth of the time."""
    # Hypothesis asks the collector, once, who refers to its random numbers, and warns if that is nobody; which it also
    # hears while another thread collects. There is no other thread yet.
    with deterministic_PRNG():
        pass
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def agent_protocol_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """An agent made with the real `agent-protocol` SDK; `.url` excludes `/ap/v1`."""
    with peers.agent_protocol_server(tmp_path_factory.mktemp("agent-protocol")) as process:
        yield process


@pytest.fixture(scope="session")
def agent_connect_agent() -> Iterator[Process]:
    """The plain Agent Connect server with `echo`, `slow`, `asker`, `failer`, `writer`, `chat`, `pal`; no key."""
    with peers.agent_connect_agent() as process:
        yield process


@pytest.fixture(scope="session")
def agent_connect_replay() -> Iterator[Process]:
    """The Agent Connect server that answers as the recorded one did."""
    with peers.agent_connect_replay() as process:
        yield process


@pytest.fixture(scope="session")
def example_agent() -> Iterator[Process]:
    """Agents of the example protocol: `/echo`, `/fail`, `/ask`, `/slow`, `/big`."""
    with peers.example_agent() as process:
        yield process


@pytest.fixture(scope="session")
def agent_client_server() -> Iterator[Process]:
    """An agent made with the official Agent Client SDK for Python: WebSocket and Streamable HTTP on every path."""
    with agent_client_agent_server("py") as process:
        yield process


@pytest.fixture(scope="session")
def mcp_agents() -> Iterator[Process]:
    """An MCP server with agents, made with the official SDK: `echo`, `fail`, `elicit`, `slow` and others, at `/mcp`."""
    with mcp_agents_server("1") as process:
        yield process


@pytest.fixture(scope="session")
def agent_context_server() -> Iterator[Process]:
    """Agents of the Agent Context Protocol, on a server of MCP's SDK: `echo`, `fail`, `ask`, `slow` and others."""
    with agent_context_agents() as process:
        yield process


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of PostgreSQL that is not stopped: each test has databases of its own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def urls(
    *,
    agent_protocol_server: Process,
    agent_connect_agent: Process,
    example_agent: Process,
    agent_client_server: Process,
    mcp_agents: Process,
    agent_context_server: Process,
) -> dict[str, str]:
    """Where the real agents are, by the adapter that calls them."""
    return {
        "example": example_agent.url,
        "agent_client": f"{agent_client_server.url}/agent",
        "agent_communication": f"{mcp_agents.url}/mcp",
        "agent_context": f"{agent_context_server.url}/mcp",
        "agent_connect": agent_connect_agent.url,
        "agent_protocol": agent_protocol_server.url,
    }
