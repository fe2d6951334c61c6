"""Texts before and after as a patch, and patches as text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec.v2 import tool_calls
from tests.adapters.agent_client.codec_cases import unhurried

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@$")


def applied(text: str, patch: str) -> str:
    """The text with a patch applied, as programs apply it: each hunk at its line, counts as it says."""
    before = text.splitlines(keepends=True)
    out: list[str] = []
    at = 0
    lines = patch.split("\n")
    number = next((i for i, line in enumerate(lines) if line.startswith("@@")), len(lines))
    while number < len(lines) and (found := HUNK.match(lines[number])):
        start, gone, _, made = (int(each) if each else 1 for each in found.groups())
        first = start - 1 if gone else start
        out += before[at:first]
        at, number = first, number + 1
        while number < len(lines) and lines[number] and lines[number][0] in " +-":
            bare = number + 1 < len(lines) and lines[number + 1].startswith("\\")
            mark, line = lines[number][0], lines[number][1:] + ("" if bare else "\n")
            number += 2 if bare else 1
            if mark != "+":
                assert before[at] == line, "what stands there is not what the patch says"
                at, gone = at + 1, gone - 1
            if mark != "-":
                out.append(line)
                made -= 1
        assert (gone, made) == (0, 0), "a hunk has as many lines as it says"
    assert number >= len(lines) - 1, "and nothing stands behind the last"
    return "".join([*out, *before[at:]])


@unhurried
@given(TEXTS, TEXTS, st.booleans())
def test_a_patch_makes_one_text_of_the_other(before: str, after: str, long: bool) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if long:
            patched.setattr(tool_calls, "_MOST", -1)
        patch = tool_calls.patch("/x", before, after)
    if patch is None:
        assert before == after
    else:
        assert applied(before, patch) == after


def test_a_file_that_is_made_is_added() -> None:
    found = tool_calls.diff_to_v2({"type": "diff", "path": "/x", "newText": "a\n", "_meta": {"k": 1}})
    assert found == {
        "type": "diff",
        "changes": [{"operation": "add", "path": "/x", "fileType": "text"}],
        "patch": {
            "format": "git_patch",
            "text": "diff --git /x /x\nnew file mode 100644\n--- /dev/null\n+++ /x\n@@ -0,0 +1 @@\n+a\n",
        },
        "_meta": {"k": 1},
    }


def test_a_file_that_is_made_empty_and_one_that_is_not_changed_have_no_lines() -> None:
    assert tool_calls.patch("/x", None, "") == "diff --git /x /x\nnew file mode 100644\n"
    assert tool_calls.patch("/x", "a", "a") is None
    assert "patch" not in tool_calls.diff_to_v2({"type": "diff", "path": "/x", "oldText": "a", "newText": "a"})


def test_a_great_change_takes_little_time() -> None:
    before, after = "".join(f"{n}\n" for n in range(50_000)), "".join(f"{n * 7}\n" for n in range(50_000))
    patch = tool_calls.patch("/x", before, after)
    assert patch is not None and applied(before, patch) == after
