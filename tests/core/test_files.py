"""Where an agent's input takes files, and what of a client's input is one."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from gateway.core import files
from gateway.core.errors import Invalid
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, text_pointer
from gateway.core.types import Agent, AgentCapabilities, Artifact, Json, JsonObject

ID = "0190b3a0-0000-7000-8000-0000000000aa"
OTHER = "0190b3a0-0000-7000-8000-0000000000bb"
CONTENT = b"\x89PNG"
BASE64 = base64.b64encode(CONTENT).decode()
DATA_URL = f"data:image/png;base64,{BASE64}"
LINK = f"http://127.0.0.1:8080/artifacts/t/{ID}"


def agent(properties: JsonObject, *, takes: tuple[str, ...] = ()) -> Agent:
    schema: JsonObject = {"type": "object", "properties": properties}
    return Agent(
        name="a",
        input_schema=schema,
        output_schema=MESSAGE_OUTPUT_SCHEMA,
        text_input=text_pointer(schema),
        capabilities=AgentCapabilities(files=takes),
    )


def file(id: str = ID) -> Artifact:
    return Artifact(id=id, name="a.png", media_type="image/png", size=4, url=LINK)


def sent(taker: Agent, document: Json, *given: Artifact) -> Json:
    """The document as the agent gets it; nothing may be left over."""
    placed, left = files.place(taker, document, given)
    assert not left
    ids = files.referred(placed, [each.id for each in given])
    return files.fill(placed, dict.fromkeys(ids, CONTENT))


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"image": STRING}, BASE64),
        ({"image_url": STRING}, LINK),
        ({"imageUrl": {"type": "string", "format": "uri"}}, LINK),
        ({"picture": {"type": "string", "description": "A data: URI"}}, DATA_URL),
        ({"photo_base64": STRING}, BASE64),
        ({"upload": {"type": "string", "contentEncoding": "base64"}}, BASE64),
        ({"upload": {"type": "string", "format": "data-url"}}, DATA_URL),
        ({"upload": {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"}}, BASE64),
        ({"file": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, BASE64),
        ({"images": {"type": "array", "items": STRING}}, [BASE64]),
        ({"url": STRING}, LINK),
        (
            {"parts": {"type": "array", "items": {"properties": {"content_type": {}, "content": {}}}}},
            [{"content_type": "image/png", "content": BASE64}],
        ),
    ],
)
def test_a_picture_goes_where_the_schema_has_a_place_for_it(schema: JsonObject, value: Json) -> None:
    taker = agent({"question": STRING, **schema})
    (name,) = schema
    assert sent(taker, {"question": "what"}, file()) == {"question": "what", name: value}
    assert files.takes(taker, "image/png")


@pytest.mark.parametrize(
    "schema",
    [
        {"image_path": STRING},
        {"file_name": STRING},
        {"image": {"type": "string", "description": "Path of the image"}},
        {"image": {"type": "string", "enum": ["large", "small"]}},
        {"city": STRING},
        {"audio": STRING},
        {"upload": {"type": "string", "contentEncoding": "base64", "contentMediaType": "application/pdf"}},
    ],
)
def test_a_picture_goes_nowhere_else(schema: JsonObject) -> None:
    taker = agent({"question": STRING, **schema})
    assert files.place(taker, {"question": "what"}, [file()]) == ({"question": "what"}, [file()])
    assert not files.takes(taker, "image/png")


def test_a_place_that_the_client_has_filled_stays_as_it_is() -> None:
    taker = agent({"question": STRING, "image": STRING})
    given = {"question": "what", "image": "its own"}
    assert files.place(taker, given, [file()]) == (given, [file()])


def test_one_place_takes_one_file_and_a_list_takes_all() -> None:
    one = agent({"question": STRING, "image": STRING})
    _, left = files.place(one, {}, [file(), file(OTHER)])
    assert [each.id for each in left] == [OTHER]
    assert sent(agent({"images": {"type": "array", "items": STRING}}), None, file(), file(OTHER)) == {
        "images": [BASE64, BASE64]
    }


def test_a_message_whose_content_may_be_blocks_keeps_its_text() -> None:
    block = {
        "type": "object",
        "properties": {"type": {"const": "image_url"}, "image_url": {"type": "object", "properties": {"url": STRING}}},
    }
    content = {"anyOf": [STRING, {"type": "array", "items": block}]}
    message = {"type": "object", "properties": {"role": {"enum": ["user", "assistant"]}, "content": content}}
    taker = agent({"messages": {"type": "array", "items": message}})
    said = sent(taker, {"messages": [{"role": "user", "content": "what"}]}, file())
    assert said == {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": DATA_URL}}],
            }
        ]
    }


def test_a_file_is_no_place_for_a_prompt() -> None:
    assert text_pointer({"type": "object", "properties": {"image": STRING, "city": STRING}}) == "/city"


def test_only_the_runs_own_files_are_put_in_place_of_references() -> None:
    placed, _ = files.place(agent({"image": STRING, "question": STRING}), {}, [file()])
    assert files.referred(placed, [OTHER]) == []


@pytest.mark.parametrize(
    "value",
    [
        DATA_URL,
        {"type": "image", "data": BASE64, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a.png", "blob": BASE64, "mimeType": "image/png"}},
        {"content_type": "image/png", "content": BASE64, "content_encoding": "base64"},
        {"type": "image_url", "image_url": {"url": DATA_URL}},
    ],
)
def test_a_clients_input_may_hold_files_for_an_agent_whose_protocol_has_a_place_for_them(value: Any) -> None:
    taker = agent({"message": STRING}, takes=("*/*",))
    for given in (value, [value]):
        document, found = files.taken(taker, {"message": "hi", "picture": given})
        assert document == {"message": "hi"}
        assert [(each.content, each.media_type) for each in found] == [(CONTENT, "image/png")]


def test_what_the_schema_names_and_what_is_no_file_stays() -> None:
    taker = agent({"message": STRING, "content": {"type": "array"}}, takes=("*/*",))
    for given in (
        {"message": DATA_URL},
        {"message": "hi", "content": [{"type": "image", "data": BASE64, "mimeType": "image/png"}]},
        {"message": "hi", "more": [{"content_type": "text/plain", "content": "said"}]},
        {"message": "hi", "more": ["data: a list, of words"]},
    ):
        assert files.taken(taker, given) == (given, [])


def test_base64_that_is_none_is_refused_with_its_place() -> None:
    taker = agent({"message": STRING}, takes=("*/*",))
    with pytest.raises(Invalid) as refused:
        files.taken(taker, {"picture": ["data:image/png;base64,no base64!"]})
    assert refused.value.path == "/input/picture/0"
