"""Finding the adapters, and one clear line for each folder that is broken."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.registry import BrokenAdapter, scan

GOOD = "from gateway.contract import Adapter\nADAPTER = Adapter(name={name!r}, title='T', call=lambda target: None)\n"

Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Writes a package with the given folders; returns its name."""
    package = "adapters_under_test"
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(**folders: str) -> str:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        for folder, source in folders.items():
            (tmp_path / package / folder).mkdir()
            (tmp_path / package / folder / "__init__.py").write_text(source)
        return package

    yield write
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


def test_every_folder_is_an_adapter_by_its_name(make: Make) -> None:
    found = scan(make(two=GOOD.format(name="two"), one=GOOD.format(name="one")))
    assert list(found) == ["one", "two"]
    assert found["one"].title == "T"


def test_a_folder_that_begins_with_an_underscore_is_none(make: Make) -> None:
    assert scan(make(_shared="raise RuntimeError", one=GOOD.format(name="one"))).keys() == {"one"}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("", "bad/__init__.py: exports no ADAPTER"),
        ("ADAPTER = 3", "bad/__init__.py: ADAPTER is a int, not an Adapter"),
        ("import nowhere_at_all", "bad: cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("1 / 0", "bad: cannot be imported: ZeroDivisionError: division by zero"),
        ("def broken(", "bad: cannot be imported: SyntaxError: '(' was never closed"),
        (GOOD.format(name="other"), "bad/__init__.py: ADAPTER.name is 'other'; it must be the folder's name, 'bad'"),
        (GOOD.format(name="bad").replace(", call=lambda target: None", ""), "bad/__init__.py: ADAPTER has neither"),
        (
            GOOD.format(name="bad").replace("call=", "target_options=int, call="),
            "bad/__init__.py: ADAPTER.target_options is not a subclass of TargetOptions",
        ),
    ],
)
def test_a_broken_folder_is_one_clear_error(make: Make, source: str, told: str) -> None:
    with pytest.raises(BrokenAdapter) as raised:
        scan(make(bad=source, good=GOOD.format(name="good")))
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"adapters_under_test/{told}")


def test_two_broken_folders_are_two_lines(make: Make) -> None:
    with pytest.raises(BrokenAdapter) as raised:
        scan(make(bad="1 / 0", worse=""))
    assert [line.split(":")[0] for line in str(raised.value).splitlines()] == [
        "adapters_under_test/bad",
        "adapters_under_test/worse/__init__.py",
    ]


def test_an_adapter_cannot_take_the_command_lines_name(make: Make) -> None:
    with pytest.raises(BrokenAdapter, match="command line"):
        scan(make(cli=GOOD.format(name="cli")))


def test_a_package_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(BrokenAdapter, match="no_such_package: cannot be imported"):
        scan("no_such_package")


def test_the_adapters_of_this_house_are_found_by_their_folders() -> None:
    folders = {path.parent.name for path in (Path(__file__).parent.parent / "adapters").glob("*/__init__.py")}
    assert scan().keys() == folders
