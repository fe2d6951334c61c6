"""A governed route in the program as its users run it: starts that fail, documents that change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gateway.app import App
from gateway.config import load
from gateway.contract.governing import governor_named
from gateway.core.errors import Invalid, Unavailable
from gateway.core.types import Agent, JsonObject, RunRequest
from gateway.governance.audit import AuditBroken, EntrySigner, Keyring, verify
from gateway.governance.audit.keys import keyring
from tests.cli.conftest import interlingua
from tests.governance.audit.support import files_of
from tests.governance.enforcing.support import documents, told
from tests.support import aio
from tests.support.processes import ROOT, Gateway
from tests.support.scripted import AGENT

EXAMPLE = ROOT / "examples" / "governed"
NOBODY = {"protocol": "example", "url": "http://127.0.0.1:1/echo"}
"""An agent that is described without being asked."""


def table(manifest: str = "scripted/ACP.md", target: JsonObject = NOBODY) -> str:
    return json.dumps(
        {
            "inbound": dict.fromkeys(("agent_client", "agent_connect", "example")),
            "routes": [{"name": "scripted", "target": target, "manifest": manifest}],
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    documents(tmp_path)
    return tmp_path


@pytest.fixture
def gateway(folder: Path) -> Iterator[Gateway]:
    with Gateway(table(), folder) as running:
        yield running


def test_the_example_starts_and_audits(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "governed", ignore=shutil.ignore_patterns("audit-log*"))
    (tmp_path / "routes.yaml").write_text(table("governed/mailcomposer/ACP.md"))

    async def story() -> None:
        app = App(load(tmp_path / "routes.yaml"))
        await app.start()
        governor = governor_named(app.gateway.agents, "scripted", "example")
        assert governor is not None and governor.about["operator"] == "mail-operator"
        await governor.opened("t1")
        await app.stop()

    aio.run(story())
    assert told(tmp_path / "governed") == ["operator.invoked"]


def test_the_gardener_of_the_readme_plants_after_a_word_and_its_log_verifies(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("audit-log*"))
    routes = "examples/governed/routes.yaml"
    done = interlingua("run", "gardener", "a rose", "--routes", routes, "--answer", "plant", cwd=tmp_path)
    assert done.returncode == 0 and "It grows." in done.stdout
    log = tmp_path / "examples/governed/gardener"
    assert [action for action in told(log) if action.startswith(("tool", "approval"))] == [
        "tool.call plant",
        "approval.requested plant",
        "approval.granted plant",
        "tool.result plant",
    ]
    assert not verify(files_of(log)).mistakes


def test_a_promise_that_the_agent_cannot_keep_is_a_failed_start(tmp_path: Path) -> None:
    can = {"agent": {"mcpCapabilities": {"sse": True}, "loadSession": True}}
    documents(tmp_path, aip44={"capabilities": can})
    (tmp_path / "routes.yaml").write_text(table())
    done = interlingua("serve", "--port", "0", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "promises" in line]
    assert line.startswith("the gateway cannot start: scripted/ACP.md:")
    assert line.endswith("sse: promises agent.mcpCapabilities.sse, which agent scripted cannot do")


async def test_an_agent_that_is_down_is_held_to_its_promises_when_it_is_there(tmp_path: Path) -> None:
    documents(tmp_path, aip44={"capabilities": {"agent": {"mcpCapabilities": {"sse": True}}}})
    (tmp_path / "routes.yaml").write_text(
        table(target={"protocol": "agent_connect", "url": "http://127.0.0.1:1", "agent": "x"})
    )

    app = App(load(tmp_path / "routes.yaml"))
    await app.start()
    (entry,) = app.gateway.agents.configured
    assert not entry.ready

    async def described() -> Agent:
        return AGENT

    entry.outbound.describe = described  # type: ignore[method-assign]
    entry.asked_at = -1e9
    with pytest.raises(Unavailable, match=r"promises agent\.mcpCapabilities\.sse"):
        await app.gateway.runs.start(RunRequest(agent="scripted", protocol="example", input={"message": "x"}))
    assert entry.reachable and not entry.ready
    await app.stop()


def test_gateways_on_one_store_with_disks_of_their_own_are_told_apart_by_name(folder: Path) -> None:
    file = folder / "routes.yaml"

    async def story(name: str | None) -> None:
        text = json.loads(table()) | ({"audit": {"name": name}} if name is not None else {})
        file.write_text(json.dumps(text))
        app = App(load(file))
        await app.start()
        governor = governor_named(app.gateway.agents, "scripted", "example")
        assert governor is not None
        await governor.opened(f"session of {name}")
        await app.stop()

    aio.run(story(None))
    (folder / "audit-log.jsonl").rename(folder / "disk-of-another-pod")
    with pytest.raises(AuditBroken, match=r"it ends with nothing, and entry 0 was written: .* needs an audit\.name"):
        aio.run(story(None))
    for _ in range(2):
        aio.run(story("pod-b"))
    assert told(folder) == ["operator.invoked"], "a session that is known from before"
    (folder / "audit-log.jsonl").unlink()
    with pytest.raises(AuditBroken):
        aio.run(story("pod-b"))


def test_a_changed_document_is_taken_and_a_wrong_one_is_refused(gateway: Gateway, folder: Path) -> None:
    client = httpx2.Client(base_url=f"{gateway.url}/example")
    operator = folder / "operators/coder/OPERATOR.md"
    text = operator.read_text()

    def says(what: str) -> bool:
        return what in gateway.process.stderr()

    operator.write_text(text.replace("autonomy: autonomous", "autonomy: reckless"))
    gateway.process.wait_until(lambda: says("OPERATOR.md:") and says("reckless"), "told of the mistake")
    assert says("the old routes stay")
    operator.write_text(text.replace("autonomy: autonomous", "autonomy: gated"))
    gateway.process.wait_until(lambda: says("routes reloaded: scripted"), "reloaded")
    with client.stream("POST", "/scripted", json={"input": {"message": "hi"}}) as answer:
        lines = (json.loads(line) for line in answer.iter_lines())
        asked = next(line for line in lines if "ask" in line)
    assert "turn" in json.dumps(asked)
    client.close()


async def test_signing_that_is_required_needs_a_key(tmp_path: Path) -> None:
    documents(tmp_path, signing={"required": True})
    (tmp_path / "routes.yaml").write_text(table())
    done = interlingua("serve", "--port", "0", cwd=tmp_path)
    assert done.returncode == 2
    told = "signing.required: has every audit entry signed: say with which key in the route table's audit.key"
    assert f"GOVERNANCE.md:21 {told}" in done.stderr
    (tmp_path / "routes.yaml").write_text(json.dumps({**json.loads(table()), "audit": {"key": "gone.pem"}}))

    with pytest.raises(Invalid, match=r"gone\.pem: no private key that can be read: no such file or directory$"):
        await App(load(tmp_path / "routes.yaml")).start()


def test_a_key_signs_every_entry(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    (tmp_path / "ring.json").write_bytes(keyring(EntrySigner(key)))
    documents(tmp_path, signing={"required": True})
    (tmp_path / "routes.yaml").write_text(json.dumps({**json.loads(table()), "audit": {"key": "key.pem"}}))

    async def story() -> None:
        app = App(load(tmp_path / "routes.yaml"))
        await app.start()
        governor = governor_named(app.gateway.agents, "scripted", "example")
        assert governor is not None
        await governor.opened("t1")
        await app.stop()

    aio.run(story())
    report = verify(files_of(tmp_path), keyring=Keyring.load(tmp_path / "ring.json"))
    assert not report.mistakes, report.mistakes
