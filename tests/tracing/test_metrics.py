"""The text of /metrics."""

from __future__ import annotations

import re
import time

import pytest

from gateway import tracing
from gateway.core.events import UsageReported
from gateway.core.types import Agent, Interrupt, Run, RunRequest, RunStatus
from gateway.tracing import metrics

AGENT = Agent(name="mail", input_schema={}, output_schema={})
LINE = re.compile(r'^[a-z_]+(\{[a-z_]+="([^"\\\n]|\\["\\n])*"(,[a-z_]+="([^"\\\n]|\\["\\n])*")*\})? [0-9.e+-]+$')


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
    text = metrics.render()
    assert 'interlingua_runs_ended_total{agent="mail",protocol="door",status="success"} 1\n' in text
    assert 'interlingua_losses_total{agent="mail",protocol="door",what="thought"} 2\n' in text
    assert 'interlingua_interrupts_total{agent="mail",kind="approve"} 1\n' in text
    assert 'interlingua_tokens_total{agent="mail",direction="output"} 4\n' in text
    assert 'interlingua_run_duration_seconds_count{agent="mail",status="success"} 1\n' in text


def test_a_run_found_again_is_active_but_did_not_start_twice() -> None:
    with tracing.run_span(a_run(), AGENT, resumed=True):
        assert metrics.runs_started.value("mail", "door") == 0
        assert metrics.runs_active.value("mail", "door") == 1


def test_every_line_is_a_comment_or_a_sample_and_every_family_is_announced() -> None:
    metrics.watchers.set(3, 'a"b\\c\nd')
    metrics.events.add(1.5, "mail")
    metrics.run_seconds.observe(0.2, "mail", "success")
    text = metrics.render()
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("# HELP interlingua_", "# TYPE interlingua_")) or LINE.match(line), line
    assert 'interlingua_watchers{protocol="a\\"b\\\\c\\nd"} 3' in text
    assert "# TYPE interlingua_runs_started_total counter" in text


def test_a_histogram_is_cumulative() -> None:
    for seconds in (0.05, 0.2, 7.0, 9999.0):
        metrics.run_seconds.observe(seconds, "mail", "success")
    text = metrics.render()
    found = re.findall(r'run_duration_seconds_bucket\{.*le="(.*)"\} (\d+)', text)
    assert found[0] == ("0.05", "1")
    assert dict(found)["0.25"] == "2"
    assert dict(found)["10"] == "3"
    assert found[-1] == ("+Inf", "4")


def test_agents_beyond_many_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_AGENTS", 2)
    labels = [metrics.agent(name) for name in ("a", "b", "c", "a", "d")]
    assert labels == ["a", "b", metrics.OTHERS, "a", metrics.OTHERS]
