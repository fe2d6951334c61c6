"""How a view goes on top of what it extends: AIP-7's table, key by key, and its one-way switches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.core.types import JsonObject
from gateway.document import Where, dotted
from gateway.governance.front_matter import Page, shown
from gateway.governance.posture import Origin

LOCAL_ONLY: Final = ("extends", "appliesTo")
BY_LEAF: Final = ("autonomy", "signing", "audit", "display")
BY_ID: Final = ("policies", "approvers")
SWITCHES: Final[Mapping[tuple[str, str], str]] = {
    ("audit", "appendOnly"): "governance_append_only_relaxation",
    ("signing", "required"): "governance_signing_downgrade",
}


def check_switches(page: Page, above: JsonObject, origin: Mapping[str, Origin]) -> None:
    """One-way switches: `above` is what the ancestors come to, and no ancestor has turned one back."""
    for (section, key), code in SWITCHES.items():
        if above.get(section, {}).get(key) is True and page.raw.get(section, {}).get(key) is False:
            locked = origin[f"{section}.{key}"]
            message = f"cannot be turned off: {shown(locked.path)}:{locked.line} has locked it"
            page.refuse((section, key), message, code)


def merged(parent: JsonObject, page: Page, origin: dict[str, Origin]) -> JsonObject:
    """The parent's posture with a file on top."""
    result = {key: value for key, value in parent.items() if key not in LOCAL_ONLY}
    for key in LOCAL_ONLY:
        for known in [name for name in origin if name == key or name.startswith(f"{key}[")]:
            del origin[known]
    for key, value in page.raw.items():
        if key in BY_LEAF:
            result[key] = {**result.get(key, {}), **value}
            for leaf in value:
                origin[f"{key}.{leaf}"] = Origin(page.path, page.line((key, leaf)))
        elif key in BY_ID:
            entries = {entry["id"]: entry for entry in result.get(key, ())}
            for index, entry in enumerate(value):
                entries[entry["id"]] = entry
                origin[f"{key}.{entry['id']}"] = Origin(page.path, page.line((key, index)))
            result[key] = list(entries.values())
        elif key == "metadata":
            result[key] = _deep(result.get(key, {}), value, page, ("metadata",), origin)
        else:
            result[key] = value
            origin[key] = Origin(page.path, page.line((key,)))
    return result


def _deep(base: Any, top: JsonObject, page: Page, where: Where, origin: dict[str, Origin]) -> JsonObject:
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in top.items():
        here = (*where, key)
        if isinstance(value, dict):
            result[key] = _deep(result.get(key), value, page, here, origin)
        else:
            result[key] = value
            origin[dotted(here)] = Origin(page.path, page.line(here))
    return result
