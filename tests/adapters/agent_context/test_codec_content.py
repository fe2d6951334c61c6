"""Payloads as inputs, outputs as payloads, and both ways for agents of this protocol."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from adapters.agent_context import ADAPTER
from adapters.agent_context.codec.agents import agent_of
from adapters.agent_context.codec.content import output_of, payload_of, request_of, start_of, task_of
from gateway.core import delta, projection
from gateway.core.errors import Invalid
from gateway.core.memory import Recalled
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA
from gateway.core.types import Agent, Json, JsonObject, Run, RunRequest
from tests.adapters.agent_context.codec_records import SCHEMAS, example, unhurried
from tests.core.json_values import FLOATS, INTEGERS, SOUND, json_values


def sent(agent: Agent, run: Run) -> Json:
    return request_of(agent, run, Recalled(input=run.request.input))


ANY = json_values(SOUND, INTEGERS | FLOATS)
PAYLOADS = ANY | st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(st.fixed_dictionaries({"text": SOUND}), max_size=3) | ANY,
        "input": ANY,
        "output": ANY,
        "text": ANY,
        "message": SOUND,
        "context": st.fixed_dictionaries({"sessionId": SOUND}),
        "count": ANY,
    },
)


def agent(input_schema: Any = MESSAGE_SCHEMA, output_schema: Any = MESSAGE_OUTPUT_SCHEMA) -> Agent:
    return Agent(
        name="a",
        input_schema=input_schema,
        output_schema=output_schema,
        text_input=projection.text_pointer(input_schema),
        text_output=projection.text_pointer(output_schema),
    )


def run_of(request_input: Json, protocol: str = "example", **fields: Any) -> Run:
    request = RunRequest(agent="a", input=request_input, protocol=protocol, **fields)
    return Run(id="r", request=request, created_at=0.0, updated_at=0.0)


def input_of(agent: Agent, payload: Json, *, lost: Callable[[str], None] = print) -> Json:
    begun = task_of(agent, payload)
    for each in begun.losses:
        lost(each)
    return begun.input


# --- payload -> input ------------------------------------------------------------------------------------------------


@given(SCHEMAS, PAYLOADS)
@unhurried
def test_any_payload_becomes_an_input_that_validates_or_is_refused_with_a_path(schema: Any, payload: Json) -> None:
    losses: list[str] = []
    try:
        found = input_of(agent(schema), payload, lost=losses.append)
    except Invalid as error:
        assert error.path.startswith("/content/payload")
        assert not Draft202012Validator(schema).is_valid(payload)
    else:
        assert Draft202012Validator(schema).is_valid(found)
        assert set(losses) <= set(ADAPTER.losses)


ARRAY = {"type": "array", "items": {"type": "number"}}
COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
BOTH = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["text", "count"],
}
INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


@pytest.mark.parametrize(
    ("schema", "payload", "expected"),
    [
        (MESSAGE_SCHEMA, {"messages": [{"text": "Hi"}]}, {"message": "Hi"}),
        (MESSAGE_SCHEMA, {"messages": [{"text": "a"}, {"text": "b"}]}, {"message": "a\nb"}),
        (MESSAGE_SCHEMA, {"messages": [{"text": "Hi"}], "context": {"sessionId": "s"}}, {"message": "Hi"}),
        (MESSAGE_SCHEMA, "Hi", {"message": "Hi"}),
        (MESSAGE_SCHEMA, {"text": "Hi"}, {"message": "Hi"}),
        (MESSAGE_SCHEMA, {"prompt": "Hi"}, {"message": "Hi"}),
        (MESSAGE_SCHEMA, {"message": "Hi", "tone": "warm"}, {"message": "Hi", "tone": "warm"}),
        (MESSAGE_SCHEMA, {"input": {"message": "Hi", "n": 1}, "messages": []}, {"message": "Hi", "n": 1}),
        (COUNT, {"count": 3}, {"count": 3}),
        (COUNT, {"input": {"count": 3}, "messages": [{"text": "three"}]}, {"count": 3}),
        (ARRAY, [1, 2], [1, 2]),
        ({"type": "string"}, {"messages": [{"text": "Hi"}]}, "Hi"),
        (INPUT, {"input": "x"}, {"input": "x"}),
        ({"type": "object"}, {"dataset": "d"}, {"dataset": "d"}),
    ],
)
def test_a_payload_is_said_in_the_agents_own_words(schema: Any, payload: Json, expected: Json) -> None:
    losses: list[str] = []
    assert input_of(agent(schema), payload, lost=losses.append) == expected
    assert losses == []


def test_an_agent_is_told_the_text_where_it_looks_for_it_though_the_payload_would_do() -> None:
    optional = {"type": "object", "properties": {"message": {"type": "string"}, "lang": {"type": "string"}}}
    assert input_of(agent(optional), {"messages": [{"text": "Hi"}]}) == {"message": "Hi"}
    assert input_of(agent(optional), {"lang": "fr"}) == {"lang": "fr"}


def test_a_payload_without_text_is_told_as_json_and_that_is_counted() -> None:
    losses: list[str] = []
    found = input_of(agent(), {"dataset": "http://data.example.com/dataset.csv"}, lost=losses.append)
    assert found == {"message": '{"dataset":"http://data.example.com/dataset.csv"}'}
    assert losses == ["payload_as_text"]


@pytest.mark.parametrize(
    "payload", [{"messages": [{"text": "Hi"}], "dataset": "d"}, {"messages": [{"text": "Hi", "image": "i"}]}]
)
def test_what_is_beside_the_text_is_counted_where_the_agent_takes_text_only(payload: JsonObject) -> None:
    losses: list[str] = []
    assert input_of(agent(), payload, lost=losses.append) == {"message": "Hi"}
    assert losses == ["payload_rest"]


@pytest.mark.parametrize("payload", [{"dataset": "d"}, {"messages": [{"text": "Hi"}], "dataset": "d"}])
def test_nothing_is_lost_to_an_agent_of_this_protocol_which_gets_the_payload_itself(payload: JsonObject) -> None:
    losses: list[str] = []
    assert "message" in input_of(agent_of(example()), payload, lost=losses.append)
    assert losses == []


@pytest.mark.parametrize(
    ("schema", "payload", "path"),
    [
        (COUNT, {"count": "3"}, "/content/payload/count"),
        (COUNT, {"input": {"count": "3"}}, "/content/payload/input/count"),
        (COUNT, {"messages": [{"text": "3"}]}, "/content/payload"),
        (BOTH, {"messages": [{"text": "3"}]}, "/content/payload"),
        (ARRAY, {"text": "1"}, "/content/payload"),
        (ARRAY, [1, "2"], "/content/payload/1"),
        (MESSAGE_SCHEMA, {"input": 5}, "/content/payload/input"),
    ],
)
def test_what_is_no_input_is_refused_where_it_is_not(schema: Any, payload: Json, path: str) -> None:
    with pytest.raises(Invalid) as caught:
        input_of(agent(schema), payload)
    assert caught.value.path == path


def test_a_schema_that_leads_elsewhere_is_not_fetched_and_nothing_fits_it() -> None:
    with pytest.raises(Invalid):
        input_of(agent({"$ref": "http://127.0.0.1:9/schema.json"}), {"a": 1})


# --- files -----------------------------------------------------------------------------------------------------------

PNG = base64.b64encode(b"\x89PNG").decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
DATA_URL = f"data:image/png;base64,{PNG}"
LINK = {"type": "resource_link", "uri": "https://example.com/a.csv", "name": "a.csv"}


@pytest.mark.parametrize(
    ("payload", "text", "names"),
    [
        ({"messages": [{"text": "Hi"}, IMAGE]}, "Hi", ["image.png"]),
        ({"messages": [{"type": "text", "text": "Hi"}, {"role": "user", "content": IMAGE}]}, "Hi", ["image.png"]),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, IMAGE]}]}, "Hi", ["image.png"]),
        ({"messages": [{"role": "user", "text": "Hi", "parts": [IMAGE]}]}, "Hi", ["image.png"]),
        ({"parts": [{"type": "text", "text": "Hi"}, IMAGE, IMAGE]}, "Hi", ["image.png", "image.png"]),
        ({"text": "Hi", "files": [IMAGE, LINK]}, "Hi\n[a.csv](https://example.com/a.csv)", ["image.png"]),
        ({"message": "Hi", "picture": DATA_URL}, "Hi", ["picture.png"]),
        ([{"type": "text", "text": "Hi"}, IMAGE], "Hi", ["image.png"]),
        (IMAGE, "", ["image.png"]),
        (DATA_URL, "", ["file.png"]),
        ({"messages": [{"text": "Hi"}, LINK]}, "Hi\n[a.csv](https://example.com/a.csv)", []),
        (
            {
                "format": "text",
                "subformat": "english",
                "content": "Hi",
                "submessages": [
                    {"format": "binary", "subformat": "image/png", "content": PNG, "label": "a.png"},
                    {"format": "structured", "subformat": "uri", "content": "https://example.com/b"},
                ],
            },
            "Hi\nhttps://example.com/b",
            ["a.png"],
        ),
    ],
)
def test_files_are_taken_out_of_a_payload_and_its_text_stays_text(payload: Json, text: str, names: list[str]) -> None:
    begun = task_of(agent(), payload)
    assert (begun.input, list(begun.losses)) == ({"message": text}, [])
    assert [each.name for each in begun.files] == names
    assert {each.content for each in begun.files} <= {b"\x89PNG"}


KEYS = """type data mimeType text parts messages format subformat content label uri name resource image_url files role
submessages"""
WORDS = (
    "text image resource resource_link binary structured uri image/png AA== data:image/png;base64,AA== data:,x x/y/z"
)
LOOKS_LIKE_FILES = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from([*WORDS.split(), ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS.split(), "submessages"]), inner, max_size=5)
    ),
    max_leaves=14,
)


@given(LOOKS_LIKE_FILES)
@unhurried
def test_what_looks_like_a_file_is_one_or_is_refused_where_it_stands(payload: Json) -> None:
    for each in (agent(), agent(LOOKING)):
        try:
            begun = start_of(each, payload)
        except Invalid as error:
            assert error.path.startswith("/content/payload")
        else:
            assert all(file.name and "/" in file.media_type for file in begun.files)


LOOKING = {
    "type": "object",
    "properties": {"question": {"type": "string"}, "image": {"type": "string"}},
    "required": ["question", "image"],
}


@pytest.mark.parametrize(
    "payload",
    [
        {"messages": [{"text": "Hi"}, IMAGE]},
        {"question": "Hi", "files": [IMAGE]},
        {"input": {"question": "Hi"}, "files": [IMAGE]},
    ],
)
def test_a_file_has_its_place_in_the_agents_own_input(payload: Json) -> None:
    begun = task_of(agent(LOOKING), payload)
    assert begun.input == {"question": "Hi"} and len(begun.files) == 1, "the engine puts it there"


def test_a_file_where_the_agent_has_it_stays_there() -> None:
    payload = {"question": "Hi", "image": DATA_URL}
    assert task_of(agent(LOOKING), payload).input == payload


def test_what_is_missing_beside_a_file_is_asked_for() -> None:
    begun = start_of(agent(LOOKING | {"required": ["question", "image", "size"]}), {"text": "Hi", "files": [IMAGE]})
    assert (begun.input, begun.prompt, len(begun.files)) == (None, "Hi", 1)


def test_base64_that_is_none_is_refused_where_it_stands() -> None:
    with pytest.raises(Invalid) as caught:
        task_of(agent(), {"messages": [{"text": "Hi"}, {**IMAGE, "data": "no!"}]})
    assert caught.value.path == "/content/payload/messages/1"


def test_an_agent_of_this_protocol_is_sent_the_payload_with_its_files() -> None:
    begun = task_of(agent_of(example()), {"messages": [{"text": "Hi"}, IMAGE]})
    assert begun.files == ()


# --- outputs ---------------------------------------------------------------------------------------------------------


@given(SCHEMAS, ANY)
@unhurried
def test_an_output_told_as_a_payload_is_read_as_the_same_output(schema: Any, output: Json) -> None:
    told = payload_of(agent({}, schema), delta.encode(output))
    assert delta.same(output_of(agent({}, schema), told), delta.decode(delta.encode(output)))


@pytest.mark.parametrize(
    ("output", "payload"),
    [
        ({"message": "Done"}, {"messages": [{"text": "Done"}]}),
        (
            {"message": "Done", "artifacts": [{"name": "a", "url": "u"}]},
            {"messages": [{"text": "Done"}], "output": {"message": "Done", "artifacts": [{"name": "a", "url": "u"}]}},
        ),
        ({"total": 3}, {"messages": [{"text": '{"total":3}'}], "output": {"total": 3}}),
        (None, {"messages": [{"text": "null"}], "output": None}),
        ([1], {"messages": [{"text": "[1]"}], "output": [1]}),
    ],
)
def test_an_output_is_told_as_text_and_whole_where_it_is_more(output: Json, payload: Json) -> None:
    assert payload_of(agent(), delta.encode(output)) == payload


@pytest.mark.parametrize(
    ("payload", "output"),
    [
        ({"messages": [{"text": "Done"}]}, {"message": "Done"}),
        ({"messages": [{"text": "a"}, {"text": "b"}], "context": {"sessionId": "s"}}, {"message": "a\nb"}),
        ("Done", {"message": "Done"}),
        ({"messages": [{"text": "Done"}], "chart": [1]}, {"message": "Done", "chart": [1]}),
        ({"result": 42}, {"message": '{"result":42}', "result": 42}),
        ({"message": "Done", "confidence": 1}, {"message": "Done", "confidence": 1}),
        ({"output": {"message": "Done"}}, {"message": "Done"}),
        (7, {"message": "7"}),
        (None, {"message": "null"}),
    ],
)
def test_what_an_agent_answers_becomes_its_output(payload: Json, output: Json) -> None:
    assert output_of(agent_of(example()), payload) == output


def test_an_answer_by_the_agents_own_schema_is_its_output() -> None:
    own = agent_of(example(outputSchema=COUNT))
    assert output_of(own, {"count": 3}) == {"count": 3}
    assert output_of(own, {"output": {"count": 3}}) == {"count": 3}


# --- what an agent is sent -------------------------------------------------------------------------------------------


def test_a_run_of_another_protocols_client_is_sent_as_text() -> None:
    assert sent(agent_of(example()), run_of({"message": "Hi"})) == {"messages": [{"text": "Hi"}]}


def test_an_input_that_is_more_than_text_is_sent_whole_besides() -> None:
    payload = sent(agent_of(example()), run_of({"message": "Hi", "n": 1}, thread="t"))
    assert payload == {"messages": [{"text": "Hi"}], "input": {"message": "Hi", "n": 1}, "context": {"sessionId": "t"}}


def test_an_agent_with_a_schema_of_its_own_is_sent_its_input() -> None:
    own = agent_of(example(inputSchema=COUNT))
    assert sent(own, run_of({"count": 3})) == {"messages": [{"text": '{"count":3}'}], "input": {"count": 3}}


@given(SCHEMAS, ANY)
@unhurried
def test_what_is_sent_is_read_as_the_same_input_by_another_gateway(schema: Any, value: Json) -> None:
    if not Draft202012Validator(schema).is_valid(value):
        return
    own = agent_of(example(inputSchema=schema))
    assert delta.same(input_of(own, sent(own, run_of(value))), value)


@given(PAYLOADS)
@unhurried
def test_what_a_client_of_this_protocol_sent_goes_as_it_is(payload: Json) -> None:
    own = agent_of(example())
    message = {"target": "a", "content": {"type": "request", "payload": payload}}
    assert sent(own, run_of({}, "agent_context", creation=message)) is payload
    task = {"id": "t", "type": "x", "payload": payload}
    assert sent(own, run_of({}, "agent_context", attributes={"task": task})) is payload


def test_what_only_looks_like_this_protocols_is_another_protocols_own_business() -> None:
    creation = {"content": {"payload": "x"}}
    own = replace(agent_of(example()), text_input="/message")
    assert sent(own, run_of({"message": "Hi"}, creation=creation)) == {"messages": [{"text": "Hi"}]}
