"""How much of the house a reader has to hold in mind, counted from the source. Every limit may only fall.

A limit that is not yet 0 is what is left of an earlier layout. Lower it in the change that lowers the count.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.test_architecture import Source, sources

__all__ = ["sources"]

LINES = 94586
FILES = 432
IN_CIRCLES = 0
SMALL_WITH_ONE_IMPORTER = 0
FOREIGN_ATTRIBUTES = 10
NAMES_USED_TWICE = 0
IMPORTED_BY_AGENT_CLIENT = 105
SMALL = 80
"""Lines up to which a module that one other imports belongs into that one."""


class Graph:
    """Which file imports which, by module name; imports for type checking count."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources = {source.module: source for source in sources}
        self.imports = {source.module: set(self._imported(source)) - {source.module} for source in sources}

    def _imported(self, source: Source) -> Iterator[str]:
        """The files that define what is imported: of `from a import b` that is a.b where it is a module, else a."""
        for node in source.nodes(ast.Import, ast.ImportFrom):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                assert isinstance(node, ast.ImportFrom)
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                parts = name.split(".")
                prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
                yield from [prefix for prefix in prefixes if prefix in self.sources][:1]

    def circles(self) -> list[set[str]]:
        """The sets of files that import one another in a circle."""
        reached = {module: self._reached(module) for module in self.imports}
        circles: list[set[str]] = []
        for module, others in reached.items():
            if module in others and not any(module in circle for circle in circles):
                circles.append({other for other in others if module in reached[other]})
        return circles

    def _reached(self, module: str) -> set[str]:
        reached: set[str] = set()
        ahead = list(self.imports[module])
        while ahead:
            if (name := ahead.pop()) not in reached:
                reached.add(name)
                ahead += self.imports[name]
        return reached


@pytest.fixture(scope="module")
def graph(sources: list[Source]) -> Graph:
    return Graph(sources)


def within(limit: int, found: int, where: object = "") -> None:
    assert found <= limit, f"{found}, where {limit} is the limit: {where}"


def test_the_size_of_it(sources: list[Source]) -> None:
    within(LINES, sum(len(source.text.splitlines()) for source in sources))
    within(FILES, len(sources))


def test_files_that_import_one_another(graph: Graph) -> None:
    circles = graph.circles()
    within(IN_CIRCLES, sum(map(len, circles)), [sorted(circle) for circle in circles])


def test_small_modules_with_one_importer(graph: Graph) -> None:
    importers = Counter(name for imports in graph.imports.values() for name in imports)
    small = [
        str(source.path)
        for module, source in graph.sources.items()
        if importers[module] == 1 and source.path.name != "__init__.py" and len(source.text.splitlines()) <= SMALL
    ]
    within(SMALL_WITH_ONE_IMPORTER, len(small), small)


def test_attributes_of_others_that_are_assigned(sources: list[Source]) -> None:
    found: Counter[str] = Counter()
    for source in sources:
        for node in source.nodes(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            found[str(source.path)] += isinstance(node.ctx, ast.Store) and not own
    within(FOREIGN_ATTRIBUTES, found.total(), found.most_common(20))


def test_names_of_classes_that_are_used_twice(sources: list[Source]) -> None:
    where: defaultdict[str, list[Path]] = defaultdict(list)
    for source in sources:
        for node in source.nodes(ast.ClassDef):
            assert isinstance(node, ast.ClassDef)
            if not node.name.startswith("_"):
                where[node.name].append(source.path)
    twice: Mapping[str, list[str]] = {name: list(map(str, paths)) for name, paths in where.items() if len(paths) > 1}
    within(NAMES_USED_TWICE, len(twice), twice)


def test_what_the_largest_adapter_takes_from_the_gateway(sources: list[Source]) -> None:
    names = {
        f"{node.module}.{alias.name}"
        for source in sources
        if source.below("adapters.agent_client")
        for node in source.nodes(ast.ImportFrom)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gateway.")
        for alias in node.names
    }
    within(IMPORTED_BY_AGENT_CLIENT, len(names))
