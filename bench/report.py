"""Figures to text. Ratios come first: on a machine that others use too, they are what means something."""

from __future__ import annotations

import os
import platform

from bench import growth, peers, wanted, workers
from bench.agent_client import report as editors
from bench.agent_communication import report as callers
from bench.rounds import Figures
from bench.sizes import MANY
from bench.tables import number, table

HEAD = ("Agent Connect", "of bare", "of lean", "direct", "bare", "lean", "lean, 2 rows", "gateway", "added")
WAYS = ("direct", "bare", "lean", "rows", "through")


def machine() -> Figures:
    """Where it was measured. `load` is how many processes wanted a core in the minute before."""
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def text(report: Figures) -> str:
    """What a person reads; the last twelve lines are the summary."""
    figures, here = report["figures"], report["machine"]
    lines = [
        f"{here['cores']} cores, load {number(here['load'])} before, Python {here['python']}, {here['system']}; "
        f"an fsync takes {number(figures['sync_ms'])} ms here" + ("" if figures["fsync"] else " (the store does none)"),
        "",
    ]
    if "wait_1" in figures:
        lines += [*table(HEAD, _requests(figures)), "", *_singles(figures), ""]
    if "agent_client" in figures:
        lines += [*editors.lines(figures), ""]
    if "agent_communication" in figures:
        lines += [*callers.lines(figures), ""]
    if "growth" in figures:
        lines += [*growth.lines(figures["growth"]), ""]
    if "workers" in figures:
        lines += [*workers.lines(figures["workers"]), ""]
    if "peers" in figures:
        lines += [*peers.lines(figures["peers"]), ""]
    lines += [f"{report['sizes']} run, {report['seconds']:.0f} s", ""]
    return "\n".join([*lines, *wanted.lines(figures)])


def _requests(figures: Figures) -> list[tuple[str, ...]]:
    rows = []
    for name, title in (("wait_1", "/runs/wait, one at a time"), ("wait_many", f"/runs/wait, {MANY} at once")):
        one = figures[name]
        rows.append(_costs(f"{title}, us CPU a request", one))
        rows.append(_row("  ms p50", one, "p50", added=True))
        rows.append(_row("  ms p99", one, "p99"))
        rows.append(_row("  requests/s", one, "per_second"))
    for name, one in figures.items():
        if name.startswith("stream_"):
            rows.append(_costs(f"{name.removeprefix('stream_')} paced streams, us CPU a chunk", one))
            rows.append(_row("  ms p50", one, "p50", added=True))
            rows.append(_row("  ms p99", one, "p99"))
            rows.append(_row("  ms to the first chunk", one, "first"))
    one = figures["saturate"]
    rows.append(_costs("streams as fast as they go, us CPU a chunk", one))
    rows.append(_row("  chunks/s (in)", one, "per_second"))
    rows.append(_row("  snapshots/s (out)", one, "snapshots_per_second"))
    rows.append(_row("  MB/s to the client", one, "megabytes_per_second"))
    return rows


def _costs(title: str, one: Figures) -> tuple[str, ...]:
    costs = {way: one["cpu_us"].get(way) for way in WAYS}
    return title, *_of(costs), *(number(costs[way]) for way in WAYS), ""


def _row(title: str, one: Figures, name: str, *, added: bool = False) -> tuple[str, ...]:
    values = {way: one[way][name] for way in WAYS}
    more = number(one["added_ms"]["through"]) if added else ""
    return title, *_of(values), *(number(values[way]) for way in WAYS), more


def _of(values: dict[str, float | None]) -> tuple[str, str]:
    own = values["through"]
    bare, lean = (own / other if own is not None and (other := values[way]) else None for way in ("bare", "lean"))
    return number(bare), number(lean)


def _singles(figures: Figures) -> list[str]:
    memory, whole, start = figures["memory"], figures["whole"], figures["start"]
    one = figures["saturate"]
    cores = ", ".join(f"{who} {number(share)}" for who, share in one["cores"].items())
    texts = [
        f"{int(size) // 1000} KB from deltas: {at['seconds']:.2f} s (direct {at['direct_seconds']:.2f}), "
        f"{at['bytes'] / 1e6:.1f} MB in {int(at['events'])} snapshots"
        for size, at in whole["sizes"].items()
    ]
    return [
        f"start to ready: {start['seconds']:.2f} s, {number(start['cpu'])} s of processor time; the imports of a "
        f"minimal server take {number(start['imports'])} s. At rest it takes {number(figures['idle_cores'])} of a core",
        f"memory: {memory['fresh_mb']:.0f} MB fresh, {memory['idle_mb']:.0f} MB idle, {memory['open_mb']:.0f} MB with "
        f"{memory['streams']} open streams ({memory['per_stream_kb']:.0f} KB each), "
        f"{memory['per_thread_kb']:.1f} KB an idle thread",
        *texts,
        f"cores taken with streams as fast as they go: {cores}",
    ]
