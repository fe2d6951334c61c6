"""Processes are awaited, shown when they fail, and never outlive their block."""

import signal
import sys
from pathlib import Path

import pytest

from tests.support.processes import PROGRAM, ROOT, Gateway, ProcessFailed, free_port, port_answers, start

LISTEN = """
import signal, socket, sys
{before}
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()[0].close()
"""
STUBBORN = LISTEN.format(before="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {STUBBORN!r}, sys.argv[1]])
"""


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", code, *args]


def test_a_process_is_given_when_its_port_answers_and_gone_after_the_block() -> None:
    port = free_port()
    with start(python(LISTEN.format(before=""), str(port)), port=port) as process:
        assert port_answers(port)() and process.alive
        assert process.url == f"http://127.0.0.1:{port}"
    assert not process.alive and not port_answers(port)()


def test_a_process_that_dies_early_is_reported_with_what_it_said() -> None:
    code = "import sys; print('hello'); sys.exit('no such table')"
    with (
        pytest.raises(ProcessFailed, match=r"(?s)exit code 1.*hello.*no such table"),
        start(python(code), port=free_port()),
    ):
        pytest.fail("it was never ready")


def test_a_process_that_is_never_ready_is_given_up_in_time() -> None:
    code = "import time; time.sleep(60)"
    with (
        pytest.raises(ProcessFailed, match=r"not ready within 0\.2 s"),
        start(python(code), ready=lambda: False, within=0.2) as process,
    ):
        pytest.fail(f"{process} was never ready")


def test_children_that_ignore_the_polite_signal_end_with_their_parent() -> None:
    port = free_port()
    with start(python(PARENT, str(port)), port=port, grace=0.2):
        assert port_answers(port)()
    assert not port_answers(port)()


def test_a_process_ends_when_its_block_fails_and_its_output_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    code = LISTEN.format(before="print('I was here', flush=True)")
    with pytest.raises(ZeroDivisionError), start(python(code, str(port)), port=port):
        _ = 1 / 0
    assert not port_answers(port)()
    assert "I was here" in capsys.readouterr().err


def test_a_killed_process_ends_at_once_without_its_own_shutdown(tmp_path: Path) -> None:
    port, mark = free_port(), tmp_path / "ended politely"
    before = f"import atexit, pathlib; atexit.register(pathlib.Path({str(mark)!r}).touch)"
    with start(python(LISTEN.format(before=before), str(port)), port=port) as process:
        process.kill9()
        assert not process.alive and not mark.exists()


def test_a_gateway_that_is_forked_says_and_ends_as_a_fresh_one(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text("routes: [{name: a b, target: {protocol: mpc}}]\n")
    (tmp_path / "good.yaml").write_text("routes: [{name: ${NAME}, target: {protocol: example, url: 'http://x:1'}}]\n")
    variables = {"NAME": "given", "PYTHONPATH": str(ROOT)}
    for arguments in (["check"], ["check", "good.yaml"], ["--nonsense"]):
        seen = []
        for fresh in (False, True):
            with start([*PROGRAM, *arguments], variables, cwd=tmp_path, fresh=fresh) as process:
                seen.append((process.wait(60), process.stdout(), process.stderr()))
        assert seen[0] == seen[1] and any(seen[0][1:])


def test_a_forked_gateway_is_a_process_that_ends_by_a_signal(tmp_path: Path) -> None:
    with Gateway("routes: [{name: a, target: {protocol: example, url: 'http://127.0.0.1:9'}}]\n", tmp_path) as gateway:
        assert gateway.process.alive and port_answers(gateway.port)()
        gateway.kill9()
        assert gateway.process.wait(60) == -signal.SIGKILL and not port_answers(gateway.port)()
        gateway.restart()
        gateway.process.signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 0
