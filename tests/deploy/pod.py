"""The manifests of deploy/kubernetes, and a pod of theirs run as a kubelet would, with processes for containers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import PROGRAM, ROOT, Process, free_port, start, url_answers

FOLDER = ROOT / "deploy" / "kubernetes"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
AGENT = re.compile(r"http://[\w.]+:9001")
"""Where the manifests' routes look for their agent."""


class Manifest:
    """One file: its documents by kind, of which there is one each."""

    def __init__(self, name: str) -> None:
        self.file = FOLDER / f"{name}.yaml"
        documents = list(yaml.safe_load_all(self.file.read_text(encoding="utf-8")))
        self.kinds: dict[str, dict[str, Any]] = {document["kind"]: document for document in documents}
        assert len(self.kinds) == len(documents)
        workload = self.kinds.get("Deployment") or self.kinds["StatefulSet"]
        self.workload: dict[str, Any] = workload["spec"]
        self.pod: dict[str, Any] = self.workload["template"]["spec"]
        self.containers: list[dict[str, Any]] = [*self.pod.get("initContainers", ()), *self.pod["containers"]]
        (self.gateway,) = (container for container in self.containers if container["name"] == "gateway")
        self.routes: str = self.kinds["ConfigMap"]["data"]["routes.yaml"]

    @property
    def secrets(self) -> Mapping[str, str]:
        """What the routes want of the environment, and so the Secret has: names, and values that are their own."""
        return {name: f"the {name}" for name in re.findall(r"\$\{(\w+)\}", self.routes)}


class Pod:
    """The gateway's container of a manifest on this machine: `run` it, and `run` it again on the same volumes.

    Folders in `folder` are mounted where it expects its volumes, the agent is at `agent`, the port is a free one.
    Everything else is the manifest's.
    """

    def __init__(self, manifest: Manifest, folder: Path, agent: str) -> None:
        self.manifest = manifest
        self.port = free_port()
        self.volumes = {mount["mountPath"]: folder / mount["name"] for mount in manifest.gateway["volumeMounts"]}
        for place in (*self.volumes.values(), folder / "root"):
            place.mkdir()
        self.root = folder / "root"
        self.routes = self.volumes["/etc/interlingua"] / "routes.yaml"
        self.routes.write_text(AGENT.sub(agent, self._here(manifest.routes)), encoding="utf-8")

    @property
    def url(self) -> str:
        """Where the container's port is here."""
        return f"http://127.0.0.1:{self.port}"

    def run(self) -> AbstractContextManager[Process]:
        """Begin; given once the startup probe has been answered."""
        (port,) = self.manifest.gateway["ports"]
        moved = {str(port["containerPort"]): str(self.port)}
        arguments = [moved.get(argument, self._here(argument)) for argument in self.manifest.gateway["args"]]
        nowhere = {"HOME": "/nonexistent", "TMPDIR": str(self.volumes["/tmp"])}
        return start(
            [*PROGRAM, *arguments],
            {**self.manifest.secrets, **nowhere},
            cwd=self.root,
            ready=self.probe("startupProbe"),
        )

    def probe(self, kind: str) -> Callable[[], bool]:
        """A probe of the container, as its kubelet asks."""
        request = self.manifest.gateway[kind]["httpGet"]
        assert request["port"] in [port["name"] for port in self.manifest.gateway["ports"]]
        return url_answers(f"{self.url}{request['path']}")

    def written(self) -> Sequence[Path]:
        """What lies in places that the container must not write to, but its routes."""
        read_only = [place for path, place in self.volumes.items() if path != "/var/lib/interlingua"]
        found = [file for place in (self.root, *read_only) for file in place.rglob("*")]
        return [file for file in found if file != self.routes]

    def _here(self, text: str) -> str:
        return re.sub("|".join(self.volumes), lambda path: str(self.volumes[path.group()]), text)
