"""Helm's SDK, Kubernetes' schemas and a parser of PromQL, for tests: a JSON array in, a JSON object out, a line each.

["render", chart, values, options]   {"files": {template: text}} or {"error": "..."}
["lint", chart, values, options]     Helm's report
["update", chart]                    {"folder": ...}: its dependencies are in charts/ now
["package", chart, folder]           {"file": ...}
["kubernetes", document, version]    {"mistakes": [...]} by the strict schemas of that version
["promql", query]                    {"series": [[metric, [label, ...]], ...], "labels": [...]} or {"error": "..."}
["versions"]                         {"helm": ..., "kubernetes": [...]}
["definitions", version]             Kubernetes' definitions
"""

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import promql_parser


def render(chart: str, values: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    try:
        with helm.Chart.load(chart) as loaded:
            return {"files": loaded.render(values, **options)}
    except helm.HelmError as error:
        return {"error": str(error)}


def lint(chart: str, values: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    return dict(helm.lint(chart, values, **options))


def update(chart: str) -> dict[str, Any]:
    helm.dependency_update(chart)
    return {"folder": chart}


def package(chart: str, folder: str) -> dict[str, Any]:
    return {"file": helm.package(chart, destination=folder)}


# It would read 2 MB for each document.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)


def kubernetes(document: dict[str, Any], version: str) -> dict[str, Any]:
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return {"mistakes": [f"{'.'.join(map(str, error.path))}: {error.message}"]}
    except kubernetes_validate.SchemaNotFoundError as error:
        return {"mistakes": [error.message]}
    return {"mistakes": []}


def promql(query: str) -> dict[str, Any]:
    """The series that a query selects, with the labels it matches, and the labels by which it joins and sums."""
    series: list[tuple[str, list[str]]] = []
    labels: set[str] = set()

    def visit(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found = [matcher.name for matcher in node.matchers.matchers]
            series.append((node.name, found))
        modifier = getattr(node, "modifier", None)
        labels.update(getattr(modifier, "group_labels", None) or ())
        labels.update(getattr(getattr(modifier, "matching", modifier), "labels", None) or ())
        return True

    try:
        promql_parser.walk(promql_parser.parse(query), visit)
    except Exception as error:
        return {"error": str(error)}
    return {"series": series, "labels": sorted(labels)}


def versions() -> dict[str, Any]:
    return {"helm": helm.helm_sdk_version(), "kubernetes": kubernetes_validate.utils.all_versions()}


def definitions(version: str) -> dict[str, Any]:
    """All definitions of a version, in their strict form."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{version}-local-strict"
    return dict(json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"])


def main() -> None:
    known: dict[str, Callable[..., dict[str, Any]]] = {
        each.__name__: each for each in (render, lint, update, package, kubernetes, promql, versions, definitions)
    }
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        try:
            answer = known[verb](*arguments)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
