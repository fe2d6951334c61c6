"""How many files a chunk and a request pass, what has to be read to follow them, and how many functions they call, what
they cost. The limits may only fall.
"""

from __future__ import annotations

from bench import way

FILES = {"a chunk": 23, "/runs/wait": 59}
CALLS = {"a chunk": 60, "/runs/wait": 380}
ENDS = {
    "a chunk": (
        "gateway/transport/stdio/lines.py",
        "adapters/agent_client/codec/updates_in.py",
        "gateway/runs/log.py",
    ),
    "/runs/wait": ("gateway/transport/asgi/request.py", "gateway/agents/router.py", "gateway/transport/http/client.py"),
}
"""Some of the files that they certainly pass."""


def test_the_way_of_a_chunk_and_of_a_request() -> None:
    passed = way.measure()
    for what, limit in FILES.items():
        files, rooms = passed[what]
        assert set(ENDS[what]) <= set(files), files
        assert len(files) <= limit, files
        assert rooms["gateway/runs"] > 0
        assert sum(rooms.values()) <= CALLS[what], rooms
