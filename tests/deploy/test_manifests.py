"""The manifests of deploy/: what Kubernetes takes, what is promised of their security, and that their parts fit."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.config import Config, Limits, loads
from gateway.config.exposure import cautions
from tests.deploy.pod import FOLDER, PROBES, Manifest
from tests.support.processes import ROOT

NAMES = ("sidecar", "gateway")
SCHEMA = json.loads((ROOT / "tests" / "specs" / "kubernetes" / "1.30.schema.json").read_text(encoding="utf-8"))
"""Of the oldest Kubernetes that docs/deployment.md promises."""
TO_SPARE = 5
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")

each = pytest.mark.parametrize("manifest", [pytest.param(Manifest(name), id=name) for name in NAMES])


def config(manifest: Manifest) -> Config:
    return loads(manifest.routes, env=manifest.secrets)


def mistakes(document: dict[str, Any]) -> list[str]:
    """What is wrong with a document of a manifest, by the JSON Schema of its kind."""
    (kind,) = (name for name in SCHEMA["$defs"] if name.endswith(f".{document['kind']}"))
    validator = Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{kind}"})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


def test_every_manifest_is_tested() -> None:
    assert sorted(FOLDER.iterdir()) == sorted(FOLDER / f"{name}.yaml" for name in NAMES)


@each
def test_kubernetes_takes_it(manifest: Manifest) -> None:
    assert [mistake for document in manifest.kinds.values() for mistake in mistakes(document)] == []


def test_kubernetes_would_not_take_a_field_that_it_does_not_know() -> None:
    wrong = Manifest("sidecar")
    wrong.gateway["securityContext"]["readOnlyRootFileSystem"] = True
    (mistake,) = mistakes(wrong.kinds["Deployment"])
    assert "'readOnlyRootFileSystem' was unexpected" in mistake


@each
def test_their_routes_may_be_served_to_a_network(manifest: Manifest) -> None:
    assert "0.0.0.0" in manifest.gateway["args"]
    assert cautions(config(manifest)) == ()


@each
def test_the_page_says_how_to_make_the_secret_that_the_routes_need(manifest: Manifest) -> None:
    ((secret,),) = (source.values() for source in manifest.gateway["envFrom"])
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(rf"^kubectl create secret generic {secret['name']} (.*)$", page, re.MULTILINE)
    assert set(re.findall(r"--from-literal=(\w+)=", command)) == set(manifest.secrets)


@each
def test_every_name_leads_somewhere(manifest: Manifest) -> None:
    labels = manifest.workload["template"]["metadata"]["labels"]
    service = manifest.kinds["Service"]
    assert manifest.workload["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    assert manifest.workload.get("serviceName", service["metadata"]["name"]) == service["metadata"]["name"]
    ports = {port["name"]: port["containerPort"] for port in manifest.gateway["ports"]}
    (way,) = service["spec"]["ports"]
    assert way["targetPort"] in ports
    assert config(manifest).public_url == f"http://{service['metadata']['name']}:{way['port']}"
    claims = [claim["metadata"]["name"] for claim in manifest.workload.get("volumeClaimTemplates", ())]
    volumes = {volume["name"]: volume for volume in manifest.pod["volumes"]}
    mounts = {mount["name"] for mount in manifest.gateway["volumeMounts"]}
    assert sorted(mounts) == sorted([*volumes, *claims])
    assert volumes["routes"]["configMap"]["name"] == manifest.kinds["ConfigMap"]["metadata"]["name"]
    assert not any("subPath" in mount for mount in manifest.gateway["volumeMounts"]), "it would never change"


@each
def test_the_grace_is_longer_than_what_has_to_happen_in_it(manifest: Manifest) -> None:
    hooks = [container.get("lifecycle", {}).get("preStop", {}) for container in manifest.containers]
    slept = max(hook.get("sleep", {}).get("seconds", 0) for hook in hooks)
    assert slept > 0, "a Service goes on sending for a moment"
    needed = slept + config(manifest).limits.shutdown + TO_SPARE
    assert manifest.pod["terminationGracePeriodSeconds"] >= needed


@each
def test_they_keep_to_the_restricted_pod_security_standard(manifest: Manifest) -> None:
    assert manifest.pod["securityContext"]["runAsNonRoot"] is True
    assert manifest.pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert manifest.pod["automountServiceAccountToken"] is False
    for container in manifest.containers:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert manifest.gateway["securityContext"]["readOnlyRootFilesystem"] is True


@each
def test_the_gateway_is_probed_and_has_its_limits(manifest: Manifest) -> None:
    paths = [manifest.gateway[probe]["httpGet"]["path"] for probe in PROBES]
    assert paths == ["/healthz", "/healthz", "/readyz"]
    assert manifest.gateway["resources"].keys() == {"requests", "limits"}
    assert "cpu" not in manifest.gateway["resources"]["limits"], "it would be throttled in the middle of a stream"
    assert manifest.workload["replicas"] == 1


def test_the_image_runs_what_the_manifests_do_as_the_user_that_they_expect() -> None:
    said = dict(line.split(" ", 1) for line in DOCKERFILE.splitlines() if re.match("ENTRYPOINT|CMD|USER", line))
    assert json.loads(said["ENTRYPOINT"]) == ["interlingua"]
    command = json.loads(said["CMD"])
    user, _, group = said["USER"].partition(":")
    assert int(user) > 0
    for name in NAMES:
        manifest = Manifest(name)
        assert manifest.gateway["args"][: len(command)] == command
        assert manifest.pod["securityContext"].get("fsGroup", int(group)) == int(group)


def test_the_service_of_a_machine_without_containers_runs_it_too() -> None:
    unit = (ROOT / "deploy" / "interlingua.service").read_text(encoding="utf-8")
    assert re.search(r"^ExecStart=\S+/interlingua serve /etc/interlingua/routes.yaml$", unit, re.MULTILINE)
    (grace,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(grace) >= Limits().shutdown + TO_SPARE
