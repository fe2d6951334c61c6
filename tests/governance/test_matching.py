"""What a policy's `match` takes in, and how long that takes to find out."""

from __future__ import annotations

import random
import re
import time

import pytest

from gateway.governance.matching import subject_matches


def slow(pattern: str, subject: str) -> bool:
    """The same by the plainest regular expressions."""
    if not pattern.startswith("/"):
        return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), subject, re.DOTALL) is not None
    parts = []
    for step in pattern.strip("/").split("/"):
        parts.append("(?:/.*)?" if step == "**" else "/" + "[^/]*".join(map(re.escape, step.split("*"))))
    return re.fullmatch("".join(parts), subject, re.DOTALL) is not None


@pytest.mark.parametrize("seed", range(5))
def test_patterns_mean_what_their_plainest_reading_means(seed: int) -> None:
    choose = random.Random(seed)
    hits = 0
    for _ in range(4000):
        if choose.random() < 0.4:
            pattern = "".join(choose.choices(["a", "b", "*", "."], k=choose.randint(2, 6))) + "a"
            subject = "".join(choose.choices("ab.", k=choose.randint(0, 9)))
        else:
            steps = choose.choices(["a", "b", "*", "**", "a*", "*b", "a*b*", "*ab*"], k=choose.randint(1, 5))
            pattern = "/" + "/".join(steps)
            subject = "/" + "/".join(choose.choices(["a", "b", "ab", "aab", "ba"], k=choose.randint(1, 6)))
        expected = slow(pattern, subject)
        hits += expected
        assert subject_matches(pattern, subject) is expected, (pattern, subject)
    assert hits > 200


@pytest.mark.parametrize("pattern", ["*a*a*a*b", "mcp*a*a*b*c", "/**/*a*a*b", "/**/a/**/a/**/a/**/b"])
def test_no_name_that_an_agent_may_choose_takes_long(pattern: str) -> None:
    subject = "/a" * 5_000 if pattern.startswith("/") else "mcp" + "a" * 10_000
    began = time.process_time()
    assert not subject_matches(pattern, subject)
    assert time.process_time() - began < 2
