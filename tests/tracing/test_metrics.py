"""The text of /metrics."""

from __future__ import annotations

import re
import time

import pytest
from msgspec.structs import replace

from gateway import tracing
from gateway.core.events import UsageReported
from gateway.core.types import Agent, Interrupt, Run, RunRequest, RunStatus
from gateway.tracing import metrics

AGENT = Agent(name="mail", input_schema={}, output_schema={})
LINE = re.compile(r'^[a-z_]+(\{[a-z_]+="([^"\\\n]|\\["\\n])*"(,[a-z_]+="([^"\\\n]|\\["\\n])*")*\})? [0-9.e+-]+$')


def everybody(agent: str) -> bool:
    return True


def a_run() -> Run:
    request = RunRequest(agent="mail", input={}, protocol="door")
    return Run(id="r", request=request, created_at=time.time(), updated_at=time.time())


def test_a_run_is_counted_when_it_starts_while_it_lasts_and_when_it_ends() -> None:
    with tracing.run_span(a_run(), AGENT) as span:
        assert metrics.runs_started.value("mail", "door") == 1
        assert metrics.runs_active.value("mail", "door") == 1
        span.record_interrupt(Interrupt(id="q", kind="approve"))
        span.record_loss("thought", 2)
        span.finish(RunStatus.SUCCESS, usage=UsageReported(input_tokens=3, output_tokens=4))
    assert metrics.runs_active.value("mail", "door") == 0
    text = metrics.render(everybody)
    assert 'interlingua_runs_ended_total{agent="mail",protocol="door",status="success"} 1\n' in text
    assert 'interlingua_losses_total{agent="mail",protocol="door",what="thought"} 2\n' in text
    assert 'interlingua_interrupts_total{agent="mail",kind="approve"} 1\n' in text
    assert 'interlingua_tokens_total{agent="mail",direction="output"} 4\n' in text
    assert 'interlingua_run_duration_seconds_count{agent="mail",status="success"} 1\n' in text


def test_a_family_that_was_cleared_counts_from_nothing() -> None:
    metrics.run_seconds.observe(2.0, "mail", "success")
    metrics.run_seconds.clear()
    metrics.run_seconds.observe(0.5, "mail", "success")
    text = metrics.render(everybody)
    assert 'interlingua_run_duration_seconds_count{agent="mail",status="success"} 1\n' in text
    assert 'interlingua_run_duration_seconds_sum{agent="mail",status="success"} 0.5\n' in text


def test_a_run_found_again_is_active_but_did_not_start_twice() -> None:
    with tracing.run_span(a_run(), AGENT, resumed=True):
        assert metrics.runs_started.value("mail", "door") == 0
        assert metrics.runs_active.value("mail", "door") == 1


def test_every_line_is_a_comment_or_a_sample_and_every_family_is_announced() -> None:
    metrics.watchers.set(3, 'a"b\\c\nd')
    metrics.events.add(1.5, "mail")
    metrics.run_seconds.observe(0.2, "mail", "success")
    text = metrics.render(everybody)
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("# HELP interlingua_", "# TYPE interlingua_")) or LINE.match(line), line
    assert 'interlingua_watchers{protocol="a\\"b\\\\c\\nd"} 3' in text
    assert "# TYPE interlingua_runs_started_total counter" in text


def test_a_histogram_is_cumulative() -> None:
    for seconds in (0.05, 0.2, 7.0, 9999.0):
        metrics.run_seconds.observe(seconds, "mail", "success")
    text = metrics.render(everybody)
    found = re.findall(r'run_duration_seconds_bucket\{.*le="(.*)"\} (\d+)', text)
    assert found[0] == ("0.05", "1")
    assert dict(found)["0.25"] == "2"
    assert dict(found)["10"] == "3"
    assert found[-1] == ("+Inf", "4")


def test_agents_beyond_many_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics._agents, "most", 2)
    labels = [metrics.agent(name) for name in ("a", "b", "c", "a", "d")]
    assert labels == ["a", "b", metrics.OTHERS, "a", metrics.OTHERS]


