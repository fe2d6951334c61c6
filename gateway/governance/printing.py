"""An ACP.md for an agent as the gateway offers it to others: a bridge (AIP-44, "Roles")."""

from __future__ import annotations

import copy
import re
from typing import Any, Final

import yaml

from gateway.core.types import Agent, JsonObject, description
from gateway.governance import tiers
from gateway.governance.binding import Binding
from gateway.governance.tiers import REVISION

_SEMVER: Final = re.compile(r"\d+\.\d+\.\d+(?:[-+][\w.\-]+)?", re.ASCII)
_SHORT: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
LONGEST: Final = 2000
"""Characters of a description."""


def bridge(agent: Agent, binding: Binding | None, transports: tuple[str, ...]) -> JsonObject:
    """The front matter: valid against ACP.schema.json whatever the agent is called.

    `transports` are those that it is reached by: stdio, websocket. An agent that a manifest governs keeps that
    manifest's names, references and metadata verbatim, and promises what both the manifest and the agent can do.
    """
    can = capabilities(agent)
    name = slug(agent)
    result: JsonObject = {
        "name": name,
        "id": name,
        "description": description(agent.name, agent.description).strip()[:LONGEST],
        "version": _version(agent.version),
        "kind": "bridge",
        "transport": list(transports) if len(transports) > 1 else transports[0],
    }
    if binding is None:
        # Not governed, so no tier above and nothing is audited: said, rather than left to be taken for granted.
        own: JsonObject = {"acp_rev": REVISION, "tier": tiers.BASIC, "capabilities": can, "audit": {"kind": "off"}}
        return {**result, "metadata": {"aip44": own}}
    manifest = binding.manifest
    promised = tiers.promised(manifest)
    # The client's part is the client's own: the gateway passes on whatever it can do.
    found = tiers.effective(manifest, {**can, "client": promised.get("client", {})})
    raw = copy.deepcopy(manifest.raw)
    raw["metadata"]["aip44"] |= {"acp_rev": REVISION, "capabilities": _spelt_out(found, promised, manifest.tier)}
    return {**raw, "kind": "bridge", "transport": result["transport"]}


def capabilities(agent: Agent) -> JsonObject:
    """Return the capabilities that the gateway declares for an agent in `initialize`.

    Sessions are kept by the gateway, whoever the agent is; what else it can do it says itself, if it speaks the
    protocol, else the gateway turns resources into text for it.
    """
    said = next((extra["agentCapabilities"] for extra in agent.extra.values() if "agentCapabilities" in extra), None)
    found: JsonObject = {"loadSession": True}
    if not isinstance(said, dict):
        return {"agent": {**found, "promptCapabilities": {"embeddedContext": True}}}
    for key, names in (("promptCapabilities", ("image", "audio", "embeddedContext")), ("mcpCapabilities", _MCP)):
        given = said.get(key)
        if isinstance(given, dict) and (true := {name: True for name in names if given.get(name) is True}):
            found[key] = true
    return {"agent": found}


_MCP: Final = ("http", "sse")


def _spelt_out(found: JsonObject, promised: JsonObject, tier: str) -> JsonObject:
    """The map that says no more than `found`, although the tier stands for more: what is missing is false in it."""
    result = copy.deepcopy(found)

    def deny(wanted: Any, into: JsonObject) -> None:
        for key, value in wanted.items():
            if isinstance(value, dict):
                deny(value, into.setdefault(key, {}))
            else:
                into.setdefault(key, False)

    deny(promised, result)
    deny(tiers.TIERS[tier], result)
    return result


def slug(agent: Agent) -> str:
    """The agent's id where only small letters, digits and dashes are taken: different for different agents."""
    plain = re.sub(r"[^a-z0-9]+", "-", agent.name.lower()).strip("-")
    if plain == agent.name and 2 <= len(plain) <= 64:
        return plain
    return f"{plain[:50] or 'agent'}-{agent.id[:8]}"


def page(front: JsonObject, body: str) -> str:
    top = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=100)
    return f"---\n{top}---\n\n{body}\n"


def _version(given: str) -> str:
    if _SEMVER.fullmatch(given):
        return given
    return f"{given}{'.0' * (2 - given.count('.'))}" if _SHORT.fullmatch(given) else "0.0.0"
