"""The build fails on what is not documented: keys, events, errors, metrics, spans, losses, commands, links."""

from __future__ import annotations

import importlib.util
import re
import shlex
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from gateway import registry, tracing
from gateway.cli.commands import app
from gateway.config import loads
from gateway.contract import Adapter
from gateway.core import events as e
from gateway.tracing import names
from tests.e2e import test_stories

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
READMES = [*(ROOT / "adapters").glob("*/README.md"), *(ROOT / "helm").rglob("README.md")]
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md"), *READMES])
ADAPTERS = registry.scan()
EVENTS = typing.get_args(e.AnyEvent)


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = maker()


def rows(page: Path) -> dict[str, str]:
    """The rows of a page's tables by the code in their first cell."""
    found = re.findall(r"^\| `([^`]+)`([^|]*\|.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(found)


# --- what is made from the code --------------------------------------------------------------------------------------


def test_what_is_made_from_the_code_is_current() -> None:
    for page, made in MAKE.pages().items():
        assert page.read_text(encoding="utf-8") == made, "run: python docs/make.py"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("sqlite:///FILE, relative.", "sqlite:///FILE, relative."),
        ("greatest body.", "Greatest body."),
        ("null: never.", "null: never."),
    ],
)
def test_a_description_gets_a_capital_unless_it_begins_with_code(text: str, written: str) -> None:
    assert MAKE._sentence(text) == written


def test_the_example_of_the_configuration_is_one() -> None:
    config = loads(MAKE.EXAMPLE, ADAPTERS)
    called = {target.protocol for route in config.routes for target in route.places}
    assert called == {n for n, a in ADAPTERS.items() if a.call}


def keys(node: object, at: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield str(key)
            if str(key) not in ("metadata", "labels", "headers", "env"):  # what is below is the user's own
                yield from keys(value)
    elif isinstance(node, list):
        for item in node:
            yield from keys(item)


def test_every_configuration_key_has_a_row() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    headings = set(re.findall(r"^## inbound\.(\w+)$", text, re.MULTILINE))
    models = [option for a in ADAPTERS.values() for option in (a.serve_options, a.target_options)]
    wanted = set(keys(yaml.safe_load(MAKE.EXAMPLE))) | {name for model in models for name in model.model_fields}
    assert wanted - told - headings == set()
    assert headings == {name for name, adapter in ADAPTERS.items() if adapter.serve}


def test_every_error_class_and_its_code_in_each_protocol_has_a_row() -> None:
    told = rows(DOCS / "errors.md")
    assert list(told) == [cls.__name__ for cls in MAKE.classes()]
    assert all(f"`{cls.code}`" in told[cls.__name__] for cls in MAKE.classes())


def test_every_metric_has_a_row() -> None:
    told = rows(DOCS / "telemetry.md")
    exposed = re.findall(r"^# TYPE (\w+) ", tracing.metrics.render(None), re.MULTILINE)
    assert exposed and set(exposed) <= told.keys()


# --- what people wrote -----------------------------------------------------------------------------------------------


def test_every_event_has_a_row_with_its_fields() -> None:
    for event in EVENTS:
        cells = rows(DOCS / "events.md")[event.__struct_config__.tag].split("|")
        fields = [field for field in event.__struct_fields__ if field != "origin"]
        assert [field for field in fields if f"`{field}`" not in cells[1]] == [], event
        assert all(cell.strip() for cell in cells[2:-1]), f"a protocol does not say what becomes of {event}"


def test_every_protocol_has_a_column_in_the_table_of_events() -> None:
    text = (DOCS / "events.md").read_text(encoding="utf-8")
    (head,) = re.findall(r"^\| event \|.*$", text, re.MULTILINE)
    assert set(ADAPTERS) <= {cell.strip() for cell in head.split("|")}
    assert set(rows(DOCS / "events.md")) == {event.__struct_config__.tag for event in EVENTS}


def test_every_name_in_a_trace_is_documented() -> None:
    text = (DOCS / "telemetry.md").read_text(encoding="utf-8")
    assert [name for name in vars(names) if name.isupper() and f"`{getattr(names, name)}`" not in text] == []


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=lambda adapter: adapter.name)
def test_every_loss_is_in_its_adapters_readme(adapter: Adapter) -> None:
    text = (ROOT / "adapters" / adapter.name / "README.md").read_text(encoding="utf-8")
    assert [loss for loss in adapter.losses if f"`{loss}`" not in text] == []


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=lambda adapter: adapter.name)
def test_every_loss_that_an_adapter_counts_has_a_name_that_is_published(adapter: Adapter) -> None:
    folder = ROOT / "adapters" / adapter.name
    source = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    assert set(re.findall(r"\.lost\(\"(\w+)\"", source)) <= set(adapter.losses)


