"""Alerts, dashboard and autoscaling ask for metrics that a real gateway has, by labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from gateway.tracing import metrics
from tests.support.helm import CHART, helm
from tests.support.processes import ROOT, Gateway

DASHBOARD = json.loads((CHART / "dashboards" / "interlingua.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SCRAPED = {"namespace", "pod", "job", "instance"}
"""Labels that whoever scrapes a pod adds."""
VOLUME = {"namespace", "persistentvolumeclaim"}
OTHERS = {"up": SCRAPED, "available": VOLUME, "capacity": VOLUME}
"""Metrics that are not the gateway's: Prometheus' own, and a kubelet's of volumes."""
WATCHED = {"podMonitor": {"enabled": True}, "rules": {"enabled": True}, "dashboard": {"enabled": True}}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What a real gateway's page has: every metric's labels, by the names of its series."""
    with Gateway("routes: []\n", tmp_path_factory.mktemp("gateway")) as gateway:
        text = httpx2.get(f"{gateway.url}/metrics", trust_env=False).text
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    labels = {metric.name: set(metric.labels) for metric in metrics.families}
    found: dict[str, set[str]] = {}
    for name, kind in kinds.items():
        parts = {"_bucket": {"le"}, "_sum": set(), "_count": set()} if kind == "histogram" else {"": set()}
        found |= {name + part: labels[name] | more | SCRAPED for part, more in parts.items()}
    assert found
    return found


def rules(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    release = helm().render({"monitoring": WATCHED, **(values or {})})
    return [rule for group in release.one("PrometheusRule")["spec"]["groups"] for rule in group["rules"]]


def of_the_dashboard() -> Iterator[tuple[str, str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$__range", "6h")
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            yield variable["name"], f"sum by ({label}) ({series})"


def of_the_autoscaler() -> Iterator[tuple[str, str]]:
    """What prometheus-adapter asks by the example, for the metric that the chart's autoscaler is told of."""
    (rule,) = yaml.safe_load((ROOT / "helm" / "examples" / "prometheus-adapter.values.yaml").read_text())["rules"][
        "custom"
    ]
    yield "series", rule["seriesQuery"]
    query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod").replace("<<.LabelMatchers>>", 'namespace="ns"')
    yield "metrics", query
    shared = {"store": {"url": "postgresql://db/gateway"}, "autoscaling": {"enabled": True, "activeRuns": 9}}
    *_, judged = helm().render(shared).one("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert rule["seriesQuery"].startswith(judged["pods"]["metric"]["name"] + "{")


def queries() -> Iterator[tuple[str, str]]:
    yield from of_the_dashboard()
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    yield from of_the_autoscaler()


def test_every_query_asks_for_series_that_there_are(page: dict[str, set[str]]) -> None:
    asked = set()
    for where, query in queries():
        found = helm().ask("promql", query)
        assert "error" not in found, (where, query, found)
        assert found["series"], where
        known: set[str] = set()
        for name, matched in found["series"]:
            labels = page.get(name) or OTHERS[re.sub(r"kubelet_volume_stats_(\w+)_bytes", r"\1", name)]
            assert set(matched) <= labels, (where, name, matched)
            known |= labels
            asked.add(re.sub("_(bucket|sum|count)$", "", name))
        assert set(found["labels"]) <= known, (where, query)
    assert asked >= {metric.name for metric in metrics.families}, "a metric that nothing shows"


def test_a_query_for_what_there_is_not_would_be_noticed(page: dict[str, set[str]]) -> None:
    assert "interlingua_runs_endet_total" not in page
    assert "error" in helm().ask("promql", "sum by (agent) (rate(interlingua_runs_ended_total[5m])")


def test_the_dashboard_is_the_file_for_those_who_have_no_helm() -> None:
    release = helm().render({"monitoring": WATCHED})
    found = release.one("ConfigMap", "gw-interlingua-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["interlingua.json"]) == DASHBOARD
    assert (ROOT / "deploy" / "grafana" / "interlingua.json").resolve() == CHART / "dashboards" / "interlingua.json"


def test_panels_stand_side_by_side_and_have_a_title() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    for names in ([panel["title"] for panel in PANELS], [panel["id"] for panel in DASHBOARD["panels"]]):
        assert len(set(names)) == len(names)


def test_alerts_say_how_bad_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["for"] and rule["annotations"]["summary"].endswith(".") and rule["annotations"]["description"]
        assert 'namespace="ns"' in rule["expr"]
    shared = {"store": {"url": "postgresql://db/gateway"}}
    extra = {**WATCHED, "rules": {"enabled": True, "failedRuns": 0.5, "extra": [{"alert": "Mine", "expr": "up == 0"}]}}
    found = rules({**shared, "monitoring": extra})
    assert [rule["alert"] for rule in found] == [*(name for name in names if name != "InterlinguaVolumeFull"), "Mine"]
    (failing,) = [rule["expr"] for rule in found if rule["alert"] == "InterlinguaRunsFail"]
    assert "> 0.5" in failing


def test_the_chart_goes_into_an_archive_with_its_dashboard(tmp_path: Path) -> None:
    archive = helm().ask("package", str(CHART), str(tmp_path))["file"]
    release = helm().render({"monitoring": WATCHED}, Path(archive))
    assert json.loads(release.one("ConfigMap", "gw-interlingua-dashboard")["data"]["interlingua.json"]) == DASHBOARD
