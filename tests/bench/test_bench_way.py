"""How many files a chunk, a request and a prompt pass, what has to be read to follow them, and how many functions they
call, what they cost. The limits may only fall.
"""

from __future__ import annotations

from bench import way

FILES = {"a chunk": 23, "/runs/wait": 59, "session/new": 66, "a prompt": 92, "a prompt through stdio": 90}
FILES |= {way.CALL: 90, way.STATELESS: 88}
CALLS = {"a chunk": 60, "/runs/wait": 380, "session/new": 440, "a prompt": 775, "a prompt through stdio": 775}
CALLS |= {way.CALL: 705, way.STATELESS: 675}
ENDS = {
    "a chunk": (
        "gateway/transport/stdio/lines.py",
        "adapters/agent_client/codec/updates_in.py",
        "gateway/runs/log.py",
    ),
    "/runs/wait": ("gateway/transport/asgi/request.py", "gateway/agents/router.py", "gateway/transport/http/client.py"),
    "session/new": ("gateway/transport/websocket/server.py", "adapters/agent_client/outbound/sessions.py"),
    "a prompt": ("gateway/transport/websocket/server.py", "gateway/transport/stdio/pipe.py"),
    "a prompt through stdio": ("adapters/agent_client/inbound/turns.py", "gateway/transport/stdio/pipe.py"),
    **dict.fromkeys((way.CALL, way.STATELESS), ("gateway/mcp/runs/tools.py", "gateway/mcp/client/session.py")),
}
"""Some of the files that they certainly pass."""


def test_the_way_of_a_chunk_a_request_and_a_prompt() -> None:
    passed = way.measure()
    for what, limit in FILES.items():
        files, rooms, _ = passed[what]
        assert set(ENDS[what]) <= set(files), files
        assert len(files) <= limit, files
        assert rooms["gateway/core"] > 0
        assert sum(rooms.values()) <= CALLS[what], rooms
