"""Finds the adapters: every folder of the `adapters` package that exports an `ADAPTER`.

Called once at start-up, by the command line and the composition root; nobody else knows where adapters live. A
sixth protocol is one new folder: there is no list to add it to.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from gateway.contract import Adapter, InboundOptions, TargetOptions

Registry = Mapping[str, Adapter]
"""Adapters by name, in alphabetical order."""

OPERATOR = "cli"
"""The protocol name of the gateway's own command line; no adapter may have it."""


class BrokenAdapter(Exception):
    """An adapter folder that cannot be used. The message names the folder and the reason, one line per folder."""


def scan(package: str = "adapters") -> dict[str, Adapter]:
    """Import every sub-package of `package` and return its `ADAPTER` by name.

    Folders that begin with an underscore are not adapters. All folders are tried before BrokenAdapter is raised.
    """
    try:
        root = importlib.import_module(package)
    except ImportError as error:
        raise BrokenAdapter(f"{package}: cannot be imported: {error}") from error
    found: dict[str, Adapter] = {}
    broken: list[str] = []
    cause: Exception | None = None
    for module in sorted(pkgutil.iter_modules(root.__path__), key=lambda module: module.name):
        if not module.ispkg or module.name.startswith("_"):
            continue
        folder = f"{package}/{module.name}"
        try:
            adapter = getattr(importlib.import_module(f"{package}.{module.name}"), "ADAPTER", None)
        except Exception as error:  # whatever a folder does wrong, the others are still tried and this one is named
            broken.append(f"{folder}: cannot be imported: {type(error).__name__}: {error}")
            cause = cause or error
            continue
        if fault := _fault(module.name, adapter):
            broken.append(f"{folder}/__init__.py: {fault}")
        elif isinstance(adapter, Adapter):
            found[adapter.name] = adapter
    if broken:
        raise BrokenAdapter("\n".join(broken)) from cause
    return found


def serving(adapters: Registry) -> dict[str, Adapter]:
    return {name: adapter for name, adapter in adapters.items() if adapter.serve is not None}


def calling(adapters: Registry) -> dict[str, Adapter]:
    return {name: adapter for name, adapter in adapters.items() if adapter.call is not None}


def _fault(folder: str, adapter: object) -> str | None:
    """The fault in a folder's value, None if it has none."""
    if adapter is None:
        return "exports no ADAPTER"
    if not isinstance(adapter, Adapter):
        return f"ADAPTER is a {type(adapter).__name__}, not an Adapter"
    faults = {
        f"ADAPTER.name is '{adapter.name}'; it must be the folder's name, '{folder}'": adapter.name != folder,
        f"'{OPERATOR}' is the name of the gateway's own command line": adapter.name == OPERATOR,
        "ADAPTER has neither serve nor call": adapter.serve is None and adapter.call is None,
        "ADAPTER.serve_options is not a subclass of InboundOptions": not _is(adapter.serve_options, InboundOptions),
        "ADAPTER.target_options is not a subclass of TargetOptions": not _is(adapter.target_options, TargetOptions),
    }
    return next((fault for fault, present in faults.items() if present), None)


def _is(given: object, base: type) -> bool:
    return isinstance(given, type) and issubclass(given, base)
