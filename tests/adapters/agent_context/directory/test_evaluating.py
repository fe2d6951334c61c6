"""agentEvaluate: who may vote, what counts, what is shown; and agentSearch, which goes by it."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.agent_context.directory.evaluation import MOST_VOTES, Vote, Votes, lacks, merged
from adapters.agent_context.security import ClientPrincipal
from gateway.core.errors import Denied, NotFound
from tests.adapters.agent_context.directory.rig import ANNA, ANYBODY, BERT, House, house, record, session


def somebody(number: int) -> Any:
    return ClientPrincipal(f"somebody-{number}")


async def test_votes_are_averaged_and_replace_the_agents_own_claim_from_the_third_on() -> None:
    async with house() as it:
        claim = {"qualityScore": 9.9, "evaluationCount": 5000, "reviews": ["I am great"]}
        await it.register(evaluation=claim)
        assert (await it.directory.entry("it"))["evaluation"] == claim
        shown = [await it.directory.evaluate("it", score, somebody(score)) for score in (2, 3, 5)]
        assert [one["qualityScore"] for one in shown] == [9.9, 9.9, 3.33]
        assert shown[-1]["evaluationCount"] == 3 and "reviews" not in shown[-1]
        assert (await it.directory.candidate("it")).rated == 3.33
        assert (await it.directory.entry("it"))["evaluation"] == shown[-1]


async def test_a_principal_has_one_vote_for_each_task_and_a_new_one_replaces_it() -> None:
    async with house() as it:
        await it.register()
        await it.directory.evaluate("it", 0, BERT, "t1", "bad")
        await it.directory.evaluate("it", 6, BERT, "t1", "it was my fault")
        await it.directory.evaluate("it", 10, BERT, "t2")
        found = await it.directory.evaluate("it", 8, BERT)
        assert (found["qualityScore"], found["evaluationCount"]) == (8, 3)
        assert found["reviews"] == ["it was my fault"]


async def test_nobody_evaluates_its_own_agent_nor_one_that_is_not_there() -> None:
    async with house() as it:
        await it.register("annas")
        at = await it.register("anybodys", who=ANYBODY)
        for agent, who, where in (("annas", ANNA, session()), ("anybodys", ANYBODY, at)):
            with pytest.raises(Denied, match="by itself"):
                await it.directory.evaluate(agent, 10, who, session=where)
        with pytest.raises(NotFound):
            await it.directory.evaluate("nobody", 10, BERT)
        with pytest.raises(NotFound):
            await it.directory.evaluate("interlingua-tasks", 10, BERT)
        await it.directory.evaluate("anybodys", 10, ANYBODY, session=session())
        await it.directory.evaluate("annas", 10, ANYBODY, session=at)


async def test_agents_vote_as_themselves_where_everybody_is_the_same_principal() -> None:
    async with house() as it:
        await it.register("judged", who=ANYBODY)
        voters = [await it.register(name, who=ANYBODY) for name in ("one", "two")]
        for at in voters:
            found = await it.directory.evaluate("judged", 5, ANYBODY, session=at)
        assert found["evaluationCount"] == 2
        for _ in range(3):
            found = await it.directory.evaluate("judged", 5, ANYBODY, session=session())
        assert found["evaluationCount"] == 3


async def test_reviews_are_cut_and_only_the_newest_are_shown() -> None:
    async with house() as it:
        await it.register(evaluation={"reviews": ["claimed " + "x" * 1000] * 50})
        for number in range(12):
            it.clock.pass_(1)
            found = await it.directory.evaluate("it", 5, somebody(number), review=f"review {number}\n" + "x" * 600)
        assert len(found["reviews"]) == 10 and found["reviews"][0].startswith("review 11 xxx")
        assert all(len(one) == 500 for one in found["reviews"])


async def test_votes_do_not_pass_to_another_owner_of_the_id() -> None:
    async with house() as it:
        await it.register()
        await it.directory.evaluate("it", 10, BERT)
        await it.directory.unregister("it", ANNA)
        await it.register()
        assert (await it.directory.entry("it"))["evaluation"]["qualityScore"] == 10
        await it.directory.unregister("it", ANNA)
        await it.register(who=somebody(1))
        assert "evaluation" not in await it.directory.entry("it")


def test_votes_beyond_what_is_kept_one_by_one_still_count() -> None:
    votes = Votes()
    for number in range(MOST_VOTES + 50):
        votes = merged(votes, Vote(voter=f"v{number}", score=float(number % 11), at=float(number)))
    assert votes.number == MOST_VOTES + 50 and len(votes.votes) == MOST_VOTES
    expected = sum(number % 11 for number in range(MOST_VOTES + 50)) / (MOST_VOTES + 50)
    assert votes.mean == round(expected, 2)
    assert not lacks(votes, Vote(voter="v0", score=0.0, at=0.0)), "it counts among the older"
    assert lacks(votes, Vote(voter="new", score=0.0, at=1e6))


async def test_who_voted_is_not_written_down() -> None:
    async with house() as it:
        await it.register()
        await it.directory.evaluate("it", 5, ClientPrincipal("s3cret-name"), "s3cret-task")
        assert "s3cret" not in str(await it.engine.records.kept("agent_context"))


# --- search ----------------------------------------------------------------------------------------------------------


async def three(it: House) -> None:
    """As appendix B has them."""
    both = record()["capabilities"] | {"specializations": ["Data-Analysis", "visualization"]}
    for name, said, score, cost in (
        ("agent-123", "DataViz Pro", 8.7, 0.0008),
        ("agent-456", "AnalyticsEngine", 9.1, 0.00095),
        ("agent-789", "StatisticsHelper", 7.9, 0.0005),
    ):
        costs, scores = {"costPerToken": cost}, {"qualityScore": score}
        await it.register(name, name=said, capabilities=both, evaluation=scores, costMetrics=costs)


async def test_a_search_finds_what_matches_in_the_words_of_appendix_b_the_best_first() -> None:
    async with house() as it:
        await three(it)
        await it.register("cheap", evaluation={"qualityScore": 10}, costMetrics={"costPerToken": 0})
        found = await it.directory.search(["data-analysis", "visualization"], 7.5, 0.001)
        assert found == [
            {"id": "agent-456", "name": "AnalyticsEngine", "qualityScore": 9.1, "costPerToken": 0.00095},
            {"id": "agent-123", "name": "DataViz Pro", "qualityScore": 8.7, "costPerToken": 0.0008},
            {"id": "agent-789", "name": "StatisticsHelper", "qualityScore": 7.9, "costPerToken": 0.0005},
        ]
        assert [one["id"] for one in await it.directory.search(["visualization"], 8.7)] == ["agent-456", "agent-123"]
        assert [one["id"] for one in await it.directory.search(max_cost=0.0005)] == ["cheap", "agent-789"]


async def test_only_agents_that_are_there_are_found() -> None:
    async with house() as it:
        for name in ("active", "busy", "revoked", "offline", "inactive"):
            at = await it.register(name)
            if name in ("busy", "inactive"):
                await it.directory.heartbeat(name, name, ANNA, at)
            if name == "offline":
                it.hang_up(at)
        await it.directory.revoking.revoke("revoked")
        assert [one["id"] for one in await it.directory.search(["hammer"])] == ["active", "busy"]
