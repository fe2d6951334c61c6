"""Who may import whom, read from the source (see the README's picture of the house)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted([*(ROOT / "gateway").rglob("*.py"), *(ROOT / "adapters").rglob("*.py")])
ADAPTERS = sorted(p.parent.name for p in (ROOT / "adapters").glob("*/__init__.py"))
INSIDE_ADAPTERS = ("gateway.core", "gateway.wire", "gateway.transport", "gateway.mcp", "gateway.adapter")
MAX_LINES = 400


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in the file it does; `from a import b` counts as a and a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _below(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def _in_house(path: Path) -> list[str]:
    return [name for name in _imports(path) if _below(name, "gateway", "adapters")]


CASES = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in FILES]


@pytest.mark.parametrize("path", CASES)
def test_a_file_imports_only_what_its_room_may(path: Path) -> None:
    here = _module(path)
    if _below(here, "gateway.core"):
        allowed = ("gateway.core",)
        foreign = {name.split(".")[0] for name in _imports(path)} - set(sys.stdlib_module_names)
        assert foreign <= {"gateway", "msgspec"}, f"core imports {foreign}"
    elif _below(here, "gateway.wire"):
        allowed = ("gateway.wire", "gateway.core.errors")
        assert not [n for n in _in_house(path) if _below(n, "gateway.core") and not _below(n, *allowed, "gateway.core")]
        wrong = [n for n in _in_house(path) if n != "gateway.core" and not _below(n, *allowed)]
        assert not wrong, f"wire imports {wrong}"
        return
    elif _below(here, "gateway.governance"):
        rooms = {"gateway.governance.audit": ("gateway.store",), "gateway.governance.enforcing": ("gateway.adapter",)}
        more = next((rooms[room] for room in rooms if _below(here, room)), ())
        allowed = ("gateway.governance", "gateway.core", "gateway.document", *more)
        if not _below(here, "gateway.governance.enforcing"):
            assert not [n for n in _in_house(path) if _below(n, "gateway.governance.enforcing")], (
                "what decides enforces"
            )
    elif _below(here, "adapters") and here != "adapters":
        own = ".".join(here.split(".")[:2])
        allowed = (own, *INSIDE_ADAPTERS)
        wrong = [n for n in _in_house(path) if n not in ("gateway", "adapters") and not _below(n, *allowed)]
        assert not wrong, f"{here} imports {wrong}"
        return
    else:
        wrong = [n for n in _in_house(path) if _below(n, "adapters")]
        assert not wrong, f"{here} imports {wrong}: nothing in gateway names an adapter"
        return
    wrong = [n for n in _in_house(path) if n != "gateway" and not _below(n, *allowed)]
    assert not wrong, f"{here} imports {wrong}"


def test_a_gateway_without_governed_routes_does_not_load_what_governs_them() -> None:
    told = "import sys, gateway.app, gateway.cli.serve; print([n for n in sys.modules if n.startswith(sys.argv[1])])"
    argv = [sys.executable, "-c", told, "gateway.governance"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=150, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", [p for p in FILES if _below(_module(p), "gateway")])
def test_nothing_in_the_gateway_names_an_adapter(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    words = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    docs = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and n.body
        and isinstance(n.body[0], ast.Expr)
    }
    strings = {
        n.value
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in docs
    }
    named = [a for a in ADAPTERS if a != "plain" and (a in words or a in strings)]
    assert not named, f"{path.name} names {named}"


@pytest.mark.parametrize("path", [p for p in FILES if "codec" in p.name or "codec" in p.parts])
def test_a_codec_does_no_io(path: Path) -> None:
    names = set(_imports(path))
    wrong = [
        n for n in names if _below(n, "gateway.transport", "asyncio", "time", "uuid", "random", "starlette", "aiohttp")
    ]
    awaits = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Await | ast.AsyncFunctionDef)]
    assert not wrong and not awaits


@pytest.mark.parametrize("path", CASES)
def test_a_file_has_at_most_400_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", [p for p in FILES if not _below(_module(p), "gateway.transport")])
def test_only_the_transport_knows_the_http_client_library(path: Path) -> None:
    assert not [n for n in _imports(path) if _below(n, "aiohttp")]


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_folder_has_the_same_files(name: str) -> None:
    folder = ROOT / "adapters" / name
    for wanted in ("__init__.py", "README.md", "golden"):
        assert (folder / wanted).exists(), f"{folder}/{wanted}"
    for wanted in ("wire", "codec", "inbound", "outbound"):
        assert (folder / f"{wanted}.py").exists() or (folder / wanted / "__init__.py").exists(), f"{folder}/{wanted}"


def test_nothing_is_called_just_by_the_three_letters() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else []
            assert not [n for n in names if n.lower() == "acp"], path
        assert path.stem.lower() != "acp"
