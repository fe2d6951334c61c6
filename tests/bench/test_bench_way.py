"""How many files a chunk, a request and a prompt pass, what has to be read to follow them, and how many functions they
call, what they cost. The limits may only fall.
"""

from __future__ import annotations

from bench import way

FILES = {"a chunk": 15, "/runs/wait": 36, "session/new": 58, "a prompt": 80, "a prompt through stdio": 78}
FILES |= {way.SHORT: 50, way.LONGER: 53, "a prompt through HTTP": 65, way.CALL: 72, way.STATELESS: 71}
"""Two more than are usually passed, one for a call: a timer of another file may fire meanwhile."""
CALLS = {"a chunk": 37, "/runs/wait": 310, "session/new": 330, "a prompt": 625, "a prompt through stdio": 625}
CALLS |= {way.SHORT: 640, way.LONGER: 740, "a prompt through HTTP": 540, way.CALL: 565, way.STATELESS: 584}
"""Of a `/runs/wait` 294 or 303, which is the machine's choice; of a `session/new` 305 where its client has read the
answer before the gateway is done, else some 17 more; of a prompt through HTTP 505, or 515.
"""
ENDS = {
    "a chunk": (
        "gateway/transport/stdio/lines.py",
        "adapters/agent_client/codec/updates_in.py",
        "gateway/runs/log.py",
    ),
    "/runs/wait": ("gateway/transport/asgi/request.py", "gateway/agents/roster.py", "gateway/transport/http/client.py"),
    **dict.fromkeys(
        (way.SHORT, way.LONGER),
        ("gateway/transport/asgi/request.py", "adapters/agent_connect/codec_stream.py", "gateway/runs/log.py"),
    ),
    "session/new": ("gateway/transport/websocket/server.py", "adapters/agent_client/outbound/sessions.py"),
    "a prompt": ("gateway/transport/websocket/server.py", "gateway/transport/stdio/pipe.py"),
    "a prompt through HTTP": ("gateway/transport/asgi/request.py", "gateway/transport/stdio/pipe.py"),
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
