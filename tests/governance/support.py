"""Documents to write, and the least that each needs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from gateway.core.errors import Unavailable
from gateway.store import Allowance
from gateway.yaml_document import DocumentError

Keys = dict[str, Any]

ACP: Keys = {
    "id": "coder",
    "description": "Writes code.",
    "version": "1.0.0",
    "kind": "bridge",
    "transport": "stdio",
    "metadata": {"aip44": {"acp_rev": "b7f0005", "tier": "basic"}},
}
OPERATOR: Keys = {
    "name": "Coder",
    "id": "coder",
    "persona_summary": "Writes code.",
    "version": "1.0.0",
    "profile": {"role": "Programmer.", "voice": "Dry.", "boundaries": []},
}
GOVERNANCE: Keys = {
    "schema": "governance.workspace/v1",
    "name": "house",
    "title": "The house",
    "description": "Everything.",
    "version": "1.0.0",
}
POLICY: Keys = {
    "schema": "agentgovernance/v1",
    "doctype": "policy",
    "version": "1.0.0",
    "match": {"action": "tool.call"},
    "decision": "allow",
}
SANDBOX: Keys = {"provider": "local", "config": {}}


def with_(base: Keys, **keys: Any) -> Keys:
    """A copy with other keys."""
    return {**copy.deepcopy(base), **keys}


def write(path: Path, keys: Keys, body: str = "") -> Path:
    """A document with that front matter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{yaml.safe_dump(keys, sort_keys=False)}---\n{body}")
    return path


def manifest(folder: Path, aip44: Keys | None = None, **keys: Any) -> Path:
    """An ACP.md in a folder, of its name."""
    found = with_(ACP, name=folder.name, **keys)
    found["metadata"]["aip44"].update(aip44 or {})
    return write(folder / "ACP.md", found)


def governance(folder: Path, **keys: Any) -> Path:
    """A GOVERNANCE.md in a folder."""
    return write(folder / "GOVERNANCE.md", with_(GOVERNANCE, **keys))


def policy(folder: Path, slug: str, *, match: Keys | None = None, **keys: Any) -> Keys:
    """A POLICY.md below a folder; what registers it."""
    found = with_(POLICY, slug=slug, **keys)
    found["match"].update(match or {})
    write(folder / "policies" / slug / "POLICY.md", found)
    return {"id": slug, "ref": f"policies/{slug}/POLICY.md"}


def told(error: DocumentError, base: Path) -> list[str]:
    """The mistakes with paths from `base`."""
    return [str(mistake).replace(f"{base}/", "") for mistake in error.mistakes]


async def spends_nothing(allowances: Sequence[Allowance]) -> list[int]:
    """In place of a store where nothing is to be counted."""
    raise Unavailable("there is no store", detail=str(allowances))
