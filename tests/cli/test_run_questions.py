"""`run` without a terminal, of agents that ask, plan and make files."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from gateway.cli.run import OutputFolder
from tests.cli.conftest import interlingua, statuses
from tests.support import aio
from tests.support.curl import curl
from tests.support.processes import ROOT, Gateway

EXAMPLES = ROOT / "examples" / "agents"
TABLE = f"""
routes:
  - name: gardener
    target: {{protocol: agent_client, command: ["{sys.executable}", "{EXAMPLES}/gardener.py"]}}
  - name: library
    target: {{protocol: agent_communication, command: ["{sys.executable}", "{EXAMPLES}/librarian.py"], agents: "*"}}
"""


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(TABLE, tmp_path_factory.mktemp("garden")) as running:
        yield running


@pytest.fixture(params=["routes", "gateway"])
def there(request: pytest.FixtureRequest, garden: Gateway) -> list[str]:
    """The two ways to reach those agents."""
    return ["--gateway", garden.url] if request.param == "gateway" else ["--routes", str(garden.file)]


def test_a_permission_is_asked_for_in_words_with_its_choices(there: list[str]) -> None:
    done = interlingua("run", "gardener", "a rose", *there)
    assert done.returncode == 3
    assert "question: The agent asks for permission: Plant a rose\n" in done.stderr
    assert "choices: plant (Plant it), leave (Leave it)\n" in done.stderr
    assert "toolCall" not in done.stderr


def test_what_follows_an_answer_is_told_like_what_came_before(there: list[str]) -> None:
    done = interlingua("run", "gardener", "a rose", *there, "--answer", "plant")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "plan: [ ] Choose a place [ ] Dig [ ] Water",
        "tool: Plant a rose",
        "plan: [x] Choose a place [x] Dig [x] Water",
    ]


def test_a_document_that_is_no_text_is_printed_once_it_is_whole(there: list[str]) -> None:
    done = interlingua("run", "counter", "four words or five", *there)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"words": 4}


def test_a_run_that_waits_at_the_gateway_is_named_with_the_way_to_answer_it(garden: Gateway) -> None:
    done = interlingua("run", "gardener", "a rose", "--gateway", garden.url)
    assert done.returncode == 3
    line = next(line for line in done.stderr.splitlines() if "waits for the answer" in line)
    told = curl(line[line.index("curl ") :].replace("ANSWER", "plant"))
    assert told.status_code == 200, told.text
    assert "It grows." in curl(f"curl -s {told.url}/wait").text


def test_a_run_of_ones_own_that_nobody_can_answer_is_cancelled(gateway: Gateway, tmp_path: Path) -> None:
    far = f"{{protocol: agent_connect, url: '{gateway.url}/agent-connect', agent: mailcomposer}}"
    (tmp_path / "far.yaml").write_text(f"routes: [{{name: far, target: {far}}}]")
    prompt = "please send it, if there is anybody"
    done = interlingua("run", "far", prompt, "--routes", str(tmp_path / "far.yaml"))
    assert done.returncode == 3
    assert "the run is cancelled: it was kept nowhere else\n" in done.stderr
    gateway.process.wait_until(lambda: statuses(gateway.url, prompt) == ["error"], "told of the cancel")


def test_files_are_kept_where_it_is_said_and_replace_none(where: list[str], tmp_path: Path) -> None:
    kept = tmp_path / "new" / "folder"
    for name in ("report.md", "report-2.md"):
        done = interlingua("run", "reporter", "cats", *where, "--files", str(kept))
        assert done.returncode == 0
        assert f"file: {kept / name} (" in done.stderr
    assert (kept / "report.md").read_text().startswith("# cats\n")
    assert (kept / "report.md").read_bytes() == (kept / "report-2.md").read_bytes()


def test_a_file_says_where_it_can_be_had(where: list[str]) -> None:
    done = interlingua("run", "reporter", "cats", *where)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("file: ")]
    if where[0] == "--routes":
        assert line.endswith("--files DIR keeps it")
    else:
        assert httpx2.get(line.split()[-1], trust_env=False).text.startswith("# cats\n")


def test_files_that_cannot_be_kept_are_a_failure(table: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = interlingua("run", "reporter", "cats", "--routes", str(table), "--files", str(tmp_path / "taken"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"--files: {tmp_path / 'taken'}: ")
    gone = interlingua("run", "reporter", "cats", "--routes", str(table), "--files", "/proc")
    assert gone.returncode == 1
    assert "could not be kept" in gone.stderr and "Traceback" not in gone.stderr
    assert gone.stdout.endswith("Wrote report.md about cats.\n")


@pytest.mark.parametrize(
    ("name", "kept"),
    [("../../up", "up"), ("/etc/passwd", "passwd"), ("a\\..\\b", "b"), ("..", "file"), ("", "file"), ("a\0b", "ab")],
)
def test_no_name_of_a_file_leads_out_of_the_folder(name: str, kept: str, tmp_path: Path) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    path = aio.run(OutputFolder(tmp_path / "here").keep(name, content()))
    assert path == tmp_path / "here" / kept
    assert path.read_bytes() == b"ab"


def test_the_log_names_a_started_agent_by_its_route(garden: Gateway) -> None:
    def ready(name: str) -> bool:
        return any(f"{name} is ready after" in line for line in garden.process.stderr().splitlines())

    garden.process.wait_until(lambda: ready("library"), "told of the library")
    interlingua("run", "gardener", "a rose", "--gateway", garden.url, "--answer", "leave")
    garden.process.wait_until(lambda: ready("gardener"), "told of the gardener")
    assert not ready(Path(sys.executable).name)