def test_every_loss_of_the_gateways_own_is_documented() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "gateway").rglob("*.py"))
    counted = set(re.findall(r"\.lost\(\"(\w+)\"", source))
    assert counted and counted <= rows(DOCS / "telemetry.md").keys()


# --- links and commands ----------------------------------------------------------------------------------------------


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        here = [link.partition("#")[0] for link in links if not link.startswith(("http://", "https://"))]
        assert [link for link in here if link and not (page.parent / link).exists()] == [], page


def shell_lines(page: Path) -> Iterator[list[str]]:
    """The commands of a page: lines of its shell blocks, continued lines joined, and `interlingua ...` in its text."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield shlex.split(line.removeprefix("$ "), comments=True)
    for command in re.findall(r"`(interlingua [^`]+)`", text):
        yield re.sub(r"[\[\]]", " ", command).split()


def test_every_command_is_one() -> None:
    commands = app.commands
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for words in (line for page in PAGES for line in shell_lines(page)):
        program = words[0].rpartition("/")[2] if words else ""
        if program == "make":
            assert [word for word in words[1:] if "=" not in word and word not in targets] == [], words
        elif program == "interlingua":
            assert words[1] in commands, words
            command, rest = commands[words[1]], words[2:]
            if below := getattr(command, "commands", None):  # `interlingua audit verify`; alone it stands for all
                assert not rest or rest[0] in below, words
                command, rest = (below[rest[0]], rest[1:]) if rest else (command, rest)
            options = {option for parameter in command.params for option in parameter.opts}
            assert [word for word in rest if word.startswith("--") and word not in options] == [], words


def test_every_address_is_below_a_protocols_mount() -> None:
    mounts = {adapter.path for adapter in ADAPTERS.values()}
    mounts |= {"/healthz", "/readyz", "/metrics", "/artifacts", "/admin"}
    for words in (line for page in PAGES for line in shell_lines(page)):
        for path in re.findall(r"http://127\.0\.0\.1:8080(/[\w-]+)", " ".join(words)):
            assert path in mounts, words


# --- stories ---------------------------------------------------------------------------------------------------------


def test_every_file_that_is_named_is_there() -> None:
    rooms = "adapters|bench|deploy|docs|examples|gateway|helm|tests"
    for page in PAGES:
        named = re.findall(rf"`((?:{rooms})/[\w./*-]*)`", page.read_text(encoding="utf-8"))
        assert [name for name in named if "NAME" not in name and not list(ROOT.glob(name))] == [], page


def test_every_test_that_is_named_is_there() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for file, name in set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)):
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), name


def test_the_table_of_stories_says_what_its_tests_expect() -> None:
    text = (DOCS / "conversations.md").read_text(encoding="utf-8").partition("\n## Stories\n")[2]
    head, _, *found = [line.strip("|").split("|") for line in text.split("\n\n")[1].splitlines()]
    assert len(head) == 1 + len(test_stories.KINDS)
    assert len(found) == len(test_stories.DOORS) + len(test_stories.CALLS)
    for row, cells in enumerate(found):
        for kind, cell in zip(test_stories.KINDS, cells[1:], strict=True):
            talks = row < len(test_stories.DOORS)
            lost = test_stories.LOST.get(kind, ()) if talks else ()
            expected = test_stories.EXPECTED[kind]
            told = ("remembers" if expected is test_stories.EXPECTED["editor"] else "told") if talks else "alone"
            assert cell.strip().startswith(f"`{lost[0]}`: " if lost else told), (cells[0], kind)
