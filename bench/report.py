"""Figures to text and JSON, and which targets they hit."""

from __future__ import annotations

import os
import platform

from bench.agent_client import report as editors
from bench.agent_communication import report as callers
from bench.rounds import Figures
from bench.sizes import MANY
from bench.tables import Target, hits, number, table

LINEAR = 1.3
"""A time that grows by more than this times the size has grown is not linear. Bytes must not."""


def _linear(figures: Figures) -> float:
    whole = figures["whole"]
    return float(max(whole["time_growth"], whole["bytes_growth"]) / whole["growth"])


def _worst_chunk(figures: Figures) -> float:
    return float(max(one["added_ms"] for name, one in figures.items() if name.startswith("stream_")))


TARGETS = (
    Target("added to /runs/wait, one at a time", "<= 1 ms", lambda f: f["wait_1"]["added_ms"], lambda x: x <= 1, "ms"),
    Target("added to a streamed chunk, worst case", "<= 0.1 ms", _worst_chunk, lambda x: x <= 0.1, "ms"),
    Target(
        f"/runs/wait, {MANY} at once",
        ">= 3000/s",
        lambda f: f["wait_many"]["through"]["per_second"],
        lambda x: x >= 3000,
        "/s",
    ),
    Target(
        "streamed chunks",
        ">= 30000/s",
        lambda f: f["saturate"]["through"]["per_second"],
        lambda x: x >= 30000,
        "/s",
    ),
    Target(
        "memory above idle, 100 open streams",
        "<= 50 MB",
        lambda f: f["memory"]["per_stream_kb"] * 100 / 1e3,
        lambda x: x <= 50,
        "MB",
    ),
    Target("large answer, growth beyond its size", f"<= {LINEAR:g}", _linear, lambda x: x <= LINEAR, ""),
)


def judged(figures: Figures) -> list[Figures]:
    """The targets of the parts that were measured, each `hit` or not."""
    targets = list(TARGETS if _has_requests(figures) else ())
    targets += editors.TARGETS if _has_editors(figures) else ()
    targets += callers.TARGETS if _has_callers(figures) else ()
    return [target.judged(figures) for target in targets]


def _has_requests(figures: Figures) -> bool:
    return "wait_1" in figures


def _has_editors(figures: Figures) -> bool:
    return "agent_client" in figures


def _has_callers(figures: Figures) -> bool:
    return "agent_communication" in figures


def machine() -> Figures:
    """Where it was measured. `load` is how many processes wanted a core in the minute before."""
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def text(report: Figures) -> str:
    """What a person reads."""
    figures, here = report["figures"], report["machine"]
    lines = [
        f"{here['cores']} cores, load {number(here['load'])} before, Python {here['python']}, {here['system']}; "
        f"an fsync takes {number(figures['sync_ms'])} ms here" + ("" if figures["fsync"] else " (the store does none)"),
        "",
    ]
    if _has_requests(figures):
        lines += [*table(("", "direct", "bare proxy", "gateway", "added", "of bare"), _latencies(figures)), ""]
        lines += table(("cores taken", "load", "agent", "gateway", "CPU, gateway", "bare proxy"), _costs(figures))
        lines += ["", *_singles(figures), ""]
    if _has_editors(figures):
        lines += [*editors.lines(figures), ""]
    if _has_callers(figures):
        lines += [*callers.lines(figures), ""]
    return "\n".join([*lines, *hits(report["targets"]), "", f"{report['sizes']} run, {report['seconds']:.0f} s"])


def _latencies(figures: Figures) -> list[tuple[str, ...]]:
    rows = []
    for name, title in (("wait_1", "/runs/wait, one at a time"), ("wait_many", f"/runs/wait, {MANY} at once")):
        one = figures[name]
        rows.append(_pair(f"{title}, ms p50", one, "p50", one["added_ms"]))
        rows.append(_pair("  p99", one, "p99"))
        rows.append(_pair("  requests/s", one, "per_second"))
    for name, one in figures.items():
        if name.startswith("stream_"):
            rows.append(_pair(f"chunk, {name.removeprefix('stream_')} streams, ms p50", one, "p50", one["added_ms"]))
            rows.append(_pair("  p99", one, "p99"))
            rows.append(_pair("  to the first chunk", one, "first", one["added_first_ms"]))
    one = figures["saturate"]
    rows.append(_pair("chunks/s (in)", one, "per_second"))
    rows.append(_pair("  snapshots/s (out)", one, "snapshots_per_second"))
    rows.append(_pair("  MB/s to the client", one, "megabytes_per_second"))
    for size, one in figures["whole"]["sizes"].items():
        both: Figures = {"direct": {"s": one["direct_seconds"]}, "through": {"s": one["seconds"]}}
        rows.append(_pair(f"{int(size) // 1000} KB from deltas, s", both, "s", one["seconds"] - one["direct_seconds"]))
        both = {"direct": {"mb": one["direct_bytes"] / 1e6}, "through": {"mb": one["bytes"] / 1e6}}
        rows.append(_pair(f"  MB sent, {int(one['events'])} snapshots", both, "mb"))
    return rows


def _pair(title: str, one: Figures, name: str, added: float | None = None) -> tuple[str, ...]:
    direct, through = one["direct"][name], one["through"][name]
    bare = one["bare"][name] if "bare" in one else None
    ratio = f"{through / bare:.2f}" if bare else "-"
    return title, number(direct), number(bare), number(through), number(added), ratio


def _costs(figures: Figures) -> list[tuple[str, ...]]:
    rows = []
    for name, unit in (("wait_1", "request"), ("wait_many", "request"), *_stream_names(figures), ("saturate", "chunk")):
        one = figures[name]
        cores = [number(one["cores"][who]) for who in ("load", "agent", "gateway")]
        rows.append((name, *cores, f"{number(one['gateway_cpu_us'])} us a {unit}", number(one["bare_cpu_us"])))
    return rows


def _stream_names(figures: Figures) -> list[tuple[str, str]]:
    return [(name, "chunk") for name in figures if name.startswith("stream_")]


def _singles(figures: Figures) -> list[str]:
    memory, whole = figures["memory"], figures["whole"]
    return [
        f"start-up: {figures['start']['seconds']:.2f} s; at rest it takes {number(figures['idle_cores'])} of a core",
        f"memory: {memory['fresh_mb']:.0f} MB fresh, {memory['idle_mb']:.0f} MB idle, {memory['open_mb']:.0f} MB with "
        f"{memory['streams']} open streams ({memory['per_stream_kb']:.0f} KB each), "
        f"{memory['per_thread_kb']:.1f} KB an idle thread",
        f"large answer: {whole['growth']:.1f} times the size takes {whole['time_growth']:.1f} times the time, "
        f"{whole['bytes_growth']:.1f} times the bytes",
    ]
