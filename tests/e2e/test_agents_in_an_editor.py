"""Agents of other protocols in an editor: the official Agent Client SDKs talk to the gateway over every transport."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.e2e.doors import way
from tests.support.agent_client import (
    Line,
    Sdk,
    agent_client_conversations,
    asked,
    errors,
    results,
    text,
    turns,
    updates,
)
from tests.support.processes import Gateway, Process

ROUTES = """\
routes:
  - name: writer
    description: An agent made with the agent-protocol SDK
    target: {{protocol: agent_protocol, url: "{agent_protocol}"}}
  - name: careful
    target: {{protocol: agent_protocol, url: "{agent_protocol}", drive: approve}}
  - name: stepwise
    target: {{protocol: agent_protocol, url: "{agent_protocol}", drive: one}}
  - name: echo
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: echo}}
  - name: asker
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: asker}}
  - name: slow
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: slow}}
  - name: failer
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: failer}}
"""
TALKS: dict[Sdk, tuple[str, ...]] = {"py": ("stdio", "ws"), "ts-0": ("pipe", "http"), "ts-2": ("http", "ws")}
STEPS = [f"step {n} of 3: write a haiku" for n in (1, 2, 3)]
HAIKU = ("--say", "write a haiku")
STORY = (
    *HAIKU,
    *("--set-option", "agent=careful", "--permission", "continue", *HAIKU),
    *("--permission", "stop", *HAIKU),
    *("--set-option", "agent=stepwise", "--elicitation", '{"input": "go on"}', *HAIKU),
    *("--set-option", "agent=failer", "--say", "hello"),
    *("--set-option", "agent=slow", "--start", "30 seconds", "--await", "tick", "--do", "cancel", "--finish"),
    *("--set-option", "agent=echo", "--say", "hello"),
    *("--reconnect", "--do", "list", "--session", "@0", "--do", "load", "--say", "again"),
)
PROMPTS = ["write a haiku"] * 4 + ["hello", "30 seconds", "hello"]


@dataclass(frozen=True)
class Told:
    """What one client saw: its lines, turn by turn, the last of them after it came back on another connection."""

    lines: list[Line]
    streams: list[Line]
    permitted: list[Line]
    refused: list[Line]
    form: list[Line]
    failed: list[Line]
    cancelled: list[Line]
    echoed: list[Line]
    loaded: list[Line]


@pytest.fixture(scope="module")
def gateway(
    agent_protocol_server: Process, agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    text = ROUTES.format(agent_protocol=agent_protocol_server.url, agent_connect=agent_connect_agent.url)
    with Gateway(text, tmp_path_factory.mktemp("editor")) as running:
        yield running


@pytest.fixture(scope="module")
def stories(gateway: Gateway) -> dict[str, list[Line]]:
    """What each client saw of the story, by SDK and door: one process an SDK, all of them at once."""

    def tell(sdk: Sdk) -> list[list[Line]]:
        return agent_client_conversations(sdk, *({"steps": STORY, **way(gateway, door)} for door in TALKS[sdk]))

    with ThreadPoolExecutor() as pool:
        found = zip(TALKS, pool.map(tell, TALKS), strict=True)
        return {f"{sdk}-{door}": lines for sdk, said in found for door, lines in zip(TALKS[sdk], said, strict=True)}


@pytest.fixture(scope="module", params=[f"{sdk}-{door}" for sdk, doors in TALKS.items() for door in doors])
def told(stories: dict[str, list[Line]], request: pytest.FixtureRequest) -> Told:
    lines = stories[request.param]
    return Told(lines, *turns(lines))


@pytest.fixture(scope="module")
def asked_by_two(gateway: Gateway) -> list[list[Line]]:
    """Two more conversations of one client: without forms, and with a form that it fills in."""
    filled = ("--elicitation", '{"approved": true, "reason": "fine"}', "--say", "hi")
    return agent_client_conversations(
        "ts-2",
        {"steps": ("--capabilities", "{}", *HAIKU, "--say", "go on"), **way(gateway, "ws", "stepwise")},
        {"steps": filled, **way(gateway, "ws", "asker")},
    )


def test_every_agent_is_a_choice_and_the_first_is_chosen(told: Told) -> None:
    (new,) = results(told.lines, "session/new")
    option = next(option for option in new["configOptions"] if option["id"] == "agent")
    assert option["currentValue"] == "writer"
    assert [choice["value"] for choice in option["options"]][:4] == ["writer", "careful", "stepwise", "echo"]


def test_an_agent_protocol_agent_streams_its_text_and_its_steps_are_a_plan(told: Told) -> None:
    chunks = [update["content"] for update in updates(told.streams, "agent_message_chunk")]
    steps = [chunk for chunk in chunks if "step" in chunk.get("text", "")]
    assert 1 < len(steps) <= 3, "a step comes when it is done, or with the one before where the gateway was held up"
    assert text(told.streams) == "\n\n".join(STEPS)
    assert [chunk["name"] for chunk in chunks if chunk["type"] == "resource_link"] == ["output.txt"]
    plans = updates(told.streams, "plan")
    assert len(plans) > 1 and {entry["status"] for entry in plans[0]["entries"]} != {"completed"}
    assert {entry["status"] for entry in plans[-1]["entries"]} == {"completed"}


def test_its_next_step_waits_for_permission_which_the_editor_gives_or_refuses(told: Told) -> None:
    assert len(asked(told.permitted, "session/request_permission")) == 2
    whole = text(told.permitted)
    given = whole.partition("\n\nstep 2 of 3: This")[0].removeprefix("step 1 of 3: ")
    assert given.startswith("This conversation so far:") and given.endswith("\n\nwrite a haiku"), "it is a new task"
    assert whole == "\n\n".join(f"step {n} of 3: {given}" for n in (1, 2, 3))
    (question,) = asked(told.refused, "session/request_permission")
    assert {option["name"] for option in question["options"]} == {"Continue", "Stop here"}
    before, _, rest = text(told.refused).partition(whole)
    assert before.startswith("step 1 of 3: ") and rest.endswith("\n\nwrite a haiku") and "step" not in rest


def test_a_question_without_choices_is_a_form(told: Told) -> None:
    questions = asked(told.form, "elicitation/create")
    assert len(questions) == 2
    assert all("Input for the next step" in json.dumps(question) for question in questions), "the form has its field"
    assert STEPS[0] in text(told.form) and "step 3 of 3: go on" in text(told.form)


def test_a_failed_run_is_an_error_with_its_reason(told: Told) -> None:
    (error,) = errors(told.failed, "session/prompt")
    assert "it failed on purpose" in str(error)


def test_a_cancelled_prompt_is_answered_cancelled_and_every_other_one_with_its_end(told: Told) -> None:
    stops = [answer["stopReason"] for answer in results(told.lines, "session/prompt")]
    assert stops == ["end_turn"] * 4 + ["cancelled"] + ["end_turn"] * 2
    assert "done" not in text(told.cancelled)


def test_a_session_is_listed_and_loaded_again_on_another_connection(told: Told) -> None:
    session = results(told.lines, "session/new")[0]["sessionId"]
    (listed,) = results(told.loaded, "session/list")
    assert session in [known["sessionId"] for known in listed["sessions"]]
    replayed = [update["content"]["text"] for update in updates(told.loaded, "user_message_chunk")]
    assert replayed == PROMPTS
    whole = text(told.loaded)
    assert STEPS[2] in whole and "tick" in whole
    assert whole.endswith("hello") and whole.count("The next message:\n\nhello") == 2, (
        "the agent remembers the thread, and what others said before it: asked again, it says what it said last"
    )


@pytest.mark.parametrize(("sdk", "door"), [("py", "ws"), ("ts-2", "http")])
def test_a_prompt_behind_the_cancel_of_one_that_another_connection_began_waits_for_its_end(
    gateway: Gateway, sdk: Sdk, door: str
) -> None:
    left = ("--start", "30 seconds", "--await", "tick", "--reconnect", "--session", "@0", "--do", "load")
    steps = (*left, "--do", "cancel", "--say", "1 second")
    (lines,) = agent_client_conversations(sdk, {"steps": steps, **way(gateway, door, "slow")})
    assert [answer["stopReason"] for answer in results(lines, "session/prompt")] == ["end_turn"], lines


def test_an_editor_without_forms_answers_with_its_next_prompt(asked_by_two: list[list[Line]]) -> None:
    lines, _ = asked_by_two
    assert not asked(lines, "elicitation/create")
    first, second = turns(lines)
    assert "step 1 of 3" in text(first) and "step 2 of 3" not in text(first)
    assert "step 2 of 3: go on" in text(second)


def test_questions_of_an_agent_connect_agent_reach_the_editor(asked_by_two: list[list[Line]]) -> None:
    _, lines = asked_by_two
    assert [answer["stopReason"] for answer in results(lines, "session/prompt")] == ["end_turn"]
    assert len(asked(lines, "elicitation/create")) + len(asked(lines, "session/request_permission")) == 1
