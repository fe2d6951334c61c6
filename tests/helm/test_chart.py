"""helm/interlingua rendered by Helm at the edges of its values: what Kubernetes takes, and that the parts fit."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from gateway.config import loads
from gateway.config.exposure import cautions
from tests.helm.pod import PROBES
from tests.support.helm import CHART, CUSTOM, VERSIONS, RefusedChart, Release, custom_mistakes, gateway_of, helm
from tests.support.processes import ROOT

EXAMPLES = ROOT / "helm" / "examples"
SHARED = {"store": {"url": "postgresql://gateway:${PASSWORD}@db/gateway"}, "secrets": ["gateway"]}
ROUTE = {"name": "mailcomposer", "target": {"protocol": "agent_connect", "url": "http://mailcomposer:9001"}}
EVERYTHING: dict[str, Any] = {
    **SHARED,
    "replicas": 2,
    "fullnameOverride": "g" * 70,
    "labels": {"team": "agents"},
    "image": {"repository": "registry.example.com/interlingua", "digest": f"sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "config": {"routes": [ROUTE], "limits": {"shutdown": "1m30s"}},
    "files": {"ACP.md": "---\nname: x\n---\n# X\n"},
    "envFrom": [{"configMapRef": {"name": "proxies"}}],
    "env": [{"name": "TZ", "value": "UTC"}],
    "logLevel": "debug",
    "extraArgs": ["--no-watch"],
    "host": "::",
    "port": 9443,
    "tls": {"secret": "certificate"},
    "service": {"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "controller": "nginx",
        "hosts": ["agents.example.com", "two.example.com"],
        "tlsSecret": "agents",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "8m"},
    },
    "httpRoute": {
        "enabled": True,
        "parentRefs": [{"name": "public", "namespace": "gateways"}],
        "hostnames": ["agents.example.com"],
        "sessionPersistence": {"type": "Cookie", "sessionName": "interlingua"},
    },
    "networkPolicy": {
        "enabled": True,
        "clients": [{"podSelector": {"matchLabels": {"app": "ide"}}}],
        "monitoring": [{"namespaceSelector": {}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
    },
    "autoscaling": {"enabled": True, "activeRuns": 50},
    "affinity": {"podAntiAffinity": {}},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "agents", "operator": "Exists"}],
    "priorityClassName": "high",
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "extraVolumes": [{"name": "agents", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "agents", "mountPath": "/agents"}],
    "extraInitContainers": [{"name": "before", "image": "busybox"}],
    "extraContainers": [{"name": "beside", "image": "busybox"}],
    "serviceAccount": {"annotations": {"e": "f"}},
    "monitoring": {
        "secret": {"name": "scraper"},
        "podMonitor": {"enabled": True, "labels": {"release": "p"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "p"}},
        "rules": {"enabled": True, "labels": {"release": "p"}, "annotations": {"a": "b"}},
        "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Agents"}},
    },
    "test": {"secret": {"name": "tester"}, "answers": ["yes"]},
}


def example(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((EXAMPLES / f"{name}.values.yaml").read_text(encoding="utf-8")))


CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "on no volume": {"persistence": {"enabled": False}},
    "on a claim that is there": {"persistence": {"existingClaim": "old"}},
    "watched, with SQLite": {"monitoring": EVERYTHING["monitoring"], "serviceAccount": {"create": False}},
    "on PostgreSQL": SHARED,
    "several": {**SHARED, "replicas": 3, "ingress": {"enabled": True, "controller": "alb", "hosts": ["a.b"]}},
    "behind haproxy": {
        **SHARED,
        "replicas": 2,
        "ingress": {"enabled": True, "controller": "haproxy", "hosts": ["a.b"]},
    },
    "everything": EVERYTHING,
    "beside an agent": {"mode": "sidecar", "monitoring": EVERYTHING["monitoring"]},
    **{
        file.name: example(file.name.removesuffix(".values.yaml"))
        for file in EXAMPLES.glob("[gp]*.values.yaml")
        if "adapter" not in file.name
    },
}
each = pytest.mark.parametrize("case", CASES)
_rendered: dict[str, Release] = {}


def rendered(case: str) -> Release:
    if case not in _rendered:
        _rendered[case] = helm().render(CASES[case])
    return _rendered[case]


def of_its_own(case: str) -> bool:
    return CASES[case].get("mode") != "sidecar"


def test_it_is_real_helm() -> None:
    assert re.match(r"v[34]\.", helm().ask("versions")["helm"])


# --- what is rendered ------------------------------------------------------------------------------------------------


@each
def test_kubernetes_takes_it(case: str) -> None:
    own = [document for document in rendered(case).documents if document["kind"] not in CUSTOM]
    assert [wrong for document in own for version in VERSIONS for wrong in helm().mistakes(document, version)] == []


def test_kubernetes_would_not_take_a_field_that_it_does_not_know() -> None:
    workload = helm().render().workload()
    workload["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
    (mistake,) = helm().mistakes(workload, VERSIONS[-1])
    assert "'readOnlyRootFileSystem' was unexpected" in mistake


def test_operators_take_what_is_for_them(tmp_path: Path) -> None:
    custom = [document for case in CASES for document in rendered(case).documents if document["kind"] in CUSTOM]
    custom += yaml.safe_load_all((EXAMPLES / "external-secrets.yaml").read_text(encoding="utf-8"))
    assert {document["kind"] for document in custom} == {*CUSTOM}
    wrong = json.loads(json.dumps(rendered("everything").one("PodMonitor")))
    wrong["spec"]["podMetricsEndpoints"][0]["intervall"] = "30s"
    (mistake,) = custom_mistakes([*custom, wrong], tmp_path)
    assert f"check.mts({len(CUSTOM) + len(custom) + 1}," in mistake and "intervall" in mistake


@each
def test_names_and_labels_are_short_enough_and_used_once(case: str) -> None:
    documents = rendered(case).documents
    names = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert len(set(names)) == len(names)
    for document in documents:
        assert len(document["metadata"]["name"]) <= 63
        assert all(len(value) <= 63 for value in document["metadata"]["labels"].values())


@each
def test_its_routes_are_read_and_may_be_served_to_a_network(case: str) -> None:
    release = rendered(case)
    text = yaml.safe_dump(release.routes())
    config = loads(
        text.replace("postgresql://", "sqlite:///"),
        env={name: "sqlite:///a-secret-of-more-than-thirty-two-bytes" for name in re.findall(r"\$\{(\w+)\}", text)},
    )
    assert cautions(config) == ()
    if CASES[case].get("monitoring", {}).get("secret"):
        assert len(config.telemetry.monitors.tokens) == 1


@each
def test_it_keeps_to_the_restricted_pod_security_standard(case: str) -> None:
    release = rendered(case)
    pods = [release.pod()] if of_its_own(case) else []
    pods += [document["spec"] for document in release.documents if document["kind"] == "Pod"]
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            if container["name"] not in ("beside", "before"):
                context = container["securityContext"]
                assert context["runAsNonRoot"] is context["readOnlyRootFilesystem"] is True
                assert context["allowPrivilegeEscalation"] is False
                assert context["capabilities"] == {"drop": ["ALL"]}
                assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@each
def test_every_name_leads_somewhere(case: str) -> None:
    release = rendered(case)
    if not of_its_own(case):
        assert release.kinds() == ["ConfigMap", "ConfigMap", "PodMonitor", "PrometheusRule"]
        return
    workload, container, pod = release.workload()["spec"], release.gateway(), release.pod()
    name = release.workload()["metadata"]["name"]
    labels = workload["template"]["metadata"]["labels"]
    (port,) = container["ports"]
    service = release.one("Service")
    (way,) = service["spec"]["ports"]
    assert way["targetPort"] == port["name"]
    assert workload.get("serviceName", name) == service["metadata"]["name"] == name
    selectors = [workload["selector"]["matchLabels"], service["spec"]["selector"]]
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        if kind in release.kinds():
            selectors.append(release.one(kind)["spec"]["selector"]["matchLabels"])
    if "PodMonitor" in release.kinds():
        assert [each["port"] for each in release.one("PodMonitor")["spec"]["podMetricsEndpoints"]] == [port["name"]]
    if "NetworkPolicy" in release.kinds():
        policy = release.one("NetworkPolicy")["spec"]
        selectors.append(policy["podSelector"]["matchLabels"])
        assert {each["port"] for rule in policy["ingress"] for each in rule["ports"]} == {port["name"]}
    assert all(selector.items() <= labels.items() for selector in selectors)
    if "ServiceMonitor" in release.kinds():
        monitor = release.one("ServiceMonitor")["spec"]
        assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert [endpoint["port"] for endpoint in monitor["endpoints"]] == [way["name"]]
    for document in release.documents:
        if document["kind"] == "Ingress":
            rules = [path["backend"]["service"] for rule in document["spec"]["rules"] for path in rule["http"]["paths"]]
            assert all(rule == {"name": name, "port": {"name": way["name"]}} for rule in rules)
        if document["kind"] == "HTTPRoute":
            (rule,) = document["spec"]["rules"]
            assert rule["backendRefs"] == [{"name": name, "port": way["port"]}]
    volumes = [volume["name"] for volume in pod["volumes"]]
    volumes += [claim["metadata"]["name"] for claim in workload.get("volumeClaimTemplates", ())]
    assert len(set(volumes)) == len(volumes)
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    (routes,) = [volume for volume in pod["volumes"] if volume["name"] == "interlingua-routes"]
    assert "routes.yaml" in release.one("ConfigMap", routes["configMap"]["name"])["data"]
    assert not any("subPath" in mount for mount in container["volumeMounts"]), "it would never change"


@each
def test_the_grace_is_longer_than_what_has_to_happen_in_it(case: str) -> None:
    if of_its_own(case):
        release = rendered(case)
        shutdown = loads(f"limits: {json.dumps(release.routes()['limits'])}").limits.shutdown
        slept = release.gateway()["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert slept > 0, "a Service goes on sending for a moment"
        assert release.pod()["terminationGracePeriodSeconds"] == slept + shutdown + 15


@pytest.mark.parametrize(
    ("said", "seconds"), [("500ms", 1), ("20s", 20), ("1m30s", 90), ("1h 1m", 3660), (2.5, 3), ("7", 7), ("1d", 86400)]
)
def test_the_grace_follows_the_limits(said: str | float, seconds: int) -> None:
    assert loads(f"limits: {{shutdown: {json.dumps(said)}}}").limits.shutdown == pytest.approx(seconds, abs=0.6)
    release = helm().render({"config": {"limits": {"shutdown": said}}})
    assert release.pod()["terminationGracePeriodSeconds"] == 5 + seconds + 15


@each
def test_the_gateway_is_probed_and_has_its_limits(case: str) -> None:
    if of_its_own(case):
        container = rendered(case).gateway()
        requests = [container[probe]["httpGet"] for probe in PROBES]
        assert [request["path"] for request in requests] == ["/healthz", "/healthz", "/readyz"]
        tls = "tls" in CASES[case]
        assert {request.get("scheme", "HTTP") for request in requests} == {"HTTPS" if tls else "HTTP"}
        assert ("--tls-cert" in container["args"]) is tls
        assert "cpu" not in container["resources"]["limits"], "it would be throttled in the middle of a stream"


def test_several_workers_are_asked_for_and_one_is_not() -> None:
    args = helm().render({"workers": 3}).gateway()["args"]
    assert args[args.index("--workers") + 1] == "3"
    assert "--workers" not in helm().render({}).gateway()["args"]


def test_sqlite_has_one_pod_on_a_volume_and_postgresql_several_on_none() -> None:
    one, several = rendered("as it is"), rendered("several")
    assert (one.workload()["kind"], several.workload()["kind"]) == ("StatefulSet", "Deployment")
    assert one.workload()["spec"]["volumeClaimTemplates"]
    assert one.routes()["store"] == {
        "url": "sqlite:////var/lib/interlingua/store.db",
        "retention": {"age": "7d", "size": "8192MiB"},
    }
    assert several.routes()["store"] == SHARED["store"]
    assert "PodDisruptionBudget" not in one.kinds(), "its node could never be drained"
    assert "/var/lib/interlingua" not in [mount["mountPath"] for mount in several.gateway()["volumeMounts"]]
    assert several.workload()["spec"]["replicas"] == 3
    assert "replicas" not in rendered("everything").workload()["spec"], "it would undo what the autoscaler does"


def test_a_client_comes_back_to_its_pod_where_there_are_several() -> None:
    affinity = [rendered(case).one("Service")["spec"]["sessionAffinity"] for case in ("as it is", "several")]
    assert affinity == ["None", "ClientIP"]
    cookies = {
        "several": "alb.ingress.kubernetes.io/target-group-attributes",
        "behind haproxy": "haproxy.org/cookie-persistence",
        "everything": "nginx.ingress.kubernetes.io/affinity",
    }
    for case, annotation in cookies.items():
        assert annotation in rendered(case).one("Ingress")["metadata"]["annotations"]


def test_streams_are_not_cut_off_by_what_is_in_front() -> None:
    release = rendered("everything")
    (rule,) = release.one("HTTPRoute")["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s", "backendRequest": "0s"}
    annotations = release.one("Ingress")["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"] == "3600"
    assert annotations["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert annotations["nginx.ingress.kubernetes.io/proxy-body-size"] == "8m", "the user's own annotations count"


def test_the_gateway_is_told_what_path_its_ingress_gives_it() -> None:
    release = helm().render({"ingress": {"enabled": True, "hosts": ["a.b"], "path": "/agents/"}})
    assert release.routes()["public_url"] == "http://a.b/agents"


def test_routes_are_taken_without_a_restart_and_nothing_else_is() -> None:
    def checksum(**values: Any) -> str:
        template = helm().render(values).workload()["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/interlingua"])

    before = checksum()
    assert checksum(config={"routes": [ROUTE]}) == before
    assert checksum(files={"ACP.md": "# A"}) == before
    assert checksum(config={"limits": {"body": "9MB"}}) != before
    assert checksum(config={"public_url": "https://agents.example.com"}) != before


def test_the_notes_say_what_to_try() -> None:
    notes = helm().render({"config": {"routes": [ROUTE]}}).notes
    assert '"agent_id": "mailcomposer"' in notes
    assert "port-forward service/gw-interlingua 8080:8080" in notes
    assert "NOBODY IS ASKED WHO HE IS" in notes
    assert "NOBODY IS ASKED" not in rendered("gateway.values.yaml").notes
    assert "There are no agents yet" in rendered("as it is").notes
    assert (
        "keep them apart by a cookie" in rendered("on PostgreSQL").notes
        or CASES["on PostgreSQL"].get("replicas") is None
    )


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"replicas": 2}, "SQLite has one gateway"),
        ({"autoscaling": {"enabled": True}}, "SQLite has one gateway"),
        ({"store": {"url": "postgresql://a:secret@db/a"}}, "a ConfigMap is no place for one"),
        ({"store": {"url": "postgresql://db/a", "secret": {"name": "s"}}}, "url or secret, not both"),
        ({"store": {"url": "mysql://db/a"}}, "/store/url"),
        ({"config": {"store": {"url": "sqlite://"}}}, "config.store.url: the chart writes it"),
        ({"config": {"limits": {"shutdown": "${SOME}"}}}, "write the duration itself"),
        ({"host": "127.0.0.1"}, "nobody would reach"),
        ({"ingress": {"enabled": True}}, "ingress.hosts"),
        ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs"),
        ({**SHARED, "autoscaling": {"enabled": True, "cpu": 0}}, "to judge by"),
        ({**SHARED, "autoscaling": {"enabled": True, "maxReplicas": 1}}, "maxReplicas is less"),
        ({"replcas": 2}, "'replcas' not allowed"),
        ({"resources": {"limit": {}}}, "'limit' not allowed"),
        ({"env": [{"name": "A", "vlaue": "b"}]}, "'vlaue' not allowed"),
        ({"config": {"route": []}}, "'route' not allowed"),
        ({"config": {"routes": [{**ROUTE, "target": {**ROUTE["target"], "tkoen": "x"}}]}}, "'tkoen' not allowed"),  # type: ignore[dict-item]
        (
            {"config": {"routes": [{"name": "x", "target": {"protocol": "agent_conect"}}]}},
            "must be one of 'agent_client'",
        ),
        (
            {"config": {"routes": [{"name": "x", "target": {"protocol": "agent_connect", "url": "x:9001"}}]}},
            "'x:9001' does not match pattern",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused_with_a_sentence(values: dict[str, Any], told: str) -> None:
    with pytest.raises(RefusedChart, match=re.escape(told)):
        helm().render(values)


def mappings(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield above
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from mappings(value, (*above, key))


def test_a_typo_is_refused_wherever_it_stands() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    validator = Draft7Validator(json.loads((CHART / "values.schema.json").read_text(encoding="utf-8")))
    free = [("monitoring", "dashboard", "labels"), ("resources", "requests"), ("resources", "limits")]
    assert list(validator.iter_errors(defaults)) == []
    for path in mappings(defaults):
        values = json.loads(json.dumps(defaults))
        place = values
        for key in path:
            place = place[key]
        place["tpyo"] = "x"
        assert bool(list(validator.iter_errors(values))) is (path not in free), path


# --- the chart itself ------------------------------------------------------------------------------------------------


def test_helm_finds_no_fault_with_it() -> None:
    for version in VERSIONS:
        report = helm().ask("lint", str(CHART), {}, {"strict": True, "kube_version": f"v{version}.0"})
        assert [m for m in report["messages"] if m["error"] != "icon is recommended"] == report["errors"] == []


def test_kubernetes_objects_in_values_are_what_kubernetes_says() -> None:
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs" / "make.py")
    assert spec and spec.loader
    docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docs)
    make = docs.helm()
    assert json.loads(make.KUBERNETES.read_text()) == make.kubernetes(helm().ask("definitions", "1.37.0"))


def test_the_chart_is_of_the_version_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert [chart["appVersion"]] == version
    (dependency,) = yaml.safe_load((EXAMPLES / "sidecar-agent" / "Chart.yaml").read_text())["dependencies"]
    assert dependency["version"] == chart["version"]


def test_the_page_says_how_to_make_the_secret_of_the_example() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"^kubectl create secret generic interlingua (.*)$", page, re.MULTILINE)
    said = set(re.findall(r"--from-literal=(\w+)=", command))
    text = (EXAMPLES / "gateway.values.yaml").read_text(encoding="utf-8")
    assert said == {*re.findall(r"\$\{(\w+)\}", text), "SCRAPE_TOKEN"}
    assert gateway_of(rendered("gateway.values.yaml").pod())["envFrom"] == [{"secretRef": {"name": "interlingua"}}]
