"""`${VAR}` in a routes.yaml, wherever YAML lets a value stand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.yaml_document import read as read_document
from tests.config.conftest import Read

WHERE = ["key: %s", "key: '%s'", 'key: "%s"', "{key: %s}", "{key: %s, other: 1}", "key:\n  %s", "key: |-\n  %s"]


def value(text: str, **env: str) -> object:
    document = read_document(text, "f.yaml", env)
    assert not document.mistakes, document.mistakes
    return document.value["key"]


@pytest.mark.parametrize("place", WHERE)
@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("${A}", "one: {two}"),
        ("x${A}y${A}", "xone: {two}yone: {two}"),
        ("${B:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY}", ""),
        ("${B:-}", ""),
        ("${B:-http://x:80/[a], b}", "http://x:80/[a], b"),
        ("$${A}", "${A}"),
        ("$A $ {A}", "$A $ {A}"),
    ],
)
def test_a_variable_is_filled_in_wherever_it_stands(place: str, written: str, becomes: str) -> None:
    if "$ {" in written and place.startswith("{"):
        return  # braces of YAML's own
    assert value(place % written, A="one: {two}", EMPTY="") == becomes


def test_a_value_filled_in_is_text_that_yaml_does_not_read_again() -> None:
    assert value("key: ${A}", A="[1, 2] # no") == "[1, 2] # no"


def test_a_variable_may_give_a_number_or_a_choice(read: Read) -> None:
    (route,) = read(
        "routes: [{name: ${N}, target: {protocol: ${P}, url: ${U}, steps: ${S}}, backpressure: ${B}, timeout: ${T}}]",
        N="a", P="both", U="http://x", S="7", B="true", T="2m",
    ).routes  # fmt: skip
    assert (route.target.steps, route.backpressure, route.timeout) == (7, True, 120.0)  # type: ignore[attr-defined]


def test_every_unset_variable_is_named_with_its_line_and_key(mistakes: Callable[..., list[str]]) -> None:
    assert mistakes("store:\n  url: ${ONE}\nroutes: []\npublic_url: ${TWO}") == [
        "routes.yaml:2 store.url: environment variable ONE is not set; ${ONE:-...} gives a default",
        "routes.yaml:4 public_url: environment variable TWO is not set; ${TWO:-...} gives a default",
    ]


@pytest.mark.parametrize("written", ["${", "${}", "${1A}", "'${A'", "${A-x}", "'${A:-${B}}'"])
def test_a_dollar_brace_that_is_no_variable_is_refused(written: str) -> None:
    document = read_document(f"key: {written}", "f.yaml", {"A": "a", "B": "b"})
    assert [mistake.message for mistake in document.mistakes] == [
        "write ${VAR} or ${VAR:-default}; a plain '${' is written '$${'"
    ]


def test_a_comment_may_hold_anything() -> None:
    assert value("key: 1 # ${UNSET} ${\n") == 1


@pytest.mark.parametrize(
    ("written", "becomes"),
    [("2026-01-01", "2026-01-01"), ("1:30", "1:30"), ("010", "010"), ("10", 10), ("1.5", 1.5), ("true", True)],
)
def test_what_looks_like_text_stays_text(written: str, becomes: object) -> None:
    assert value(f"key: {written}") == becomes


def test_an_alias_and_a_merge_are_followed() -> None:
    document = read_document("base: &b {x: 1, y: 2}\nkey: {<<: *b, y: 3}\n", "f.yaml", {})
    assert document.value["key"] == {"x": 1, "y": 3}
    assert document.lines[("key", "y")] == 2


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="}$\\\"'\n\r\x85\u2028\u2029", exclude_categories=["C"]))
)
def test_any_default_that_is_written_in_a_plain_scalar_comes_out_as_written(default: str) -> None:
    document = read_document(f"key: x${{A:-{default}}}y\nnext: 1\n", "f.yaml", {})
    assert not document.mistakes
    assert document.value == {"key": f"x{default}y", "next": 1}
