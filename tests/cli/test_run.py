"""`run` and `agents` without a terminal, over a route table and over a running gateway."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from tests.cli.conftest import interlingua
from tests.support.processes import PROGRAM, ROOT, Gateway, environment, launch, start

DRAFT = "Dear friend,\n\nHello there\n\nYours, Mail Composer\n"


def test_the_answer_is_on_stdout_alone(where: list[str]) -> None:
    done = interlingua("run", "mailcomposer", "hello there", *where)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == DRAFT


def test_the_prompt_may_come_from_standard_input(table: Path) -> None:
    done = interlingua("run", "mailcomposer", "-", "--routes", str(table), stdin=b"hello there")
    assert done.stdout == DRAFT


def test_steps_and_files_are_told_on_stderr(where: list[str]) -> None:
    done = interlingua("run", "reporter", "cats", *where)
    assert done.returncode == 0
    assert done.stdout.endswith("Wrote report.md about cats.\n")
    assert "plan: [x] outline [x] research [x] write" in done.stderr
    assert "file: report.md (" in done.stderr


def test_a_question_without_a_terminal_is_printed_and_exit_code_3(where: list[str]) -> None:
    done = interlingua("run", "mailcomposer", "please send", *where)
    assert done.returncode == 3
    assert "question: Send this mail?\nchoices: yes, no\n" in done.stderr
    assert done.stdout == "Dear friend,\n\nPlease send\n\nYours, Mail Composer\n"


def test_an_answer_that_does_not_fit_is_refused_and_the_next_is_taken(where: list[str]) -> None:
    done = interlingua("run", "mailcomposer", "send", "--answer", "maybe", "--answer", "no", *where)
    assert done.returncode == 0, done.stderr
    assert "the agent does not take this answer" in done.stderr
    assert done.stdout.endswith("(Kept as a draft.)\n")


def test_an_agent_that_is_down_is_exit_code_1_and_one_clear_line(where: list[str]) -> None:
    done = interlingua("run", "gone", "hello", *where)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "127.0.0.1:1" in line


@pytest.mark.parametrize("words", [["run", "coder", "hello"], ["agents", "coder"]])
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo no such model >&2; exit 3", "coder exited with 3: no such model"),
        ("echo 'usage: coder [--acp]'", "coder exited with 0; its output is no message: usage: coder [--acp]"),
    ],
)
def test_why_an_agent_does_not_start_is_told_once(tmp_path: Path, words: list[str], script: str, told: str) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(f'routes: [{{name: coder, target: {{protocol: agent_client, command: [sh, -c, "{script}"]}}}}]\n')
    done = interlingua(*words, "--routes", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert [line for line in done.stderr.splitlines() if "that is no message" not in line] == [told]
    done = interlingua(*words, "--routes", str(file), "--log-level", "info")
    assert f"agent coder could not be described: {told}" in done.stderr


def test_what_an_agent_printed_before_it_died_is_shown_whole(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    script = "printf 'Traceback (most recent call last):\\n  File\\nOSError: no key\\n' >&2; exit 1"
    file.write_text(f'routes: [{{name: coder, target: {{protocol: agent_client, command: [sh, -c, "{script}"]}}}}]\n')
    done = interlingua("run", "coder", "hello", "--routes", str(file))
    assert "Traceback (most recent call last):\n  File\nOSError: no key\n" in done.stderr
    assert done.stderr.endswith("\ncoder exited with 1: OSError: no key\n")
    assert done.stderr.count("coder exited with 1") == 2


def test_an_unknown_agent_is_exit_code_2_and_lists_the_names(where: list[str]) -> None:
    done = interlingua("run", "nobody", "hello", *where)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "no agent 'nobody'; have mailcomposer, reporter, gone\n"


def test_agents_are_listed_one_a_line(where: list[str]) -> None:
    done = interlingua("agents", *where, "--log-level", "error")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["mailcomposer", "reporter", "gone"]
    assert rows[0][1:] == ["1.0.0", "Drafts a mail from a sentence, and asks before it sends it."]


def test_a_gateway_that_is_not_there_is_one_clear_line() -> None:
    done = interlingua("agents", "--gateway", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("no gateway answers at http://127.0.0.1:1")
    assert len(done.stderr.splitlines()) == 1


def test_a_gateway_that_asks_who_it_is_is_shown_the_token(table: Path, tmp_path: Path) -> None:
    people = "inbound: {agent_connect: {authentication: {clients: [{name: ana, token: a-token-of-hers}]}}}\n"
    (tmp_path / "token").write_text("a-token-of-hers\n")
    with Gateway(people + table.read_text(encoding="utf-8"), tmp_path) as gateway:
        here = ("--gateway", gateway.url)
        refused = interlingua("run", "mailcomposer", "hello there", *here)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "give a token by --token-file or $INTERLINGUA_TOKEN" in refused.stderr
        told = interlingua("run", "mailcomposer", "hello there", *here, env={"INTERLINGUA_TOKEN": "a-token-of-hers"})
        assert (told.returncode, told.stdout) == (0, DRAFT), told.stderr
        shown = ("--token-file", str(tmp_path / "token"))
        made = interlingua("run", "reporter", "cats", *here, *shown, "--files", str(tmp_path / "made"))
        assert made.returncode == 0, made.stderr
        assert [file.name for file in (tmp_path / "made").iterdir()] == ["report.md"]
        listed = interlingua("agents", *here, *shown)
        assert listed.stdout.startswith("mailcomposer\t"), listed.stderr


def test_what_answers_but_is_no_gateway_is_said_to_be_none(agents: dict[str, str]) -> None:
    done = interlingua("agents", "--gateway", agents["REPORTER_URL"])
    assert (done.returncode, "is no gateway" in done.stderr) == (1, True)


def test_a_gateway_may_be_named_by_the_doors_own_address(gateway: Gateway) -> None:
    done = interlingua("agents", "--gateway", f"{gateway.url}/agent-connect/")
    assert done.stdout.startswith("mailcomposer\t")


def test_an_in_process_run_leaves_no_store_behind(table: Path) -> None:
    interlingua("run", "mailcomposer", "hello", "--routes", str(table))
    assert [path.name for path in table.parent.iterdir()] == ["routes.yaml"]


def test_chunks_are_written_as_they_come_not_at_the_end(where: list[str]) -> None:
    argv = [*PROGRAM, "run", "mailcomposer", "hello there " * 15, *where]
    with start(argv, environment()) as running:
        running.wait_until(lambda: "Hello there" in running.stdout(), "saying something")
        assert "Mail Composer" not in running.stdout()
        running.wait_until(lambda: "Mail Composer" in running.stdout(), "at the end")
        assert running.wait(60) == 0


def test_ctrl_c_cancels_the_run_and_is_exit_code_130(where: list[str]) -> None:
    argv = [*PROGRAM, "run", "mailcomposer", "word " * 2000, *where]
    with start(argv, environment()) as running:
        running.wait_until(lambda: "Word word" in running.stdout(), "saying something")
        running.signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert running.stderr().splitlines()[-1] == "cancelled"


def test_a_reader_that_goes_away_ends_the_program_quietly(table: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    argv = [*PROGRAM, "run", "mailcomposer", "hello", "--routes", str(table)]
    with os.fdopen(writing, "wb") as out, tempfile.TemporaryFile() as nothing, tempfile.TemporaryFile() as complained:
        process = launch(argv, nothing, out, complained, env=environment(), cwd=ROOT)
        assert process.wait(60) != 0
        complained.seek(0)
        assert b"Traceback" not in complained.read()