def test_kinds_of_questions_beyond_many_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics._kinds, "most", 2)
    with tracing.run_span(a_run(), AGENT) as span:
        for kind in ("a", "b", "c", "a", "d"):
            span.record_interrupt(Interrupt(id="q", kind=kind))
    assert [metrics.interrupts.value("mail", kind) for kind in ("a", "b", metrics.OTHERS)] == [2, 1, 2]


def test_what_an_agent_that_is_not_named_asks_is_not_said_either() -> None:
    for agent in ("mail", "code"):
        metrics.interrupts.add(1, agent, f"approve {agent}")
    text = metrics.render(lambda agent: agent == "mail")
    assert 'interlingua_interrupts_total{agent="mail",kind="approve mail"} 1\n' in text
    assert 'interlingua_interrupts_total{agent="(others)",kind="(others)"} 1\n' in text and "code" not in text


def test_agents_that_are_not_named_are_counted_together() -> None:
    for name, seconds in (("mail", 0.05), ("code", 0.2), ("shop", 0.2)):
        metrics.runs_started.add(2, name, "door")
        metrics.run_seconds.observe(seconds, name, "success")
    metrics.watchers.set(3, "door")
    text = metrics.render(lambda agent: agent == "mail")
    assert 'interlingua_runs_started_total{agent="mail",protocol="door"} 2\n' in text
    assert 'interlingua_runs_started_total{agent="(others)",protocol="door"} 4\n' in text
    assert 'interlingua_run_duration_seconds_bucket{agent="(others)",status="success",le="0.1"} 0\n' in text
    assert 'interlingua_run_duration_seconds_bucket{agent="(others)",status="success",le="0.25"} 2\n' in text
    assert 'interlingua_run_duration_seconds_sum{agent="(others)",status="success"} 0.4\n' in text
    assert 'interlingua_run_duration_seconds_count{agent="mail",status="success"} 1\n' in text
    assert 'interlingua_watchers{protocol="door"} 3\n' in text
    assert "code" not in text and "shop" not in text


def test_nobody_who_may_know_of_no_agent_reads_a_name_but_is_told_why() -> None:
    metrics.runs_started.add(1, "mail", "door")
    text = metrics.render(None)
    assert text.startswith("# Agents are not named here")
    assert 'interlingua_runs_started_total{agent="(others)",protocol="door"} 1\n' in text and "mail" not in text


def test_what_several_processes_count_is_summed_and_states_are_the_worst_of_them() -> None:
    processes = []
    for state, current, count in ((0.0, 1.0, 2), (2.0, 0.0, 3)):
        metrics.clear()
        metrics.events.add(count, "mail")
        metrics.watchers.set(count, "door")
        metrics.target_state.set(state, "mail", "http://one")
        metrics.routes_current.set(current)
        metrics.run_seconds.observe(count, "mail", "success")
        processes.append([metric.sent() for metric in metrics.families])
    metrics.clear()
    text = metrics.render(everybody, metrics.merged(processes), ["Read this."])
    assert text.startswith("# Read this.\n# HELP interlingua_runs_started_total")
    assert 'interlingua_events_total{agent="mail"} 5\n' in text
    assert 'interlingua_watchers{protocol="door"} 5\n' in text
    assert 'interlingua_target_state{agent="mail",target="http://one"} 2\n' in text
    assert "\ninterlingua_routes_current 0\n" in text
    assert 'interlingua_run_duration_seconds_count{agent="mail",status="success"} 2\n' in text
    assert 'interlingua_run_duration_seconds_sum{agent="mail",status="success"} 5\n' in text
    assert 'interlingua_run_duration_seconds_bucket{agent="mail",status="success",le="2.5"} 1\n' in text


def test_a_metric_that_another_version_has_otherwise_counts_as_the_first_has_it() -> None:
    metrics.run_seconds.observe(2, "mail", "success")
    new = metrics.run_seconds.sent()
    old = replace(new, bounds=(1.0,), counts=[(("mail", "success"), [0, 1])])
    (found,) = metrics.merged([[new], [old]])
    assert isinstance(found, metrics.Histogram)
    assert found.bounds == metrics.run_seconds.bounds and found.counts == metrics.run_seconds.counts
    (other,) = metrics.merged([[replace(new, labels=("agent",))], [new]])
    assert other.labels == ("agent",) and list(other.values) == [("mail", "success")]
