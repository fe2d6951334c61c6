"""SKILL.md: an operator's skills are found, valid and bounded, or its manifest is none."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from gateway.governance.binding import Binding, bind
from gateway.governance.skills import MOST_BYTES, MOST_IN_ALL
from gateway.yaml_document import DocumentError
from tests.governance.support import OPERATOR, manifest, told, with_, write


def skill(folder: Path, name: str, body: str = "", **keys: Any) -> Path:
    """A SKILL.md in a folder of its name."""
    own = keys.pop("aip3", None)
    more = {"metadata": {"aip3": own}} if own is not None else {}
    front = {"name": name, "description": "What it is for.", **more, **keys}
    return write(folder / name / "SKILL.md", front, body or f"# {name}\n\nDo it well.\n")


def operated(base: Path, *skills: Any) -> Binding:
    write(base / "operators" / "coder" / "OPERATOR.md", with_(OPERATOR, skills=list(skills)))
    return bind(manifest(base / "coder", {"operator": "operators/coder/OPERATOR.md"}), base)


def refused(base: Path, *skills: Any) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        operated(base, *skills)
    return told(caught.value, base)


def test_the_skills_of_an_operator_are_read_in_its_order_from_wherever_they_may_be(tmp_path: Path) -> None:
    skill(tmp_path / ".skills", "hidden")
    skill(tmp_path / "skills", "hidden", "The other of two.")
    skill(tmp_path / "skills", "plain", aip3={"version": "1.2.0"})
    skill(tmp_path / "operators/coder/skills", "own")
    skill(tmp_path / "else", "named")
    source = "../../else/named/SKILL.md"
    found = operated(tmp_path, "own", "plain", {"id": "named", "source": source}, {"id": "hidden"})
    assert [one.id for one in found.skills] == ["own", "plain", "named", "hidden"]
    assert [one.version for one in found.skills] == [None, "1.2.0", None, None]
    assert found.skills[3].body == "# hidden\n\nDo it well." and found.skills[3].ref == "ws://skills/hidden"
    assert found.skills[3].sha256 == hashlib.sha256(b"# hidden\n\nDo it well.").hexdigest()
    assert {one.path for one in found.skills} < set(found.documents)


def test_what_a_skill_builds_on_comes_before_it_and_once(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "mail", aip3={"variant": "composite", "uses": ["voice", "greeting"]})
    skill(tmp_path / "skills", "greeting", aip3={"uses": ["mail", "voice"]})
    skill(tmp_path / "skills", "voice")
    assert [one.id for one in operated(tmp_path, "mail", "voice").skills] == ["voice", "greeting", "mail"]


def test_a_skill_that_is_not_there_is_a_mistake_of_the_operator(tmp_path: Path) -> None:
    url = {"id": "brand-voice", "source": "https://skills.example.com/brand-voice"}
    fetched, missing = refused(tmp_path, url, "gone")
    assert fetched == (
        "operators/coder/OPERATOR.md:11 skills[0]: there is no skill 'brand-voice' in the workspace: "
        "put it into skills/brand-voice/SKILL.md, and nothing is fetched from https://skills.example.com/brand-voice "
        "(skill-load-failed)"
    )
    assert "skills[1]: there is no skill 'gone' in the workspace: put it into skills/gone/SKILL.md" in missing
    skill(tmp_path / "skills", "brand-voice")
    assert operated(tmp_path, url).skills[0].id == "brand-voice"


def test_what_a_skill_builds_on_and_is_not_there_is_a_mistake_of_the_skill(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "mail", aip3={"uses": ["gone"]})
    (told_of,) = refused(tmp_path, "mail")
    assert told_of.startswith("skills/mail/SKILL.md:") and "metadata.aip3.uses[0]: there is no skill 'gone'" in told_of


def test_another_version_than_the_operator_wants_is_a_mistake(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "mail", aip3={"version": "1.2.0"})
    (told_of,) = refused(tmp_path, {"id": "mail", "version": "2.0.0"})
    assert told_of.endswith("skills[0].version: skills/mail/SKILL.md has 1.2.0, not 2.0.0 (skill-load-failed)")
    assert operated(tmp_path, {"id": "mail", "version": "1.2.0"}).skills


def test_what_the_operator_says_of_a_skill_holds_where_an_earlier_one_builds_on_it(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "mail", aip3={"variant": "composite", "uses": ["voice"]})
    skill(tmp_path / "skills", "voice", aip3={"version": "1.2.0"})
    (told_of,) = refused(tmp_path, "mail", {"id": "voice", "version": "2.0.0"})
    assert told_of.endswith("skills[1].version: skills/voice/SKILL.md has 1.2.0, not 2.0.0 (skill-load-failed)")
    skill(tmp_path / "else", "voice", "Another.")
    found = operated(tmp_path, "mail", {"id": "voice", "source": "../../else/voice/SKILL.md"})
    assert [one.body for one in found.skills] == ["Another.", "# mail\n\nDo it well."]


def test_a_file_that_is_another_skill_is_a_mistake(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "mail")
    (told_of,) = refused(tmp_path, {"id": "letters", "source": "../../skills/mail/SKILL.md"})
    assert told_of.endswith(
        "skills[0].source: skills/mail/SKILL.md is the skill 'mail', not 'letters' (skill-load-failed)"
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"name": "other"}, "skills/mail/SKILL.md:2 name: 'other' is not the folder's name, 'mail'"),
        ({"description": ""}, "skills/mail/SKILL.md:3 description: "),
        ({"aip3": {"version": "one"}}, "skills/mail/SKILL.md:6 metadata.aip3.version: "),
        ({"aip3": {"variant": "composite"}}, "metadata.aip3.uses: required"),
    ],
)
def test_a_skill_that_is_not_valid_is_named(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    folder = skill(tmp_path / "skills", "mail").parent
    aip3 = keys.pop("aip3", None)
    front = {"name": "mail", "description": "Mails.", **keys, **({"metadata": {"aip3": aip3}} if aip3 else {})}
    write(folder / "SKILL.md", front)
    (told_of,) = refused(tmp_path, "mail")
    assert message in told_of


def test_nothing_leads_out_of_the_workspace(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    outside = skill(tmp_path, "secret")
    (inside / "skills").mkdir(parents=True)
    (inside / "skills" / "secret").symlink_to(outside.parent)
    (told_of,) = refused(inside, "secret")
    assert "leads out of the workspace" in told_of
    (told_of,) = refused(inside, {"id": "secret", "source": "../../../secret/SKILL.md"})
    assert "skills[0].source: leads out of the workspace" in told_of


def test_instructions_are_bounded_one_by_one_and_in_all(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "most", "x" * MOST_BYTES)
    assert len(operated(tmp_path, "most").skills[0].body) == MOST_BYTES
    skill(tmp_path / "skills", "more", "x" * (MOST_BYTES + 1))
    assert refused(tmp_path, "more")[0].endswith("65537 bytes of instructions: at most 65536 (body_too_large)")
    names = [f"s{index}" for index in range(MOST_IN_ALL // MOST_BYTES)]
    for name in names:
        skill(tmp_path / "skills", name, "y" * MOST_BYTES)
    assert len(operated(tmp_path, *names).skills) == len(names)
    skill(tmp_path / "skills", "last", "z")
    (told_of,) = refused(tmp_path, *names, "last")
    assert told_of.endswith("skills: 262145 bytes of instructions: at most 262144 (body_too_large)")
