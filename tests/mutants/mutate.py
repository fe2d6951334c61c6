"""The mutants of a Python file: the file with one small change each."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SWAPPED: Final = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
NEGATED: Final = (ast.Name, ast.Attribute, ast.Call, ast.Await, ast.Subscript, ast.NamedExpr)
"""Kinds of conditions that no other mutation changes."""
SMALL: Final = 10
"""Numbers below it count something; the others are limits and seconds, which one more hardly changes."""
SMALLEST: Final = 3
"""Entries of a table that is tried without one of them. Fewer are a pair, or the options of a type."""


DESCRIBING: Final = ("annotation", "returns", "decorator_list", "cause", "type_params")
"""Fields of nodes that no test can notice."""


@dataclass(frozen=True)
class Mutant:
    """One change.

    file: relative to the repository's root. line: where it is, from 1.
    function: name and first line of the outermost function that it is in; None for code that runs on import.
    lines: those whose execution reaches it; for code that runs on import the lines of its definition.
    old, new: the changed lines without indentation. text: the whole changed file.
    """

    file: str
    line: int
    lines: frozenset[int]
    function: tuple[str, int] | None
    old: str
    new: str
    text: str

    @property
    def key(self) -> str:
        """The change as mutants.toml has it. It stays the same when lines are added elsewhere."""
        return f"{f'{self.function[0]}: ' if self.function else ''}{self.old}  =>  {self.new}"


def mutants(root: Path, file: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    text = (root / file).read_text(encoding="utf-8")
    found = _Finder(file, text)
    found.block(ast.parse(text))
    return sorted(found.found, key=lambda each: each.line)


class _Finder:
    def __init__(self, file: str, text: str) -> None:
        self.found: list[Mutant] = []
        self._file = file
        self._data = text.encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._function: tuple[str, int] | None = None
        self._statement = 0
        self._definition = range(1, len(self._starts))
        self._idle: set[ast.AST] = set()

    def block(self, node: ast.AST) -> None:
        """All below a node. What only describes is left out: annotations, decorators, asserts (also those that are
        raised), texts that are put together or logged, the cause of a `raise`, how a class is collected, `__all__`."""
        for name, value in ast.iter_fields(node):
            if name in DESCRIBING:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self._visit(child)

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assert) or node in self._idle or _describes(node):
            return
        self._idle |= _idle(node)
        if isinstance(node, ast.stmt):
            self._statement = node.lineno
        if self._function is None and isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            outer, self._definition = self._definition, range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if isinstance(node, ast.ClassDef):
                self.block(node)
            else:
                self.block(node.args)
                self._function = (node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)]))
                for child in node.body:
                    self._visit(child)
                self._function = None
            self._definition = outer
            return
        for start, end, new in self._changes(node):
            self._add(start, end, new)
        self.block(node)

    def _changes(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        """(first byte, the byte after the last, what stands there instead)."""
        match node:
            case ast.Compare(left=left, ops=ops, comparators=rights):
                self._idle |= {right for right in rights if _is_none(right)}
                for op, before, after in zip(ops, [left, *rights], rights, strict=False):
                    yield from self._between(before, after, op)
            case ast.BoolOp(op=op, values=values):
                for before, after in itertools.pairwise(values):
                    yield from self._between(before, after, op)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield (*self._span(node), self._text(*self._span(operand)))
            case ast.Constant(value=bool() as value):
                yield (*self._span(node), str(not value))
            case ast.Constant(value=None):
                yield (*self._span(node), "True")
            case ast.Constant(value=int() as value) if value < SMALL:
                yield (*self._span(node), repr(value + 1))
            case ast.List(elts=elements) | ast.Set(elts=elements) | ast.Tuple(elts=elements, ctx=ast.Load()):
                if self._function is None and len(elements) >= SMALLEST:
                    yield from self._without([self._span(each) for each in elements])
            case ast.Dict(keys=keys, values=values):
                if self._function is None and None not in keys:
                    pairs = zip(keys, values, strict=True)
                    yield from self._without(
                        [(self._span(key)[0], self._span(value)[1]) for key, value in pairs if key]
                    )
            case ast.Return(value=None) | ast.Raise() | ast.Expr(value=ast.Call() | ast.Await()):
                yield (*self._span(node), "pass")
            case ast.Return(value=ast.Constant(value=False)):
                pass  # None is as good, and True is tried
            case ast.Return(value=value) if value is not None and not _is_none(value):
                yield (*self._span(node), "return None")
        tests = [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp) else []
        for test in [*tests, *(node.ifs if isinstance(node, ast.comprehension) else [])]:
            if isinstance(test, NEGATED) and not (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"):
                start, end = self._span(test)
                condition = self._text(start, end)
                yield start, end, f"not ({condition})" if isinstance(test, ast.NamedExpr) else f"not {condition}"

    @staticmethod
    def _without(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
        """A table of the module without one of its entries."""
        for n, (start, end) in enumerate(spans):
            yield (start, spans[n + 1][0], "") if n + 1 < len(spans) else (spans[n - 1][1] if n else start, end, "")

    def _between(self, before: ast.expr, after: ast.expr, op: ast.AST) -> Iterator[tuple[int, int, str]]:
        start, end = self._span(before)[1], self._span(after)[0]
        old, new = SWAPPED[type(op)]
        gap = self._text(start, end)
        yield start, end, gap.replace(old, new, 1)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt) and node.end_lineno and node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, start: int, end: int) -> str:
        return self._data[start:end].decode()

    def _add(self, start: int, end: int, new: str) -> None:
        data = self._data[:start] + new.encode() + self._data[end:]
        text = data.decode()
        try:
            compile(text, self._file, "exec", dont_inherit=True)
        except SyntaxError:
            return
        line = self._data[:start].count(b"\n") + 1
        last = self._data[:end].count(b"\n") + 1
        first, beyond = self._starts[line - 1], self._starts[last]
        old = " ".join(self._text(first, beyond).split())
        changed = " ".join(data[first : beyond + len(data) - len(self._data)].decode().split())
        reached = frozenset(self._definition if self._function is None else [self._statement, *range(line, last + 1)])
        self.found.append(Mutant(self._file, line, reached, self._function, old, changed, text))


def _idle(node: ast.AST) -> set[ast.AST]:
    """What no test can notice of a node's parts: the `None` of a type, the default of a `pop` whose result is not used,
    and how soon a `zip` finds a defect."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="pop"), args=[_, default])):
            return {default}
        case ast.Subscript(slice=part):
            return {each for each in ast.walk(part) if _is_none(each)}
        case ast.Call(func=ast.Name(id="zip"), keywords=keywords):
            return set(keywords)
    return set()


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _describes(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "logger" | "warnings")))):
            return True
        case ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.keyword(arg="gc" | "frozen" | "kw_only"):
            return True
    return False
