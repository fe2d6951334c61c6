"""Content blocks: what a prompt may have, a prompt as text, files in blocks."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec import content
from gateway.core.errors import Invalid
from gateway.core.files import Attachment
from gateway.core.types import JsonObject, RunRequest
from tests.adapters.agent_client.codec_cases import ANY, BLOCKS, NATIVE, unhurried, valid

ALL = {"image": True, "audio": True, "embeddedContext": True}
TEXT = {"type": "text", "text": "Look at "}
LINK = {"type": "resource_link", "name": "a [b].py", "uri": "file:///a b.py"}
EMBEDDED = {"type": "resource", "resource": {"uri": "file:///x.py", "text": "print('```')\n", "mimeType": None}}
IMAGE = {"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"}
BLOB = {"type": "resource", "resource": {"uri": "file:///d/x%20y.pdf", "blob": base64.b64encode(b"pdf").decode()}}


@unhurried
@given(st.lists(BLOCKS, max_size=4))
def test_whatever_the_schema_allows_passes_for_an_agent_that_takes_all(blocks: Any) -> None:
    for block in blocks:
        valid("ContentBlock", block)
    assert content.check(blocks, ALL) is blocks


@pytest.mark.parametrize(
    ("blocks", "capabilities", "path"),
    [
        ("text", ALL, "/prompt"),
        (None, ALL, "/prompt"),
        (["text"], ALL, "/prompt/0"),
        ([TEXT, {"type": "video"}], ALL, "/prompt/1"),
        ([{"type": ["text"]}], ALL, "/prompt/0"),
        ([{"text": "x"}], ALL, "/prompt/0"),
        ([{"type": "text", "text": 1}], ALL, "/prompt/0/text"),
        ([{"type": "resource_link", "name": "x"}], ALL, "/prompt/0/uri"),
        ([{"type": "resource", "resource": {"text": "x"}}], ALL, "/prompt/0/resource"),
        ([{"type": "resource", "resource": {"uri": "x"}}], ALL, "/prompt/0/resource"),
        ([TEXT, IMAGE], {"audio": True}, "/prompt/1"),
        ([{**IMAGE, "type": "audio"}], {"image": True, "audio": None}, "/prompt/0"),
        ([LINK, EMBEDDED], {}, "/prompt/1"),
    ],
)
def test_what_is_no_prompt_or_more_than_the_agent_takes_is_refused_where_it_is(
    blocks: Any, capabilities: Any, path: str
) -> None:
    with pytest.raises(Invalid) as raised:
        content.check(blocks, capabilities)
    assert raised.value.path == path


@unhurried
@given(ANY)
def test_nothing_else_than_blocks_passes(value: Any) -> None:
    if value == []:
        return
    with pytest.raises(Invalid):
        content.check(value, ALL)


def test_text_and_links_are_one_sentence() -> None:
    after = {"type": "text", "text": ", please."}
    assert content.text_of([TEXT, LINK, after]) == r"Look at [a \[b\].py](<file:///a b.py>), please."


def test_texts_are_paragraphs() -> None:
    assert content.text_of([TEXT, TEXT, {"type": "text", "text": "\nx"}]) == "Look at \n\nLook at \nx"


def test_an_embedded_text_is_a_fence_below_its_uri() -> None:
    assert content.text_of([TEXT, EMBEDDED, TEXT]) == (
        "Look at \n\nfile:///x.py\n````py\nprint('```')\n\n````\n\nLook at "
    )


@pytest.mark.parametrize("block", [IMAGE, {**IMAGE, "type": "audio"}, BLOB])
def test_what_is_no_text_is_not_left_out_silently(block: Any) -> None:
    with pytest.raises(Invalid) as raised:
        content.text_of([TEXT, block])
    assert raised.value.path == "/prompt/1"


# --- what is sent ------------------------------------------------------------------------------------------------


def asked(input: Any, protocol: str = "agent_connect", **more: Any) -> RunRequest:
    return RunRequest(agent="coder", input=input, protocol=protocol, **more)


def blocks_of(request: RunRequest, capabilities: JsonObject | None = None) -> list[JsonObject]:
    return content.blocks_of(request, NATIVE.text_input, lambda: capabilities or {})


def test_blocks_of_an_input_come_after_its_message() -> None:
    assert blocks_of(asked({"message": "Hi", "content": [LINK]})) == [content.block_of("Hi"), LINK]
    said = [content.block_of("Hi"), LINK]
    assert blocks_of(asked({"message": "Hi", "content": said})) == said
    assert blocks_of(asked({"message": "", "content": [LINK]})) == [LINK]
    assert blocks_of(asked({"message": "", "content": []})) == [content.block_of("")]


def test_blocks_that_the_agent_does_not_take_are_refused() -> None:
    with pytest.raises(Invalid) as raised:
        blocks_of(asked({"message": "Hi", "content": [IMAGE]}))
    assert raised.value.path == "/input/content/0"
    assert blocks_of(asked({"message": "Hi", "content": [IMAGE]}), {"image": True})[1] == IMAGE


# --- files -------------------------------------------------------------------------------------------------------


def test_files_in_blocks_have_names_types_and_bytes() -> None:
    assert content.file_of(IMAGE) == Attachment(name="image.png", media_type="image/png", content=b"\x89PNG")
    assert content.file_of({**IMAGE, "uri": "file:///a/b.png"}) == Attachment(
        name="b.png", media_type="image/png", content=b"\x89PNG"
    )
    assert content.file_of(BLOB) == Attachment(name="x y.pdf", media_type="application/octet-stream", content=b"pdf")
    assert content.file_of(EMBEDDED) == Attachment(name="x.py", media_type="text/plain", content=b"print('```')\n")


@pytest.mark.parametrize("value", [None, "x", TEXT, LINK, {**IMAGE, "data": "§"}, {"type": "resource", "resource": 1}])
def test_other_blocks_have_no_file(value: Any) -> None:
    assert content.file_of(value) is None


@unhurried
@given(BLOCKS | ANY)
def test_a_files_name_is_never_a_path(block: Any) -> None:
    file = content.file_of(block)
    assert file is None or (file.name not in ("", ".", "..") and "/" not in file.name and "\\" not in file.name)


def test_a_file_that_another_protocol_describes_is_a_link_if_it_has_an_address() -> None:
    described = content.described({"url": "http://x/a%20b.pdf?y", "media_type": "application/pdf"})
    assert described == {
        "type": "resource_link",
        "uri": "http://x/a%20b.pdf?y",
        "name": "a b.pdf",
        "mimeType": "application/pdf",
    }
    assert content.described({"name": "x"}) is None and content.described("x") is None
