"""docs/aip44.md has every sentence of AIP-44 that binds, and every test that it names."""

from __future__ import annotations

import re
from pathlib import Path

from tests.governance.conformance.requirements import REQUIREMENTS

ROOT = Path(__file__).parents[2]
SPECIFICATION = Path(__file__).parent / "upstream" / "aip-44.mdx"
PAGE = (ROOT / "docs" / "aip44.md").read_text(encoding="utf-8")
WORDS = r"\b(MUST|SHALL|SHOULD|MAY|REQUIRED|RECOMMENDED|OPTIONAL)\b"


def plain(text: str) -> str:
    """Without what differs by line ends and links."""
    return " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).split())


def sentences() -> list[str]:
    """Those that bind, in order; not that which names the words."""
    text = SPECIFICATION.read_text(encoding="utf-8").partition("## Specification")[2]
    paragraphs = re.split(r"\n\s*\n|\n- |\n\d\. ", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = [one for each in paragraphs for one in re.split(r"(?<=[.:])(?:\*\*)? (?=[A-Z`*])", plain(each))]
    return [one for one in found if re.search(WORDS, one) and "RFC 2119" not in one]


QUOTED = plain("\n".join(re.findall(r"^> (.*)$", PAGE, re.MULTILINE)))
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+\.py)::(\w+)`", PAGE)))
CASES = sorted(set(re.findall(r"`(\w+)`", "".join(re.findall(r"test_the_gateway_conforms`\s*\(([^)]*)\)", PAGE)))))


def test_there_are_as_many_sentences_as_there_were() -> None:
    assert len(sentences()) == 19, sentences()


def test_every_sentence_that_binds_is_quoted() -> None:
    assert [sentence for sentence in sentences() if sentence.strip("* ") not in QUOTED] == []


def test_every_test_that_is_named_is_there() -> None:
    text = {file: (ROOT / file).read_text(encoding="utf-8") for file, _ in NAMED}
    assert [name for file, name in NAMED if not re.search(rf"^(async )?def {name}\(", text[file], re.MULTILINE)] == []


def test_every_requirement_of_the_conformance_suite_is_named() -> None:
    assert sorted(REQUIREMENTS) == CASES and len(NAMED) > 30


def test_every_quotation_says_what_shows_it() -> None:
    entries = re.split(r"^> ", PAGE, flags=re.MULTILINE)[1:]
    assert all("`tests/" in entry or "See above" in entry for entry in entries)
