"""Votes on an agent: scores from 0 to 10, one of each voter for each task, of which the newest counts.

Votes are kept per agent for all replicas to see. Two replicas may write at the same moment: each remembers what it
wrote until it has seen it kept, and writes it again where another's record has replaced it, so that none is lost.
Votes on an agent under one owner are not those on the next owner's agent of the same id.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from adapters.agent_context.directory.records import digest, time_of
from gateway.core.errors import Invalid
from gateway.core.types import JsonObject

BEST: Final = 10.0
ENOUGH: Final = 3
"""So many votes replace what an agent says of itself."""
MOST_VOTES: Final = 200
"""Votes on one agent that are kept one by one; older ones are summed."""
MOST_REVIEWS: Final = 10
REVIEW_LENGTH: Final = 500


class Vote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One vote. `voter` stands for a principal and its task, and names neither. `at`: epoch seconds."""

    voter: str
    score: float
    at: float
    review: str = ""


class Votes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All votes on one agent, oldest first. `count` and `total` are of those that are not kept one by one any more."""

    owner: str = ""
    votes: tuple[Vote, ...] = ()
    count: int = 0
    total: float = 0.0

    @property
    def number(self) -> int:
        """How many votes there are."""
        return self.count + len(self.votes)

    @property
    def mean(self) -> float | None:
        """Mean of all scores, to two places; None without any."""
        return round((self.total + sum(vote.score for vote in self.votes)) / self.number, 2) if self.number else None

    @property
    def last(self) -> float:
        """When the newest came, epoch seconds; 0 without any."""
        return max((vote.at for vote in self.votes), default=0.0)

    @property
    def reviews(self) -> list[str]:
        """The newest reviews, newest first."""
        return [vote.review for vote in reversed(self.votes) if vote.review][:MOST_REVIEWS]

    def data(self) -> JsonObject:
        """As they are kept."""
        return dict(msgspec.to_builtins(self))


NONE: Final = Votes()


def voter(principal: str, task: str | None) -> str:
    """The key of a principal's vote on a task."""
    return digest(f"{principal}\n{task or ''}")


def vote(who: str, score: Any, at: float, review: str | None = None) -> Vote:
    """A vote, checked. A longer review is cut. Raises Invalid for a score that is no number from 0 to 10."""
    number = isinstance(score, int | float) and not isinstance(score, bool)
    if not number or not math.isfinite(score) or not 0 <= score <= BEST:
        raise Invalid("/score: not a number from 0 to 10", path="/score")
    text = " ".join((review or "").split())
    if len(text) > REVIEW_LENGTH:
        text = text[: REVIEW_LENGTH - 1] + "…"
    return Vote(voter=who, score=float(score), at=at, review=text)


def read(data: Mapping[str, Any]) -> Votes:
    """Read the stored votes; none where they cannot be read."""
    try:
        return msgspec.convert(data, Votes)
    except msgspec.ValidationError:
        return NONE


def merged(kept: Votes, *mine: Vote) -> Votes:
    """The votes with others among them: of two by the same voter the newer counts, the first if they are as old."""
    by_voter = {each.voter: each for each in kept.votes}
    for each in mine:
        known = by_voter.get(each.voter)
        if known is None or known.at < each.at:
            by_voter[each.voter] = each
    votes = sorted(by_voter.values(), key=lambda each: (each.at, each.voter))
    over = votes[: max(0, len(votes) - MOST_VOTES)]
    return Votes(
        owner=kept.owner,
        votes=tuple(votes[len(over) :]),
        count=kept.count + len(over),
        total=kept.total + sum(each.score for each in over),
    )


def lacks(kept: Votes, mine: Vote) -> bool:
    """Whether a vote has not come in, or not stayed."""
    known = next((each for each in kept.votes if each.voter == mine.voter), None)
    if known is not None:
        return known.at < mine.at
    return len(kept.votes) < MOST_VOTES or mine.at >= kept.votes[0].at


def measured(claim: Any, votes: Votes) -> float | None:
    """The mean, where it counts: there are enough votes, or nothing was claimed."""
    return votes.mean if votes.number >= ENOUGH or score_of(claim) is None else None


def shown(claim: Any, votes: Votes) -> JsonObject | None:
    """An agent's `evaluation` for all to see; `claim` is its own. None where there is neither."""
    said: JsonObject = dict(claim) if isinstance(claim, dict) else {}
    if isinstance(reviews := said.get("reviews"), list):
        said["reviews"] = [str(each)[:REVIEW_LENGTH] for each in reviews[:MOST_REVIEWS]]
    if not votes.number:
        return said or None
    if (mean := measured(claim, votes)) is not None:
        said = {"qualityScore": mean, "evaluationCount": votes.number, "lastEvaluated": time_of(votes.last)}
    reviews = [*votes.reviews, *said.get("reviews", ())][:MOST_REVIEWS]
    return {**said, "reviews": reviews} if reviews else said


def score_of(evaluation: Any) -> float | None:
    """`qualityScore`, where it is one."""
    score = evaluation.get("qualityScore") if isinstance(evaluation, dict) else None
    return float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None
