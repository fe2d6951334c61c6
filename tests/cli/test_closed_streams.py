"""The program without standard input, output or error (`>&-`), as some that start others leave them, and with an output
that takes nothing, or not every character.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.processes import PROGRAM, ROOT, free_port, start, url_answers

ALL = "<&- >&- 2>&-"
HERE = {"PYTHONPATH": str(ROOT)}
TABLE = "store: {url: 'sqlite:///store.db'}\nroutes:\n  - {name: echo, target: {protocol: example, url: 'http://127.0.0.1:1'}}\n"


def without(streams: str, *arguments: str) -> list[str]:
    return ["sh", "-c", f'exec "$@" {streams}', "sh", *PROGRAM, *arguments]


@pytest.mark.parametrize(
    ("arguments", "streams", "code", "said"),
    [
        (["agents"], ">&-", 0, ""),
        (["agents"], "2>&-", 0, "echo\t0.0.0\tThe agent echo, through Interlingua.\n"),
        (["run", "echo", "hello"], ">&-", 1, "error: no connection could be made to 127.0.0.1:1: connection refused\n"),
        (["run", "echo", "hello"], ALL, 1, ""),
        (["stdio", "echo"], "<&- >&-", 0, ""),
        (["serve", "nothing.yaml"], "2>&-", 2, ""),
    ],
)
def test_a_command_works_and_what_it_says_there_goes_nowhere(
    arguments: list[str], streams: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "routes.yaml").write_text(TABLE)
    with start(without(streams, *arguments), HERE, cwd=tmp_path) as process:
        assert process.wait(120) == code
        assert process.stdout() + process.stderr() == said


@pytest.mark.parametrize("arguments", [["--help"], ["agents"], ["check"], ["schema"]])
@pytest.mark.parametrize(("streams", "said"), [("| true", ""), (">/dev/full", "No space left on device\n")])
def test_output_that_is_not_taken_is_a_failure_in_at_most_a_line(
    arguments: list[str], streams: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "routes.yaml").write_text(TABLE)
    script = f'set -o pipefail; "$@" {streams}'
    argv = ["bash", "-c", script, "bash", *PROGRAM, *arguments]
    with start(argv, {**HERE, "PYTHONUNBUFFERED": ""}, cwd=tmp_path) as process:
        assert process.wait(120) == 1
        assert process.stderr() == said


def test_a_character_that_the_output_has_not_is_written_as_its_number(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(TABLE.replace("name: echo,", "name: echo, description: Grüße,"), "utf-8")
    with start([*PROGRAM, "agents"], {**HERE, "PYTHONIOENCODING": "ascii"}, cwd=tmp_path, fresh=True) as process:
        assert process.wait(120) == 0
        assert process.stdout() == "echo\t0.0.0\tGr\\xfc\\xdfe\n"


def test_a_gateway_serves_and_none_of_its_files_is_a_stream(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(TABLE)
    port = free_port()
    argv = without(ALL, "serve", "--port", str(port))
    ready = url_answers(f"http://127.0.0.1:{port}/readyz")
    with start(argv, HERE, cwd=tmp_path, port=port, ready=ready) as process:
        streams = [Path(f"/proc/{process.pid}/fd/{number}") for number in range(3)]
        if streams[0].parent.exists():
            assert [str(stream.readlink()) for stream in streams] == ["/dev/null"] * 3
        process.signal(signal.SIGTERM)
        assert process.wait(60) == 0
