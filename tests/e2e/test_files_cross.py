"""Files and pictures from each protocol's clients to agents of the others, with the official SDKs on both sides."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest

from tests.e2e.doors import way
from tests.support import agent_client, agent_context
from tests.support.agent_client import Sdk, agent_client_agent_command, agent_client_conversations
from tests.support.agent_communication import clients
from tests.support.peers import agent_protocol_client, peer_python
from tests.support.processes import PEERS, Gateway, Process

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SIZE = len(base64.b64decode(PIXEL))
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
DATA_URL = f"data:image/png;base64,{PIXEL}"


def blocks(text: str) -> str:
    return json.dumps([{"type": "text", "text": text}, IMAGE])


@pytest.fixture(scope="module")
def gateway(agent_protocol_server: Process, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    tools = [str(peer_python("mcp-1")), "-P", str(PEERS / "mcp_picture_server.py")]
    targets: dict[str, dict[str, Any]] = {
        "look": {"protocol": "agent_context", "command": tools, "agent": "look"},
        "words": {"protocol": "agent_context", "command": tools, "agent": "words"},
        "task": {"protocol": "agent_protocol", "url": agent_protocol_server.url},
        "coder": {"protocol": "agent_client", "command": agent_client_agent_command("py")},
        "native": {"protocol": "agent_context", "command": agent_context.agents_command("stdio"), "agent": "echo"},
    }
    routes = [{"name": name, "target": target} for name, target in targets.items()]
    routes.append({"name": "lossy", "target": targets["words"], "lossy": "allow"})
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("files")
        yield stack.enter_context(Gateway(json.dumps({"routes": routes}), folder))


@pytest.mark.parametrize("sdk", ["py", "ts-2"])
def test_a_picture_of_an_editor_reaches_a_tool_an_uploading_agent_and_no_other(gateway: Gateway, sdk: Sdk) -> None:
    told = {"look": "what is it", "task": "one files", "native": "files?", "words": "hello", "lossy": "hello"}
    said = dict(
        zip(
            told,
            agent_client_conversations(
                sdk, *({"steps": ("--blocks", blocks(text)), **way(gateway, "ws", name)} for name, text in told.items())
            ),
            strict=True,
        )
    )
    image = {
        name: agent_client.results(lines, "initialize")[0]["agentCapabilities"]["promptCapabilities"].get(
            "image", False
        )
        for name, lines in said.items()
    }
    assert image == {"look": True, "task": True, "native": True, "words": False, "lossy": False}
    assert agent_client.text(said["look"]) == f"1x1, {SIZE} bytes: what is it"
    assert agent_client.text(said["task"]).strip() == f"step 1 of 1: files image.png ({SIZE})"
    assert agent_client.text(said["native"]) == f"image.png image/png {SIZE}"
    (refused,) = agent_client.errors(said["words"], "session/prompt")
    assert refused["code"] == -32602
    assert "agent words takes no files; with `lossy: allow`" in refused["message"]
    assert "/prompt/1" in json.dumps(refused)
    assert agent_client.text(said["lossy"]) == "hello", "its route leaves files out"


def test_a_picture_goes_to_an_uploading_agent_once_and_to_a_tool_again(gateway: Gateway) -> None:
    steps = ("--blocks", blocks("one files"), "--say", "one files")
    lines = agent_client_conversations("py", {"steps": steps, **way(gateway, "ws", "task")})[0]
    first, second = (agent_client.text(turn) for turn in agent_client.turns(lines))
    assert f"files image.png ({SIZE})" in first
    assert second.count(f"image.png ({SIZE})") == 1, "its second task has it once, as its first had"


def test_an_agent_of_agent_context_is_sent_a_file_once_in_a_conversation(gateway: Gateway) -> None:
    steps = ("--blocks", blocks("files?"), "--say", "files?")
    lines = agent_client_conversations("py", {"steps": steps, **way(gateway, "ws", "native")})[0]
    assert [agent_client.text(turn) for turn in agent_client.turns(lines)] == [f"image.png image/png {SIZE}", "none"]


def test_a_picture_in_the_answer_of_an_agent_of_agent_context_is_a_file_of_its_run(gateway: Gateway) -> None:
    url = f"{gateway.url}/agent-protocol/native"
    (made,) = agent_protocol_client("create", url, "--input", "picture?")
    step = stepped(gateway, "native", made["result"]["task_id"])
    assert (step["output"], [file["file_name"] for file in step["artifacts"]]) == ("here", ["image.png"])
    body = {"agent_id": "native", "input": {"message": "picture?"}}
    answer = httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=body, timeout=60).json()
    (file,) = answer["output"]["values"]["artifacts"]
    assert httpx2.get(file["url"], timeout=60).content == base64.b64decode(PIXEL)


BINARY = {"format": "binary", "subformat": "image/png", "content": PIXEL, "label": "pixel.png"}


@pytest.mark.parametrize("client", ["mcp-1", "mcp-2"])
def test_a_picture_in_a_payload_reaches_every_agent_that_takes_one_and_no_other(
    gateway: Gateway, client: Literal["mcp-1", "mcp-2"]
) -> None:
    def said(text: str, *files: Any) -> dict[str, Any]:
        return {"messages": [{"text": text}, *files]}

    nlip = {"format": "text", "subformat": "english", "content": "files?", "submessages": [BINARY]}
    payloads: list[tuple[str, Any]] = [
        ("look", said("what is it", IMAGE)),
        ("look", {"text": "what is it", "picture": DATA_URL}),
        ("task", {"parts": [{"type": "text", "text": "one files"}, IMAGE]}),
        ("coder", said("blocks", IMAGE)),
        ("native", {**said("files?"), "submessages": [BINARY]}),
        ("task", {**nlip, "content": "one files"}),
        ("lossy", said("hello", IMAGE)),
        ("words", said("hello", IMAGE)),
    ]
    messages = [{"target": name, "content": {"type": "request", "payload": each}} for name, each in payloads]
    tasks = [
        {"id": f"{client}-{name}", "type": "x", "payload": said("what is it", IMAGE)} for name in ("look", "words")
    ]
    calls = [f"agent/message {json.dumps(each)}" for each in messages]
    calls += [
        f"agent/delegate {json.dumps({'task': task, 'target': name})}"
        for name, task in zip(("look", "words"), tasks, strict=True)
    ]
    steps = [word for call in calls for word in ("--call", call)]
    lines = clients(client, {"steps": steps, "url": f"{gateway.url}/agent-context"})[0]
    answers = [line for line in lines if line["op"] in ("agent/message", "agent/delegate")]
    look, again, task, coder, native, nlip_task, lossy, words, done, undone = answers
    for seen in (look, again):
        assert answered(seen) == f"1x1, {SIZE} bytes: what is it"
    assert f"files image.png ({SIZE})" in answered(task)
    assert answered(coder).startswith("blocks text,image ")
    assert answered(native) == f"pixel.png image/png {SIZE}"
    assert f"files pixel.png ({SIZE})" in answered(nlip_task)
    assert answered(lossy) == "hello"
    assert lossy["result"]["_meta"]["interlingua/lost"] == {"uploads": 1}
    assert words["error"]["code"] == -32001
    assert "agent words takes no files; with `lossy: allow`" in words["error"]["message"]
    assert done["result"]["task"]["result"]["messages"][0]["text"] == f"1x1, {SIZE} bytes: what is it"
    assert undone["error"]["code"] == -32007, "no agent that the task may go to takes a picture"


def answered(line: dict[str, Any]) -> str:
    payload = line["result"]["content"]["payload"]
    text: str = payload["content"] if "format" in payload else payload["messages"][0]["text"]
    return text


def uploaded(gateway: Gateway, agent: str, text: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """A task with an uploaded picture; its id, and what became of the upload."""
    url = f"{gateway.url}/agent-protocol/{agent}"
    (made,) = agent_protocol_client("create", url, "--input", text)
    task = made["result"]["task_id"]
    (file := folder / "pixel.png").write_bytes(base64.b64decode(PIXEL))
    (said,) = agent_protocol_client("upload", url, "--task", task, "--file", str(file))
    return task, said


def stepped(gateway: Gateway, agent: str, task: str) -> dict[str, Any]:
    said = agent_protocol_client("steps", f"{gateway.url}/agent-protocol/{agent}", "--task", task, "--limit", "1")
    found: dict[str, Any] = said[-1]["result"]
    return found


def test_an_upload_reaches_an_editors_agent_and_a_tool_also_after_a_crash(gateway: Gateway, tmp_path: Path) -> None:
    coder, _ = uploaded(gateway, "coder", "blocks", tmp_path)
    look, _ = uploaded(gateway, "look", "what is it", tmp_path)
    gateway.kill9()
    gateway.restart()
    assert "blocks text,image" in stepped(gateway, "coder", coder)["output"]
    assert stepped(gateway, "look", look)["output"] == f"1x1, {SIZE} bytes: what is it"
    again = stepped(gateway, "coder", coder)
    assert "blocks text" in again["output"] and "image" not in again["output"], "an agent is given a file once"


def test_an_upload_for_an_agent_that_takes_none_is_refused_at_once(gateway: Gateway, tmp_path: Path) -> None:
    _, refused = uploaded(gateway, "words", "hello", tmp_path)
    assert refused["error"]["status"] == 422
    assert "takes no files" in refused["error"]["body"]


def test_an_mcp_clients_pictures_reach_an_editors_agent_and_an_uploading_agent(gateway: Gateway) -> None:
    resource = {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "alpha"}}
    calls = {
        "coder": {"message": "blocks", "image": DATA_URL},
        "task": {"message": "one files", "files": [IMAGE, resource]},
        "look": {"question": "what is it", "image": PIXEL},
    }
    steps = [word for name, given in calls.items() for word in ("--tool", f"{name} {json.dumps(given)}")]
    url = f"{gateway.url}/agent-communication/mcp"
    lines = clients("mcp-1", {"steps": steps, "url": url})[0]
    coder, task, look = (line["result"]["content"][0]["text"] for line in lines if line["op"] == "tools/call")
    assert coder.startswith("blocks text,image ")
    assert f"files a.txt (5), files.png ({SIZE})" in task
    assert look == f"1x1, {SIZE} bytes: what is it"


@pytest.mark.parametrize("sdk", ["py", "ts-2"])
def test_a_picture_of_a_prompt_is_told_again_when_its_session_is_loaded_after_a_crash(
    gateway: Gateway, sdk: Sdk
) -> None:
    door = way(gateway, "ws", "look")
    (before,) = agent_client_conversations(sdk, {"steps": ("--blocks", blocks("what is it")), **door})
    (made,) = agent_client.results(before, "session/new")
    gateway.kill9()
    gateway.restart()
    load = ("--bare", "--do", "initialize", "--session", made["sessionId"], "--do", "load")
    (after,) = agent_client_conversations(sdk, {"steps": load, **door})
    told = [update["content"] for update in agent_client.updates(after, "user_message_chunk")]
    assert [(block["type"], block.get("data")) for block in told] == [("text", None), ("image", PIXEL)]


def test_base64_that_is_none_is_refused_where_it_stands(gateway: Gateway) -> None:
    bad = json.dumps([{"type": "image", "data": "no base64!", "mimeType": "image/png"}])
    lines = agent_client_conversations("py", {"steps": ("--blocks", bad), **way(gateway, "ws", "task")})[0]
    (refused,) = agent_client.errors(lines, "session/prompt")
    assert refused["code"] == -32602 and "not base64" in refused["message"]


def test_agent_connects_input_may_hold_a_data_url(gateway: Gateway) -> None:
    body = {"agent_id": "task", "input": {"message": "one files", "picture": DATA_URL}}
    answer = httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=body, timeout=60)
    assert f"files picture.png ({SIZE})" in answer.text, answer.text
