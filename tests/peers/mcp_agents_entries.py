"""What the agents of `mcp_agents_server_1.py` and `mcp_agents_server_2.py` have in common: their entries, in pages."""

from typing import Any

NAMES = ("echo", "stream", "elicit", "slow", "fail", "big")
TOOLS = NAMES[:-1]
PAGE = 3
PROMPT: dict[str, Any] = {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}
TEXT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SIZE: dict[str, Any] = {"type": "object", "properties": {"chunks": {"type": "integer"}, "size": {"type": "integer"}}}
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "title": "Your name"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}
"""What `elicit` asks for."""


def entry(name: str) -> dict[str, Any]:
    """An agent as `agents/list` has it, with a key beyond the protocol's."""
    return {
        "name": name,
        "description": f"The agent {name}",
        "inputSchema": SIZE if name == "big" else PROMPT,
        "outputSchema": TEXT,
        "provider": "https://example.com/rig",
    }


def page(cursor: str | None) -> dict[str, Any] | None:
    """The result of `agents/list`; None where the cursor is none of ours."""
    first = cursor or "0"
    if not first.isdecimal():
        return None
    after = int(first) + PAGE
    found: dict[str, Any] = {"agents": [entry(name) for name in NAMES[int(first) : after]]}
    return {**found, "nextCursor": str(after)} if after < len(NAMES) else found
