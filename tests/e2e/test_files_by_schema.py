"""Files of clients to agents that take them in their input, to governed agents, and to agents that take few kinds of
content: the official SDKs at both ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.doors import way
from tests.e2e.test_files_cross import DATA_URL, IMAGE, PIXEL, SIZE, blocks, stepped, uploaded
from tests.governance.support import OPERATOR, governance, manifest, with_, write
from tests.support import agent_client
from tests.support.agent_client import agent_client_agent_command, agent_client_conversations
from tests.support.agent_communication import clients
from tests.support.forking import standing_in
from tests.support.peers import agent_connect_conversations, peer_python
from tests.support.processes import PEERS, Gateway


def governed(folder: Path, name: str) -> str:
    """The manifest of a governed route to an editor's agent: `blind` does not promise that it takes pictures."""
    write(folder / "operators" / name / "OPERATOR.md", with_(OPERATOR, id=name, name=name))
    can = {"agent": {"loadSession": True, "promptCapabilities": {"image": name != "blind", "embeddedContext": True}}}
    bound = {"tier": "governance-aware", "operator": f"ws://operators/{name}", "capabilities": can}
    return str(manifest(folder / name, bound, kind="bridge", transport=["stdio"]))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("files")
    governance(folder)
    bee = standing_in([str(peer_python("agent-communication-py")), str(PEERS / "agent_communication_pictures.py")])
    tools = [str(peer_python("mcp-1")), "-P", str(PEERS / "mcp_picture_server.py")]
    coder = {"protocol": "agent_client", "command": agent_client_agent_command("py")}
    text_only = agent_client_agent_command("py", "--without", "image,audio,embeddedContext")
    routes: list[dict[str, Any]] = [
        {"name": name, "target": {"protocol": "agent_communication", "command": bee, "agent": name}}
        for name in ("look", "see", "read")
    ]
    routes += [
        {"name": "coder", "target": coder},
        {"name": "reader", "target": {"protocol": "agent_client", "command": text_only}},
        {"name": "governed", "manifest": governed(folder, "governed"), "target": coder},
        {"name": "blind", "manifest": governed(folder, "blind"), "target": coder},
        {"name": "tool", "target": {"protocol": "agent_context", "command": tools, "agent": "look"}},
        {
            "name": "words",
            "lossy": "allow",
            "target": {"protocol": "agent_context", "command": tools, "agent": "words"},
        },
    ]
    with Gateway(json.dumps({"routes": routes}), folder) as running:
        yield running


def ran(gateway: Gateway, agent: str, **given: Any) -> httpx2.Response:
    """What an Agent Connect client is answered."""
    body = {"agent_id": agent, "input": {"message": "blocks", **given}}
    return httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=body, timeout=60)


def test_a_picture_of_an_editor_finds_its_place_in_the_input_of_beeai_agents(gateway: Gateway) -> None:
    said = {"look": "what is it", "see": "look at this", "read": "read it"}
    lines = agent_client_conversations(
        "py",
        *(
            {"steps": ("--blocks", blocks(text), "--say", "and now?"), **way(gateway, "ws", name)}
            for name, text in said.items()
        ),
    )
    look, see, read = ([agent_client.text(turn) for turn in agent_client.turns(one)] for one in lines)
    assert look[0] == f"{SIZE} bytes: what is it"
    assert look[1].startswith(f"{SIZE} bytes: ") and look[1].endswith("and now?"), "the newest picture is there again"
    assert see[0] == f"user: look at this, data:image/png;base64 of {SIZE} bytes"
    assert see[1].startswith("user: look at this / assistant: ")
    assert see[1].endswith(f"user: and now?, data:image/png;base64 of {SIZE} bytes")
    assert read[0] == f"image.png ({SIZE}): read it"


def test_an_upload_finds_its_place_in_the_input_of_beeai_agents_also_after_a_crash(
    gateway: Gateway, tmp_path: Path
) -> None:
    tasks = {name: uploaded(gateway, name, "look at this", tmp_path)[0] for name in ("look", "see", "read")}
    gateway.kill9()
    gateway.restart()
    said = {name: stepped(gateway, name, task)["output"] for name, task in tasks.items()}
    assert said == {
        "look": f"{SIZE} bytes: look at this",
        "see": f"user: look at this, data:image/png;base64 of {SIZE} bytes",
        "read": f"pixel.png ({SIZE}): look at this",
    }


