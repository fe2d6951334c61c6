"""What stands behind each outbound adapter in the matrix: one route for each behaviour its protocol can have.

A new adapter adds a line to `ROUTES`; the test that counts them fails until it does.
"""

from __future__ import annotations

from typing import Any

ROUTES: dict[str, dict[str, str]] = {
    "example": {
        "echo": "{{protocol: example, url: {example}/echo}}",
        "fail": "{{protocol: example, url: {example}/fail}}",
        "ask": "{{protocol: example, url: {example}/ask}}",
        "slow": "{{protocol: example, url: {example}/slow}}",
    },
    "agent_connect": {
        "echo": "{{protocol: agent_connect, url: {agent_connect}, agent: echo}}",
        "fail": "{{protocol: agent_connect, url: {agent_connect}, agent: failer}}",
        "ask": "{{protocol: agent_connect, url: {agent_connect}, agent: asker}}",
        "slow": "{{protocol: agent_connect, url: {agent_connect}, agent: slow}}",
    },
    "agent_client": {
        "echo": "{{protocol: agent_client, url: {agent_client}}}",
        "fail": "{{protocol: agent_client, url: {agent_client}}}",
        "ask": "{{protocol: agent_client, url: {agent_client}}}",
        "slow": "{{protocol: agent_client, url: {agent_client}}}",
    },
    "agent_communication": {
        "echo": "{{protocol: agent_communication, url: {agent_communication}, agent: stream}}",
        "fail": "{{protocol: agent_communication, url: {agent_communication}, agent: fail}}",
        "ask": "{{protocol: agent_communication, url: {agent_communication}, agent: elicit}}",
        "slow": "{{protocol: agent_communication, url: {agent_communication}, agent: slow}}",
    },
    "agent_context": {
        "echo": "{{protocol: agent_context, url: {agent_context}, agent: echo}}",
        "fail": "{{protocol: agent_context, url: {agent_context}, agent: fail}}",
        "ask": "{{protocol: agent_context, url: {agent_context}, agent: ask}}",
        "slow": "{{protocol: agent_context, url: {agent_context}, agent: slow}}",
    },
    "agent_protocol": {
        "echo": "{{protocol: agent_protocol, url: {agent_protocol}}}",
        "fail": "{{protocol: agent_protocol, url: {agent_protocol}}}",
        "ask": "{{protocol: agent_protocol, url: {agent_protocol}, drive: one}}",
        "slow": "{{protocol: agent_protocol, url: {agent_protocol}}}",
    },
}

MESSAGES: dict[str, dict[str, str]] = {
    "agent_protocol": {"echo": "one hello my friend", "fail": "fail 1", "ask": "ask me", "slow": "slow 30"},
    "agent_connect": {"slow": "30 seconds"},
    "agent_client": {"fail": "fail", "ask": "perm", "slow": "slow"},
}
"""What to say for a behaviour where `hello my friend` does not bring it about."""


ANSWERS: dict[str, dict[str, object]] = {
    "example": {"approved": True},
    "agent_connect": {"approved": True, "reason": "blue"},
    "agent_protocol": {"message": "blue"},
    "agent_client": {"optionId": "ok"},
    "agent_communication": {"name": "blue"},
    "agent_context": {"name": "blue"},
}
"""An answer that each asker takes."""

ANSWERED = {
    "example": "true",
    "agent_connect": "approved",
    "agent_protocol": "blue",
    "agent_client": '"ok"',
    "agent_communication": "blue",
    "agent_context": "blue",
}
"""What it says of the answer in the end."""

REASONS: dict[str, tuple[str, ...]] = {
    "agent_protocol": ("it failed on purpose", "500"),
    "agent_client": ("Internal error",),
    "agent_communication": ("boom",),
}
"""What a failure is told with, one of these; else `it failed on purpose`."""


MOVED = {"moved_client": "agent_client", "moved_protocol": "agent_protocol"}
"""Routes that say where the text is in the documents of agents that publish no schema, by who is behind them."""
INPUTS = {"agent_communication": "prompt", **dict.fromkeys(MOVED, "prompt")}
"""Where the text is in the input of an agent's own schema; else in `message`."""
OUTPUTS = {"agent_communication": "text"}
"""The same for its output."""


def document(agent: str, text: str) -> dict[str, str]:
    """The input that brings an agent (`OUTBOUND-BEHAVIOUR`) a text."""
    return {INPUTS.get(agent.partition("-")[0], "message"): text}


def text_in(output: dict[str, Any]) -> str:
    """The text of an output of any of them."""
    return str(next((output[key] for key in ("message", *OUTPUTS.values()) if key in output), ""))


def message(outbound: str, behaviour: str) -> str:
    return MESSAGES.get(outbound, {}).get(behaviour, "hello my friend")


def routes(**urls: str) -> str:
    """routes.yaml with one route for each outbound and behaviour, named `OUTBOUND-BEHAVIOUR`."""
    doors = ", ".join(f"{outbound}: " for outbound in ROUTES)
    lines = [f"inbound: {{{doors}}}", "routes:"]
    for outbound, behaviours in ROUTES.items():
        for behaviour, target in behaviours.items():
            lines += [f"  - name: {outbound}-{behaviour}", f"    target: {target.format(**urls)}"]
    for name, outbound in MOVED.items():
        lines += [f"  - name: {name}-echo", f"    target: {ROUTES[outbound]['echo'].format(**urls)}"]
        lines += ["    text: {input: /prompt, output: /text}"]
    return "\n".join(lines) + "\n"
