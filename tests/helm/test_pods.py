"""What the chart renders, run here: probed, used by real clients, reloaded, drained under load, and run again."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Semaphore
from typing import Any

import httpx2
import jwt
import pytest
import yaml

from tests.helm.pod import PROBES, Pod
from tests.support import certificates
from tests.support.helm import VERSIONS, RefusedChart, Release, gateway_of, helm
from tests.support.peers import agent_connect_client
from tests.support.processes import ROOT, Process, free_port, start

EXAMPLES = ROOT / "helm" / "examples"
TOKEN = "a-token-of-the-platform"
SECRETS = {"interlingua": {"CLIENT_TOKEN": TOKEN, "MAIL_TOKEN": "none is asked for", "SCRAPE_TOKEN": "the-scrapers"}}
WORDS = "word " * 100
"""The agent has some five seconds of them."""
LONG = "word " * 60
SHORT = {"shutdown": "1s"}
PATIENCE = 150.0
RUNS = 20


@pytest.fixture(scope="module")
def agent() -> Iterator[Process]:
    port = free_port()
    script = ROOT / "examples" / "agents" / "mailcomposer.py"
    with start([sys.executable, str(script), "--port", str(port)], port=port) as process:
        yield process


def with_its_dependency(folder: Path) -> Path:
    """The worked example, with the chart that it depends on put in its place by Helm."""
    shutil.copytree(ROOT / "helm", folder, ignore=shutil.ignore_patterns("charts", "Chart.lock"), dirs_exist_ok=True)
    chart = folder / "examples" / "sidecar-agent"
    assert "error" not in (answer := helm().ask("update", str(chart))), answer
    return chart


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_its_dependency(tmp_path_factory.mktemp("charts"))


@pytest.fixture(scope="module")
def beside(example: Path) -> Release:
    """What is made of it."""
    return helm().render({"letter": "hello there"}, example)


def values(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((EXAMPLES / f"{name}.values.yaml").read_text(encoding="utf-8")))


def client(pod: Pod, token: str = TOKEN) -> httpx2.Client:
    verify = ssl.create_default_context(cafile=pod.authority) if pod.authority else True
    headers = {"authorization": f"Bearer {token}"}
    return httpx2.Client(base_url=pod.url, trust_env=False, timeout=PATIENCE, headers=headers, verify=verify)


def names(pod: Pod) -> list[str]:
    with client(pod) as http:
        return [agent["metadata"]["ref"]["name"] for agent in http.post("/agent-connect/agents/search", json={}).json()]


@pytest.mark.parametrize("name", ["gateway", "sidecar-agent"])
def test_a_pod_that_is_drained_under_load_loses_no_run(
    name: str, agent: Process, example: Path, tmp_path: Path
) -> None:
    if name == "sidecar-agent":
        release = helm().render({"interlingua": {"config": {"limits": SHORT}}}, example)
    else:
        given = values(name)
        release = helm().render({**given, "config": {**given["config"], "limits": SHORT}})
    pod = Pod(release, release.pod(), tmp_path, agent.url, secrets=SECRETS)
    body = {"agent_id": "mailcomposer", "input": {"message": WORDS}, "on_disconnect": "continue"}
    begun = Semaphore(0)

    def stream(_: int) -> str:
        """Begins a run and follows it until the gateway goes."""
        run = ""
        with client(pod) as http, http.stream("POST", "/agent-connect/runs/stream", json=body) as response:
            try:
                for line in response.iter_lines():
                    if line.startswith("data:") and not run:
                        run = json.loads(line.removeprefix("data:"))["run_id"]
                        begun.release()
            except httpx2.TransportError:
                pass
        return run

    with pod.run() as gateway, ThreadPoolExecutor(RUNS) as pool:
        for probe in PROBES:
            gateway.wait_until(pod.probe(probe), probe)
        *_, waited = agent_connect_client(
            "wait", f"{pod.url}/agent-connect", "--name", "mailcomposer", "--bearer", TOKEN
        )
        assert waited["result"]["output"]["type"] == "result", waited
        streams = [pool.submit(stream, number) for number in range(RUNS)]
        for _ in streams:
            assert begun.acquire(timeout=PATIENCE)
        gateway.signal(signal.SIGTERM)
        assert gateway.wait(pod.spec["terminationGracePeriodSeconds"]) == 0
        runs = [each.result() for each in streams]
        logged = [json.loads(line) for line in gateway.stderr().splitlines()]
        assert logged[-1]["message"] == "stopped"
    assert len(set(runs) - {""}) == RUNS
    with pod.run(), client(pod) as http:
        for run in runs:
            ended = http.get(f"/agent-connect/runs/{run}/wait").json()
            assert ended["run"]["status"] == "success", ended
            assert ended["output"]["values"]["message"].count("ord") == len(WORDS.split())
    assert pod.written() == []


class Callers:
    """Clients that stream runs of the agent, one after the other, by way of the `endpoints` of a Service.

    Each connection goes to one of them, whichever. Whose stream breaks goes on reading behind what it has; a run that
    was refused is begun again.
    """

    def __init__(self, token: str, endpoints: list[str]) -> None:
        self.endpoints = endpoints
        self.token = token
        self.done = Event()
        self.begun = Semaphore(0)
        self.resumed = 0
        self.refused = 0
        self.longest = 0.0
        """Seconds that one had to wait for an event of its run after the one before."""

    def runs(self, number: int) -> list[str]:
        """The ids of the runs of one client, each followed to its end. AssertionError for one whose end is no success,
        and where an event is missing or told twice.
        """
        found = []
        while not self.done.is_set():
            found.append(self._run())
        return found

    def _run(self) -> str:
        run, last, said = "", "", ""
        body = {"agent_id": "mailcomposer", "input": {"message": LONG}, "on_disconnect": "continue"}
        heard = time.monotonic()
        deadline = heard + PATIENCE
        while time.monotonic() < deadline:
            headers = {"authorization": f"Bearer {self.token}", **({"last-event-id": last} if last else {})}
            asked = ("GET", f"/agent-connect/runs/{run}/stream") if run else ("POST", "/agent-connect/runs/stream")
            self.resumed += bool(run)
            with contextlib.suppress(httpx2.TransportError), httpx2.Client(trust_env=False, timeout=PATIENCE) as http:
                url = f"{random.choice(self.endpoints)}{asked[1]}"
                with http.stream(asked[0], url, headers=headers, json=None if run else body) as response:
                    if response.status_code == 503:
                        self.refused += 1
                        self.done.wait(float(response.headers["retry-after"]))
                        continue
                    assert response.status_code == 200, response.read()
                    for line in response.iter_lines():
                        if line.startswith("id:"):
                            self.longest = max(self.longest, time.monotonic() - heard if run else 0.0)
                            heard = time.monotonic()
                            now = line.removeprefix("id:").strip()
                            assert [*map(int, now.split("."))] > [*map(int, last.split("."))] if last else True, (
                                last,
                                now,
                            )
                            last = now
                        if line.startswith("data:"):
                            event = json.loads(line.removeprefix("data:"))
                            if not run:
                                run = event["run_id"]
                                self.begun.release()
                            if event["type"] == "values":
                                assert event["values"]["message"].startswith(said), (said, event)
                                said = event["values"]["message"]
                            assert event["type"] != "error", event
                            if event["status"] == "success":
                                assert said.count("ord") == len(LONG.split())
                                return run
        raise AssertionError(f"run {run} does not end; read to {last}")


def test_replicas_that_are_replaced_one_by_one_under_load_lose_no_run(agent: Process, tmp_path: Path) -> None:
    given = values("production")
    release = helm().render(
        {**given, "config": {**given["config"], "limits": SHORT, "telemetry": {}}, "preStopSeconds": 1}
    )
    key = "the issuer's key, which is long enough for HS256"
    shared = {"url": f"sqlite:///{tmp_path / 'shared.db'}"}  # a server's URL is as good to the chart
    secrets = {**SECRETS, "interlingua": {**SECRETS["interlingua"], "ISSUER_KEY": key}, "interlingua-store": shared}
    token = jwt.encode({"sub": "ana", "aud": "interlingua", "exp": time.time() + 3600}, key, "HS256")

    def pod(name: str) -> Pod:
        (tmp_path / name).mkdir()
        return Pod(release, release.pod(), tmp_path / name, agent.url, secrets=secrets)

    def removed(gone: Pod, process: Process) -> None:
        """As Kubernetes deletes a pod: it is no endpoint any more, it is told so, and only then it is stopped."""
        callers.endpoints.remove(gone.url)
        time.sleep(gone.container["lifecycle"]["preStop"]["sleep"]["seconds"])
        process.signal(signal.SIGTERM)
        assert process.wait(gone.spec["terminationGracePeriodSeconds"]) == 0, process.describe()

    def began() -> None:
        """Wait for as many new runs as there are clients."""
        for _ in range(RUNS):
            assert callers.begun.acquire(timeout=PATIENCE)

    callers = Callers(token, [])
    first, second, third = pod("first"), pod("second"), pod("third")
    with first.run() as old, second.run() as older, ThreadPoolExecutor(RUNS) as pool:
        callers.endpoints += [first.url, second.url]
        streams = [pool.submit(callers.runs, number) for number in range(RUNS)]
        try:
            began()
            removed(first, old)
            with third.run():
                callers.endpoints.append(third.url)
                began()
                removed(second, older)
                callers.done.set()
                runs = [run for each in streams for run in each.result()]
                assert len(runs) == len(set(runs)) >= 2 * RUNS
                assert callers.resumed > 0, "streams were cut"
                assert callers.longest < PATIENCE / 5
                with client(third, token) as http:
                    for run in runs:
                        assert http.get(f"/agent-connect/runs/{run}").json()["status"] == "success"
        finally:
            callers.done.set()


def test_routes_are_changed_by_the_configmap_and_helm_test_holds_a_conversation(agent: Process, tmp_path: Path) -> None:
    given = values("gateway")
    release = helm().render(given)
    pod = Pod(release, release.pod(), tmp_path, agent.url, secrets=SECRETS)
    with pod.run() as gateway:
        (conversation,) = release.one("Pod", "gw-interlingua-test")["spec"]["containers"]
        with pod.command(conversation) as test:
            assert test.wait(PATIENCE) == 0, test.describe()
            assert test.stdout().startswith("Dear friend,\n\nHello\n")
        given["config"]["routes"].append({**given["config"]["routes"][0], "name": "second"})
        changed = helm().render(given)
        assert changed.workload() == release.workload(), "no pod is replaced"
        pod.mount_routes(changed.one("ConfigMap", "gw-interlingua")["data"])
        gateway.wait_until(lambda: names(pod) == ["mailcomposer", "second"], "reloaded")
        with client(pod, "the-scrapers") as scraper, client(pod, "a stranger's") as stranger:
            page = scraper.get("/metrics", headers={"forwarded": "for=10.0.0.1"}).text
            assert 'interlingua_runs_ended_total{agent="mailcomposer",' in page
            assert "mailcomposer" not in stranger.get("/metrics", headers={"forwarded": "for=10.0.0.1"}).text


def test_a_job_has_the_agent_and_the_gateway_beside_it(beside: Release, agent: Process, tmp_path: Path) -> None:
    spec = beside.one("Job")["spec"]["template"]["spec"]
    assert [(each["name"], each["restartPolicy"]) for each in spec["initContainers"]] == [
        ("interlingua", "Always"),
        ("agent", "Always"),
    ], "sidecars: they are up before the letter is begun, and end when it has ended"
    (letter,) = spec["containers"]
    pod = Pod(beside, spec, tmp_path, agent.url)
    with pod.run() as gateway:
        with pod.command(letter) as job:
            assert job.wait(PATIENCE) == 0, job.describe()
            assert job.stdout() == "Dear friend,\n\nHello there\n\nYours, Mail Composer\n"
        assert gateway.terminate(PATIENCE) == 0


def test_the_agent_beside_it_is_reached_on_localhost_in_every_protocol(
    beside: Release, agent: Process, tmp_path: Path
) -> None:
    pod = Pod(beside, beside.pod(), tmp_path, agent.url)
    called = {"jsonrpc": "2.0", "id": 1}
    asked: Mapping[str, tuple[Mapping[str, Any], str]] = {
        "/agent-connect/runs/wait": ({"agent_id": "mailcomposer", "input": {"message": "hello"}}, "Hello"),
        "/agent-protocol/mailcomposer/ap/v1/agent/tasks": ({"input": "hello"}, "task_id"),
        "/agent-communication/mcp": (
            {**called, "method": "agents/run", "params": {"name": "mailcomposer", "input": {"message": "hello"}}},
            "Hello",
        ),
        "/agent-context": (
            {**called, "method": "resources/read", "params": {"uri": "agent://directory"}},
            "mailcomposer",
        ),
        "/agent-client/mailcomposer": (
            {**called, "method": "initialize", "params": {"protocolVersion": 1}},
            "protocolVersion",
        ),
    }
    with pod.run(), client(pod) as http:
        for path, (body, told) in asked.items():
            answer = http.post(path, json=body)
            assert answer.is_success, (path, answer.text)
            assert told in answer.text, (path, answer.text)


def test_kubernetes_takes_the_worked_example_and_its_parts_fit(beside: Release) -> None:
    assert [
        wrong for document in beside.documents for version in VERSIONS for wrong in helm().mistakes(document, version)
    ] == []
    deployment, job = beside.one("Deployment")["spec"], beside.one("Job")["spec"]
    service = beside.one("Service")["spec"]
    assert service["selector"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert not service["selector"].items() <= job["template"]["metadata"]["labels"].items(), "a Job serves nobody"
    (port,) = gateway_of(deployment["template"]["spec"])["ports"]
    assert [way["targetPort"] for way in service["ports"]] == [port["containerPort"]], "older Kubernetes knows no name"
    assert "checksum/interlingua" in deployment["template"]["metadata"]["annotations"]
    assert deployment["template"]["spec"]["terminationGracePeriodSeconds"] == 5 + 20 + 10 + 15
    for pod in (deployment["template"]["spec"], job["template"]["spec"]):
        volumes = {volume["name"] for volume in pod["volumes"]}
        containers = [*pod["initContainers"], *pod["containers"]]
        assert {mount["name"] for each in containers for mount in each.get("volumeMounts", ())} == volumes
        for container in containers:
            context = container["securityContext"]
            assert context["runAsNonRoot"] is context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_dependency_may_have_another_name(beside: Release, example: Path, tmp_path: Path) -> None:
    chart = tmp_path / "renamed"
    shutil.copytree(example, chart)
    for file in (*chart.glob("*.yaml"), *(chart / "templates").iterdir()):
        text = re.sub(
            r'include "interlingua\.(\w+)" \.', r'include "interlingua.\1" .Subcharts.gateway', file.read_text()
        )
        text = re.sub(r"\.(Values|Subcharts)\.interlingua", r".\1.gateway", text)
        text = text.replace("name: interlingua\n", "name: interlingua\n    alias: gateway\n")
        file.write_text(re.sub("^interlingua:", "gateway:", text, flags=re.MULTILINE))
    release = helm().render({"letter": "hello there"}, chart)
    (volume,) = [each for each in release.pod()["volumes"] if each["name"] == "interlingua-routes"]
    assert release.one("ConfigMap", volume["configMap"]["name"])["metadata"]["name"] == "gw-gateway"
    assert release.routes() == beside.routes()
    assert release.gateway() == beside.gateway()


def test_a_sidecar_that_would_be_a_gateway_of_its_own_as_well_is_refused(example: Path) -> None:
    with pytest.raises(RefusedChart, match="say sidecar"):
        helm().render({"interlingua": {"mode": "standalone"}}, example)


def test_the_agent_beside_it_is_ready_when_it_listens(beside: Release, agent: Process) -> None:
    (container,) = beside.pod()["containers"]
    (_, program, text) = container["startupProbe"]["exec"]["command"]
    assert container["args"][-2:] == ["--port", "9001"]

    def ready(port: int) -> bool:
        command = [sys.executable, program, text.replace("9001", str(port))]
        return subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE).returncode == 0

    assert agent.port is not None
    assert ready(agent.port)
    assert not ready(free_port())


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_with_a_certificate_everything_is_asked_over_tls(
    host: str, agent: Process, example: Path, tmp_path: Path
) -> None:
    route = {"name": "mailcomposer", "target": {"protocol": "agent_connect", "url": "http://mailcomposer:9001"}}
    given = {"host": host, "tls": {"secret": "pair"}, "config": {"routes": [route]}}
    alone = host == "0.0.0.0"
    release = helm().render(given) if alone else helm().render({"interlingua": given}, example)
    known, pair = certificates.authority(tmp_path, "authority")
    pod = Pod(release, release.pod(), tmp_path, agent.url, authority=known)
    for name, file in (("tls.crt", pair), ("tls.key", pair), ("ca.crt", known)):
        shutil.copyfile(file, pod.mounts["/tls"] / name)
    with pod.run() as gateway:
        for probe in PROBES:
            gateway.wait_until(pod.probe(probe), probe)
        if alone:
            (conversation,) = release.one("Pod")["spec"]["containers"]
            with pod.command(conversation) as test:
                assert test.wait(PATIENCE) == 0, test.describe()
