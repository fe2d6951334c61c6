"""Where the text of a document is: by schema, by a route's word, and by looking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.delta import Fold, combine
from gateway.core.delta.cuts import routed
from gateway.core.errors import Invalid
from gateway.core.projection import (
    ASSISTANT,
    MESSAGE_OUTPUT_SCHEMA,
    MESSAGE_SCHEMA,
    inside_out,
    may_have_text,
    text_of,
    text_pointer,
    unwrap,
    with_text_at,
    wrap,
)
from tests.core.json_values import json_values

STRING = {"type": "string"}


def an_object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def chat(**properties: Any) -> dict[str, Any]:
    return an_object("messages", messages={"type": "array", "items": an_object(*properties, **properties)})


LANGCHAIN: dict[str, Any] = {
    "$defs": {
        "AI": an_object("content", type={"const": "ai"}, content={"anyOf": [STRING, {"type": "array"}]}, id=STRING),
        "Human": an_object(
            "content", type={"const": "human"}, content={"anyOf": [STRING, {"type": "array"}]}, id=STRING
        ),
    },
    **an_object(
        "messages",
        messages={"type": "array", "items": {"oneOf": [{"$ref": "#/$defs/AI"}, {"$ref": "#/$defs/Human"}]}},
        thread=STRING,
    ),
}

# name: (schema, where its text is)
SCHEMAS: dict[str, tuple[Any, str | None]] = {
    "the default input": (MESSAGE_SCHEMA, "/message"),
    "the default output": (MESSAGE_OUTPUT_SCHEMA, "/message"),
    "a string": (STRING, ""),
    "a string or null": ({"type": ["string", "null"]}, ""),
    "the only string": (an_object(name=STRING, age={"type": "integer"}), "/name"),
    "the only required string": (an_object("topic", topic=STRING, style=STRING), "/topic"),
    "two strings that say nothing": (an_object(first=STRING, second=STRING), None),
    "a telling name": (an_object(name=STRING, text=STRING), "/text"),
    "the more telling of two": (an_object(prompt=STRING, message=STRING), "/message"),
    "a required one before an optional one": (an_object("query", message=STRING, query=STRING), "/query"),
    "a choice of words is no text": (an_object(message={"enum": ["a"], "type": "string"}, topic=STRING), "/topic"),
    "a format is no text": (an_object(message={"type": "string", "format": "uri"}, topic=STRING), "/topic"),
    "beneath a telling name": (an_object(input=an_object(question=STRING), n={"type": "integer"}), "/input/question"),
    "in the only object": (an_object(a=an_object(b=an_object(c=STRING))), "/a/b/c"),
    "a pointer's own characters": (an_object(**{"a/b~": STRING}), "/a~1b~0"),
    "optional in pydantic's way": (an_object(query={"anyOf": [STRING, {"type": "null"}], "default": None}), "/query"),
    "a reference": ({"$ref": "#/$defs/In", "$defs": {"In": an_object(goal=STRING, x=STRING)}}, "/goal"),
    "a reference to a property": (
        {"$defs": {"T": {"allOf": [STRING, {"minLength": 1}]}}, **an_object(task={"$ref": "#/$defs/T"}, x=STRING)},
        "/task",
    ),
    "all of": ({"allOf": [an_object(id={"type": "integer"}), an_object("prompt", prompt=STRING)]}, "/prompt"),
    "any of": ({"anyOf": [{"type": "integer"}, an_object(prompt=STRING, x=STRING)]}, "/prompt"),
    "properties without a type": ({"properties": {"text": STRING}}, "/text"),
    "a chat": (chat(role={"enum": ["user", "assistant"]}, content=STRING), "/messages/-/content"),
    "a chat of strings": (an_object(messages={"type": "array", "items": STRING}), "/messages/-"),
    "a chat of blocks or strings": (LANGCHAIN, "/messages/-/content"),
    "a chat and a text beside it": (
        an_object(topic=STRING, messages={"type": "array", "items": an_object(content=STRING)}),
        "/messages/-/content",
    ),
    "a bare chat": ({"type": "array", "items": an_object(content=STRING, role=STRING)}, "/-/content"),
    "a chat and a message": (an_object(message=STRING, messages={"type": "array", "items": STRING}), "/message"),
    "a reference to itself": ({"$ref": "#"}, None),
    "an object of itself": ({"type": "object", "properties": {"input": {"$ref": "#"}}}, None),
    "a reference to elsewhere": ({"$ref": "https://example.org/x"}, None),
    "a reference to nothing": ({"$ref": "#/nothing"}, None),
    "numbers": (an_object(x={"type": "number"}), None),
    "anything": ({}, None),
    "true": (True, None),
    "none": (None, None),
    "nonsense": ({"properties": 1, "required": 2, "type": 3, "items": 4, "allOf": 5, "$ref": 6, "anyOf": [7]}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_tells_where_the_text_is(name: str) -> None:
    schema, pointer = SCHEMAS[name]
    assert text_pointer(schema) == pointer


@pytest.mark.parametrize("name", [name for name, (_, pointer) in SCHEMAS.items() if pointer is not None])
@pytest.mark.parametrize("role", ["user", ASSISTANT])
def test_text_put_into_a_document_by_its_schema_is_valid_and_comes_out_again(name: str, role: str) -> None:
    schema, pointer = SCHEMAS[name]
    assert pointer is not None
    document = wrap("Hello", pointer, schema, role)
    jsonschema.validate(document, schema)
    assert unwrap(document, pointer) == text_of(document, pointer) == "Hello"
    for text in ("", " wor", "ld"):
        document = combine(document, routed(tuple(reversed(inside_out(pointer))), text))
    assert unwrap(document, pointer) == "Hello world"
    assert text_of(document) == "Hello world"


def test_the_published_mail_composer_is_understood() -> None:
    path = Path(__file__).parents[1] / "specs" / "agent-connect" / "mailcomposer.descriptor.json"
    specs = json.loads(path.read_text())["specs"]
    assert text_pointer(specs["input"]) == "/message"
    assert text_pointer(specs["output"]) == "/message"
    assert text_pointer(specs["thread_state"]) == "/messages/-"
    assert text_pointer(specs["interrupts"][0]["resume_payload"]) == "/reason"


def test_a_route_that_says_where_is_believed() -> None:
    assert text_pointer(MESSAGE_SCHEMA, "/other/place") == "/other/place"
    assert text_pointer(MESSAGE_SCHEMA, "") == ""
    with pytest.raises(Invalid):
        text_pointer(MESSAGE_SCHEMA, "message")


@pytest.mark.parametrize("pointer", ["", "/prompt", "/a/b/c", "/messages/-/content", "/list/-", "/list/1/text", "/-"])
@pytest.mark.parametrize("assumed", [MESSAGE_SCHEMA, MESSAGE_OUTPUT_SCHEMA])
def test_an_assumed_schema_takes_the_text_where_a_route_says(assumed: dict[str, Any], pointer: str) -> None:
    schema = with_text_at(assumed, pointer)
    document = wrap("Hi", pointer, schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    assert may_have_text(schema, pointer)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"message": "Hi"}, schema)
    if isinstance(document, dict) and "artifacts" in assumed["properties"]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document, "artifacts": [{}]}, schema)
    assert with_text_at(assumed, "/message") == assumed
    if pointer == "/messages/-/content":
        assert document == {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("schema", "pointer", "may"),
    [
        (MESSAGE_SCHEMA, "/message", True),
        (MESSAGE_SCHEMA, "/prompt", False),
        (MESSAGE_SCHEMA, "", False),
        (MESSAGE_SCHEMA, "/message/text", False),
        (chat(content=STRING), "/messages/-/content", True),
        (chat(content=STRING), "/messages/0/content", True),
        (chat(content=STRING), "/messages/-/text", False),
        (an_object(count={"type": "integer"}), "/count", False),
        (an_object(text={}), "/text", True),
        (an_object(a=STRING) | {"additionalProperties": STRING}, "/b", True),
        ({"type": "array", "items": STRING}, "/-", True),
        ({"anyOf": [STRING, an_object(text=STRING)]}, "/text", True),
        ({"$ref": "#/$defs/in", "$defs": {"in": an_object(text=STRING)}}, "/text", True),
        ({"$ref": "#/$defs/in", "$defs": {"in": an_object(text=STRING)}}, "/query", False),
        ({}, "/anywhere", True),
        (None, "/anywhere", True),
        ({"type": "object"}, "/anywhere", True),
        ({"type": "object", "additionalProperties": False}, "/anywhere", False),
    ],
)
def test_a_schema_tells_whether_there_may_be_text_at_a_place(schema: Any, pointer: str, may: bool) -> None:
    assert may_have_text(schema, pointer) is may


@pytest.mark.parametrize(
    ("schema", "role", "message"),
    [
        (SCHEMAS["a chat"][0], "user", {"role": "user", "content": "Hi"}),
        (SCHEMAS["a chat"][0], ASSISTANT, {"role": "assistant", "content": "Hi"}),
        (LANGCHAIN, "user", {"type": "human", "content": "Hi"}),
        (LANGCHAIN, ASSISTANT, {"type": "ai", "content": "Hi"}),
        (chat(role=STRING, content=STRING), "user", {"role": "user", "content": "Hi"}),
        (chat(content=STRING), "user", {"content": "Hi"}),
        (None, "user", {"role": "user", "content": "Hi"}),
    ],
)
def test_who_says_it_is_said_in_the_schemas_own_words(schema: Any, role: str, message: Any) -> None:
    assert wrap("Hi", "/messages/-/content", schema, role) == {"messages": [message]}


@pytest.mark.parametrize(
    ("pointer", "document"),
    [
        (None, "Hi"),
        ("", "Hi"),
        ("/a/b", {"a": {"b": "Hi"}}),
        ("/list/-", {"list": ["Hi"]}),
        ("/list/0/text", {"list": [{"text": "Hi"}]}),
        ("/list/1", {"list": [None, "Hi"]}),
    ],
)
def test_a_pointer_alone_makes_a_document(pointer: str | None, document: Any) -> None:
    assert wrap("Hi", pointer) == document
    fold = Fold(document)
    fold.apply(routed(tuple(reversed(inside_out(pointer))), "!"))
    assert unwrap(fold.document(), pointer or "") == "Hi!"


@pytest.mark.parametrize(
    ("document", "pointer", "text"),
    [
        ({"message": "a", "text": "b"}, "/text", "b"),
        ({"message": "a"}, "/text", "a"),
        ({"message": "a"}, None, "a"),
        ("a", "/message", "a"),
        ({"name": "a", "n": 1}, "/message", "a"),
        ({"name": "a", "title": "b"}, "/message", None),
        ({"output": {"answer": "a"}}, "/message", "a"),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, None, "a"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "/messages/-/content", "a"),
        ({"messages": [{"content": "q"}, {"content": "a"}]}, "/messages/-/content", "a"),
        ({"messages": []}, "/messages/-/content", None),
        ({"messages": "a"}, "/messages/-/content", "a"),
        (
            {"message": {"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}},
            "/message/content",
            "ab",
        ),
        ([{"content": "q"}, {"content": "a"}], None, "a"),
        ({"message": ""}, "/message", ""),
        ({"message": None}, "/message", None),
        ({"message": 5}, "/message", None),
        ({}, "/message", None),
        ([], None, None),
        (None, "/message", None),
        (True, None, None),
    ],
)
def test_text_is_found_in_documents_that_do_not_follow_their_schema(
    document: Any, pointer: str | None, text: str | None
) -> None:
    assert text_of(document, pointer) == text


@given(json_values(), st.sampled_from([None, "", "/text", "/a/0", "/-/a", "/a/-"]))
def test_any_document_has_a_text_or_none(document: Any, pointer: str | None) -> None:
    assert isinstance(text_of(document, pointer), str | None)


@given(json_values())
def test_any_value_may_stand_where_a_schema_should(schema: Any) -> None:
    for inner in (schema, {"properties": schema}, {"type": "object", "properties": {"text": schema, "a": schema}}):
        pointer = text_pointer(inner)
        assert pointer is None or unwrap(wrap("x", pointer, inner), pointer) == "x"
