"""Real Helm: charts rendered and checked by its SDK, in a process of its own; see `tests/peers/helm_charts.py`."""

from __future__ import annotations

import atexit
import functools
import json
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.peers import PEERS, node, peer_modules, peer_python
from tests.support.processes import ROOT

CHART = ROOT / "helm" / "interlingua"
VERSIONS = ("1.30", "1.34", "1.37")
"""The oldest Kubernetes that the chart takes, one in the middle, and the newest whose schemas there are."""
WITHIN = 60.0


class Helm:
    """The process; one for all tests of a worker. Made by `helm`."""

    def __init__(self) -> None:
        argv = [str(peer_python("helm")), "-P", str(PEERS / "helm_charts.py")]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self._end)

    def ask(self, *words: Any) -> dict[str, Any]:
        """One request and its answer."""
        process = self._process
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(words).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], WITHIN)
        assert ready, f"Helm does not answer: {words}"
        line = process.stdout.readline()
        assert line, f"Helm has ended: {words}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def render(self, values: Mapping[str, Any] | None = None, chart: Path = CHART, **options: Any) -> Release:
        """A release `gw` in the namespace `ns`. RefusedChart if Helm refuses the values."""
        answer = self.ask("render", str(chart), values or {}, {"name": "gw", "namespace": "ns", **options})
        if "error" in answer:
            raise RefusedChart(answer["error"])
        return Release(answer["files"])

    def mistakes(self, document: Mapping[str, Any], version: str) -> Sequence[str]:
        """What Kubernetes of a version would not take of a document."""
        found: list[str] = self.ask("kubernetes", document, version)["mistakes"]
        return [f"{document['kind']}: {mistake}" for mistake in found]

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


@functools.cache
def helm() -> Helm:
    """The one of this process."""
    return Helm()


CUSTOM = {
    "HTTPRoute": "gateway-api/gateway.networking.k8s.io/v1",
    "PodMonitor": "prometheus-operator/monitoring.coreos.com/v1",
    "ServiceMonitor": "prometheus-operator/monitoring.coreos.com/v1",
    "PrometheusRule": "prometheus-operator/monitoring.coreos.com/v1",
    "ExternalSecret": "external-secrets/external-secrets.io/v1",
}
"""Kinds that are not Kubernetes' own, and where their types are."""


def custom_mistakes(documents: Sequence[Mapping[str, Any]], folder: Path) -> Sequence[str]:
    """What is wrong with documents of `CUSTOM` kinds, by their types for TypeScript, which know no other field."""
    (folder / "node_modules").symlink_to(peer_modules("kubernetes-models") / "node_modules")
    lines = [f'import type {{ I{kind} }} from "@kubernetes-models/{at}/{kind}";' for kind, at in CUSTOM.items()]
    lines += [f"export const v{n}: I{each['kind']} = {json.dumps(each)};" for n, each in enumerate(documents)]
    (folder / "check.mts").write_text("\n".join(lines), encoding="utf-8")
    compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"]
    argv = [str(node()), str(compiler), *options, "check.mts"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder, timeout=WITHIN * 3)
    found = done.stdout.splitlines()
    assert bool(found) is bool(done.returncode), done.stderr
    return found


class RefusedChart(Exception):
    """Helm would not render the chart; the message is what its user reads."""


class Release:
    """What Helm made of a chart: its documents, in the order of their files."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.notes = "".join(text for name, text in files.items() if name.endswith("NOTES.txt"))
        texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
        self.documents: list[dict[str, Any]] = [
            document for text in texts for document in yaml.safe_load_all(text) if document
        ]

    def kinds(self) -> list[str]:
        """The kinds of its documents, sorted."""
        return sorted(document["kind"] for document in self.documents)

    def one(self, kind: str, name: str | None = None) -> dict[str, Any]:
        """Its only document of a kind, or that of this name."""
        found = [each for each in self.documents if each["kind"] == kind and name in (None, each["metadata"]["name"])]
        assert len(found) == 1, f"{kind} {name or ''}: {len(found)} of {self.kinds()}"
        return found[0]

    def workload(self) -> dict[str, Any]:
        """The only Deployment or StatefulSet."""
        (found,) = [each for each in self.documents if each["kind"] in ("Deployment", "StatefulSet")]
        return found

    def pod(self) -> dict[str, Any]:
        """The spec of the workload's pods."""
        spec: dict[str, Any] = self.workload()["spec"]["template"]["spec"]
        return spec

    def gateway(self) -> dict[str, Any]:
        """The gateway's container in the workload's pods."""
        return gateway_of(self.pod())

    def routes(self) -> dict[str, Any]:
        """routes.yaml of the gateway's ConfigMap."""
        (found,) = [each for each in self.documents if "routes.yaml" in each.get("data", {})]
        routes: dict[str, Any] = yaml.safe_load(found["data"]["routes.yaml"])
        return routes


def gateway_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The gateway's container of a pod, on its own or beside an agent."""
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    (found,) = [each for each in containers if each["name"] in ("gateway", "interlingua")]
    return dict(found)