def test_a_program_fills_the_place_in_the_input_of_beeai_agents_itself(gateway: Gateway) -> None:
    shown = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
    given = {
        "look": {"question": "look", "image": PIXEL},
        "see": {"messages": [{"role": "user", "content": shown}]},
        "read": {"prompt": "look", "files": [{"name": "a.png", "content_type": "image/png", "content": PIXEL}]},
    }
    said = [f"{SIZE} bytes: look", f"user: look, data:image/png;base64 of {SIZE} bytes", f"a.png ({SIZE}): look"]
    steps = [word for name, document in given.items() for word in ("--run", f"{name} {json.dumps(document)}")]
    (ran,) = clients("py", {"steps": steps, "url": f"{gateway.url}/agent-communication/sse"})
    assert [result["output"]["text"] for result in agent_client.results(ran, "agents/run")] == said
    tools = [word.replace("--run", "--tool") for word in steps]
    (called,) = clients("mcp-2", {"steps": tools, "url": f"{gateway.url}/agent-communication/mcp"})
    assert [one["content"][0]["text"] for one in agent_client.results(called, "tools/call")] == said
    asked = [["say", "--name", name, "--input", json.dumps(document)] for name, document in given.items()]
    connect = agent_connect_conversations(f"{gateway.url}/agent-connect", *asked)
    found = [line["result"] for lines in connect for line in lines if line["op"] == "wait_for_thread_run_output"]
    assert [result["output"]["values"]["text"] for result in found] == said


def test_a_picture_passes_a_governed_route_that_promises_it(gateway: Gateway) -> None:
    steps = ("--root", str(gateway.file.parent), "--blocks", blocks("blocks"))
    taken, refused = agent_client_conversations(
        "py", *({"steps": steps, **way(gateway, "ws", name)} for name in ("governed", "blind"))
    )
    assert "blocks text,image" in agent_client.text(taken)
    (error,) = agent_client.errors(refused, "session/prompt")
    assert error["code"] == -32602 and "takes no image" in json.dumps(error)
    assert "blocks text,image" in ran(gateway, "governed", picture=DATA_URL).text
    assert "blocks text,resource" in ran(gateway, "blind", picture=DATA_URL).text, "what is promised"


def test_a_file_that_an_agent_takes_in_no_block_is_a_link_to_it(gateway: Gateway) -> None:
    answer = ran(gateway, "reader", picture=DATA_URL)
    assert "blocks text,resource_link" in answer.text and "x-interlingua-losses" not in answer.headers


def test_a_content_block_that_an_agent_does_not_take_is_refused_before_there_is_a_run(gateway: Gateway) -> None:
    audio = {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"}
    for name, block in (("reader", IMAGE), ("reader", audio), ("coder", {"type": "video"})):
        answer = ran(gateway, name, content=[block])
        assert answer.status_code == 422 and "/input/content/0/type" in answer.text, answer.text
    assert "text,audio" in ran(gateway, "coder", content=[audio]).text


def test_a_missing_picture_is_asked_for_with_a_form(gateway: Gateway) -> None:
    form, words = agent_client_conversations(
        "py",
        {"steps": ("--elicitation", json.dumps({"image": PIXEL}), "--say", "what is it"), **way(gateway, "ws", "tool")},
        {
            "steps": ("--capabilities", "{}", "--say", "what is it", "--blocks", blocks("here")),
            **way(gateway, "ws", "tool"),
        },
    )
    (asked,) = agent_client.asked(form, "elicitation/create")
    assert '"image"' in json.dumps(asked)
    assert agent_client.text(form) == f"1x1, {SIZE} bytes: what is it"
    question, answered = (agent_client.text(turn) for turn in agent_client.turns(words))
    assert "image" in question and answered == f"1x1, {SIZE} bytes: what is it", "a picture is the answer"


def test_an_upload_that_a_lossy_route_leaves_out_is_counted_where_each_client_reads_it(
    gateway: Gateway, tmp_path: Path
) -> None:
    steps = ("--blocks", blocks("hello"))
    (editor,) = agent_client_conversations("py", {"steps": steps, **way(gateway, "ws", "words")})
    (answer,) = agent_client.results(editor, "session/prompt")
    assert answer["_meta"]["interlingua"]["lost"] == ["uploads"]
    task, said = uploaded(gateway, "words", "hello", tmp_path)
    assert "error" not in said
    assert stepped(gateway, "words", task)["additional_output"]["losses"] == {"uploads": 1}
    metrics = httpx2.get(f"{gateway.url}/metrics", timeout=60).text
    assert re.findall(r'^interlingua_losses_total\{.*what="uploads"\} (\d+)', metrics, re.MULTILINE) == ["1", "1"], (
        metrics
    )
