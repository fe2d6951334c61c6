"""Who may import whom (docs/architecture.md, "The rooms"), read from the source, and what else holds for all files."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ADAPTERS = sorted(p.parent.name for p in (ROOT / "adapters").glob("*/__init__.py"))
MAX_LINES = 600

GOVERNED = ("gateway.core", "gateway.yaml_document", "gateway.governance", "gateway.store")
ROOMS = {
    "gateway.core": ("gateway.core",),
    "gateway.wire": ("gateway.wire", "gateway.core.errors"),
    "gateway.transport": ("gateway.transport", "gateway.core", "gateway.wire"),
    "gateway.contract": ("gateway.contract", "gateway.core", "gateway.transport.pipe"),
    "gateway.access": ("gateway.access", "gateway.contract", "gateway.core", "gateway.transport"),
    "gateway.mcp": (
        "gateway.mcp",
        "gateway.core",
        "gateway.wire",
        "gateway.transport",
        "gateway.contract",
        "gateway.access",
    ),
    "gateway.store": ("gateway.store", "gateway.core"),
    "gateway.governance.enforcing": (*GOVERNED, "gateway.contract", "gateway.access"),
    "gateway.governance": GOVERNED,
    "gateway": ("gateway",),
    **{
        f"adapters.{name}": (
            f"adapters.{name}",
            *(f"gateway.{room}" for room in ("core", "wire", "transport", "mcp", "contract", "access")),
        )
        for name in ADAPTERS
    },
    "adapters": (),
}
"""What a file may import of this repository, by the room it is in: the first that holds it."""


NAME_GOVERNANCE = {
    *(f"gateway/access/{name}.py" for name in ("authenticator", "options")),
    *(f"gateway/cli/{name}.py" for name in ("audit", "check", "commands", "run", "serve")),
    *(f"gateway/config/{name}.py" for name in ("check", "exposure", "models")),
    *(f"gateway/contract/{name}.py" for name in ("__init__", "governing")),
    "gateway/admin/api.py",
    "gateway/app.py",
}
"""Files that name governance, beside its own room and the adapter that translates its profile (AIP-44)."""
AGENT_CLIENT_NAMES_GOVERNANCE = 22


@dataclass(frozen=True)
class Source:
    """One file of the gateway or of an adapter."""

    path: Path
    module: str
    text: str
    tree: tuple[ast.AST, ...] = field(repr=False)
    """Every node of it."""
    imports: frozenset[str]
    """Modules that it imports, wherever in the file it does; `from a import b` counts as a and a.b."""

    def below(self, *packages: str) -> bool:
        return below(self.module, *packages)

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in self.tree if isinstance(node, kinds))


def below(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def imported(path: Path, tree: Iterable[ast.AST]) -> Iterator[str]:
    for node in tree:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    tree = tuple(ast.walk(ast.parse(text)))
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return Source(path.relative_to(ROOT), module, text, tree, frozenset(imported(path, tree)))


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    paths = [path for folder in ("gateway", "adapters") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 100
    gc.disable()  # CPython 3.11: what a collection has to report is parsed, too, and spoils the tree that is being made
    try:
        return [read(path) for path in paths]
    finally:
        gc.enable()


def test_a_file_imports_only_what_its_room_may(sources: list[Source]) -> None:
    for source in sources:
        allowed = next(ROOMS[room] for room in ROOMS if source.below(room))
        own = [name for name in source.imports if below(name, "gateway", "adapters")]
        wrong = [name for name in own if not below(name, *allowed) and not any(below(may, name) for may in allowed)]
        assert not wrong, f"{source.path} imports {wrong}"


def test_the_core_needs_the_standard_library_and_msgspec_alone(sources: list[Source]) -> None:
    for source in sources:
        if source.below("gateway.core"):
            foreign = {name.split(".")[0] for name in source.imports} - set(sys.stdlib_module_names)
            assert foreign <= {"gateway", "msgspec"}, f"{source.path} imports {foreign}"


def test_what_decides_does_not_enforce(sources: list[Source]) -> None:
    room = "gateway.governance.enforcing"
    for source in sources:
        if source.below("gateway.governance") and not source.below(room):
            assert not [name for name in source.imports if below(name, room)], source.path


def test_few_files_name_governance(sources: list[Source]) -> None:
    """A fault of permissions is looked for there, and in `gateway/governance`. The list and number may only fall."""
    named = [source for source in sources if "govern" in source.text.lower() and not source.below("gateway.governance")]
    adapter = [source for source in named if source.below("adapters.agent_client")]
    assert {str(source.path) for source in named if source not in adapter} == NAME_GOVERNANCE
    assert len(adapter) == AGENT_CLIENT_NAMES_GOVERNANCE, sorted(str(source.path) for source in adapter)


def test_nothing_in_the_gateway_knows_a_protocols_words_for_a_tool_call(sources: list[Source]) -> None:
    for source in sources:
        if source.below("gateway"):
            assert not [word for word in ("toolCallId", "rawOutput", "rawInput") if word in source.text], source.path


def test_a_gateway_loads_neither_what_governs_routes_nor_the_driver_of_a_database_before_it_needs_them() -> None:
    told = (
        "import sys, gateway.app, gateway.cli.serve; "
        "print([n for n in sys.modules if n.startswith(tuple(sys.argv[1:]))])"
    )
    argv = [sys.executable, "-c", told, "gateway.governance", "gateway.store.postgres", "asyncpg"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=150, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_in_the_gateway_names_an_adapter(sources: list[Source]) -> None:
    for source in sources:
        if not source.below("gateway"):
            continue
        words = {node.id for node in source.nodes(ast.Name) if isinstance(node, ast.Name)}
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docs = {
            id(node.body[0].value)
            for node in source.nodes(*documented)
            if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
        }
        strings = {
            node.value
            for node in source.nodes(ast.Constant)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
        }
        named = [name for name in ADAPTERS if name != "example" and (name in words or name in strings)]
        assert not named, f"{source.path} names {named}"


def test_a_codec_does_no_io(sources: list[Source]) -> None:
    io = ("gateway.transport", "asyncio", "time", "uuid", "random", "starlette", "httptools")
    for source in sources:
        if "codec" in source.path.name or "codec" in source.path.parts:
            assert not [name for name in source.imports if below(name, *io)], source.path
            assert not list(source.nodes(ast.Await, ast.AsyncFunctionDef)), source.path


def test_no_class_is_spread_over_files_by_inheritance(sources: list[Source]) -> None:
    """A base in another file is an interface, is made by itself, or has several subclasses."""
    classes = [
        (source, node) for source in sources for node in source.nodes(ast.ClassDef) if isinstance(node, ast.ClassDef)
    ]
    defined = {node.name: source.path for source, node in classes}
    interfaces = {node.name for _, node in classes if "Protocol" in map(_name, node.bases)}
    bases = [_name(base) for _, node in classes for base in node.bases]
    used = {
        each.id
        for source in sources
        for node in source.nodes(ast.Call, ast.Attribute, ast.IfExp)
        for each in (getattr(node, part, None) for part in ("func", "value", "body", "orelse"))
        if isinstance(each, ast.Name)
    }
    spread = [
        (node.name, base)
        for source, node in classes
        for base in map(_name, node.bases)
        if base in defined.keys() - interfaces - used and defined[base] != source.path and bases.count(base) == 1
    ]
    assert len(bases) > 300
    assert not spread


def _name(base: ast.expr) -> str:
    """Of `Base`, `module.Base` and `Base[T]` that is Base."""
    base = base.value if isinstance(base, ast.Subscript) else base
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def test_the_gateways_parts_are_small() -> None:
    tree = ast.parse((ROOT / "gateway/contract/gateway.py").read_text())
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    parts = {each.returns.id for each in _functions(classes["Gateway"]) if isinstance(each.returns, ast.Name)} & {
        *classes
    }
    assert len(parts) > 5
    for name in ("Gateway", *sorted(parts)):
        assert len(_functions(classes[name])) <= 12, name


def _functions(of: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in of.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_a_file_has_at_most_600_lines(sources: list[Source]) -> None:
    longer = {str(source.path): len(source.text.splitlines()) for source in sources}
    assert not {path: lines for path, lines in longer.items() if lines > MAX_LINES}


def test_only_the_transport_knows_the_http_client_library(sources: list[Source]) -> None:
    for source in sources:
        if not source.below("gateway.transport"):
            assert not [name for name in source.imports if below(name, "httptools", "aiohappyeyeballs")], source.path


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_folder_has_the_same_files(name: str) -> None:
    folder = ROOT / "adapters" / name
    for wanted in ("__init__.py", "README.md", "golden"):
        assert (folder / wanted).exists(), f"{folder}/{wanted}"
    for wanted in ("wire", "codec", "inbound", "outbound"):
        assert (folder / f"{wanted}.py").exists() or (folder / wanted / "__init__.py").exists(), f"{folder}/{wanted}"


def test_nothing_is_called_just_by_the_three_letters(sources: list[Source]) -> None:
    for source in sources:
        names = [source.path.stem]
        for node in source.nodes(ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
            assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            names.append(node.name)
        assert "acp" not in [name.lower() for name in names], source.path


TURNS_OF_THE_LOOP = {
    "adapters/agent_context/directory/__init__.py": "others are served while a long list is gone through",
    "adapters/agent_context/directory/replication.py": "the same",
    "gateway/agents/roster.py": "the same",
    "gateway/cli/file_changes.py": "a library's watch begins in the first turn of its task",
    "gateway/mcp/client/http/streamable.py": "what comes on two streams has no order but that of the network; "
    "and a task that was started is to have begun before more is read",
}
"""Files outside of `transport` that let the loop turn, and why: order is a number everywhere else."""


def test_order_is_not_kept_by_turns_of_the_loop(sources: list[Source]) -> None:
    turning = {
        str(source.path)
        for source in sources
        for node in source.nodes(ast.Call)
        if isinstance(node, ast.Call) and ast.unparse(node) == "asyncio.sleep(0)"
        if not source.below("gateway.transport")
    }
    assert turning == TURNS_OF_THE_LOOP.keys()
