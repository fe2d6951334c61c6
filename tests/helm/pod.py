"""Pods that the chart renders, run on this machine as a kubelet would, with processes for containers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.support.helm import Release, gateway_of
from tests.support.processes import PROGRAM, ROOT, Process, environment, free_port, start, url_answers

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
AGENT = re.compile(r"http://[\w.-]+:9001")
"""Where the routes look for their agent."""
WITHIN = 150.0


class Pod:
    """A pod's gateway container: `run` it, and `run` it again on the same volumes.

    Folders in `folder` are mounted where it expects its volumes, the agent is at `agent`, ports are free ones here, and
    `secrets` are what the cluster has: keys by the name of the Secret. Everything else is what was rendered.
    """

    def __init__(
        self,
        release: Release,
        spec: Mapping[str, Any],
        folder: Path,
        agent: str,
        *,
        secrets: Mapping[str, Mapping[str, str]] | None = None,
        authority: Path | None = None,
    ) -> None:
        self.release, self.spec, self.secrets = release, spec, secrets or {}
        self.authority = authority
        self.container = gateway_of(spec)
        self.port = free_port()
        (port,) = self.container["ports"]
        self._moved = {str(port["containerPort"]): str(self.port)}
        self.mounts = {mount["mountPath"]: folder / mount["name"] for mount in self.container["volumeMounts"]}
        self.root = folder / "root"
        for place in (*self.mounts.values(), self.root):
            place.mkdir()
        self._agent = agent
        (volume,) = [each for each in spec["volumes"] if each["name"] == "interlingua-routes"]
        self.mount_routes(release.one("ConfigMap", volume["configMap"]["name"])["data"])

    @property
    def url(self) -> str:
        """Where the container's port is here."""
        return f"http{'s' if '--tls-cert' in self.container['args'] else ''}://127.0.0.1:{self.port}"

    def mount_routes(self, data: Mapping[str, str]) -> None:
        """Mounts a ConfigMap, or its change, as a kubelet does: a new folder, and one link that is swapped."""
        place = self.mounts["/etc/interlingua"]
        folder = place / f"..{len(list(place.iterdir()))}"
        folder.mkdir()
        for name, text in data.items():
            (folder / name).write_text(AGENT.sub(self._agent, self.here(text)), encoding="utf-8")
            if not (place / name).is_symlink():
                (place / name).symlink_to(Path("..data", name))
        (place / "..new").symlink_to(folder.name)
        os.replace(place / "..new", place / "..data")

    def run(self, *, fresh: bool = False) -> AbstractContextManager[Process]:
        """Begin; given once the startup probe has been answered."""
        return start(
            [*PROGRAM, *map(self.here, self.container["args"])],
            self.variables(self.container),
            cwd=self.root,
            ready=self.probe("startupProbe"),
            grace=float(self.spec.get("terminationGracePeriodSeconds", 30)),
            fresh=fresh,
        )

    def variables(self, container: Mapping[str, Any]) -> dict[str, str]:
        """The environment of a container: its Secrets, the pod's fields, and references to either."""
        found: dict[str, str] = {"HOME": "/nonexistent", "TMPDIR": str(self.mounts["/tmp"])}
        for source in container.get("envFrom", ()):
            found |= self.secrets[source["secretRef"]["name"]]
        for variable in container.get("env", ()):
            origin = variable.get("valueFrom", {})
            if "secretKeyRef" in origin:
                key = origin["secretKeyRef"]
                found[variable["name"]] = self.secrets[key["name"]][key["key"]]
            elif "fieldRef" in origin:
                found[variable["name"]] = origin["fieldRef"]["fieldPath"]
            else:
                value = re.sub(r"\$\((\w+)\)", lambda name: found.get(name[1], name[0]), variable["value"])
                found[variable["name"]] = self.here(value)
        return found

    def probe(self, kind: str) -> Callable[[], bool]:
        """A probe of the container, as its kubelet makes it."""
        probe = self.container[kind]
        if "exec" in probe:
            return self._inside(probe["exec"]["command"])
        request = probe["httpGet"]
        assert request["port"] in [port["name"] for port in self.container["ports"]]
        assert (request.get("scheme") == "HTTPS") == self.url.startswith("https")
        return url_answers(f"{self.url}{request['path']}", self.authority)

    def _inside(self, command: Sequence[str]) -> Callable[[], bool]:
        assert command[0] == "python"
        argv = [sys.executable, *map(self.here, command[1:])]
        return lambda: subprocess.run(argv, check=False, capture_output=True, timeout=WITHIN).returncode == 0

    def command(self, container: Mapping[str, Any]) -> AbstractContextManager[Process]:
        """Another container of the gateway's image, as one of this pod or beside it: its command at this gateway."""
        return start(
            [*PROGRAM, *map(self.here, container["args"])], {**environment(), **self.variables(container)}, cwd=ROOT
        )

    def written(self) -> Sequence[Path]:
        """What lies in places that the container must not write to."""
        read_only = [place for path, place in self.mounts.items() if path in ("/tmp", "/tls")]
        found = [file for place in (self.root, *read_only) for file in place.rglob("*")]
        routes = self.mounts["/etc/interlingua"]
        found += [file for file in routes.rglob("*") if file.suffix not in (".yaml", "") and ".." not in file.name]
        return found

    def here(self, text: str) -> str:
        """With what is elsewhere on this machine: mounts, the port, the gateway's Service."""
        text = re.sub(r"https?://[\w.-]+:8080", self.url, text)
        mounts = f"({'|'.join(map(re.escape, self.mounts))})(?![\\w.-])"
        text = re.sub(mounts, lambda path: str(self.mounts[path[1]]), text)
        text = re.sub(r"(?<=127\.0\.0\.1:)8080", str(self.port), text)
        return self._moved.get(text, text)
