"""`--tls-cert` and `--tls-key`: a pair that is wrong, and one that changes while connections are open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection, connect

from gateway.cli.listening import PASSPHRASE, Certificate
from gateway.core.errors import Invalid
from tests.cli.conftest import TABLE, interlingua
from tests.support.certificates import authority
from tests.support.processes import Gateway

INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}})


@pytest.fixture
def pairs(tmp_path: Path) -> dict[str, tuple[Path, Path]]:
    """Two authorities, each with the pair that it vouches for."""
    return {name: authority(tmp_path, name) for name in ("one", "two")}


def shown(gateway: Gateway, pair: Path) -> bool:
    """Whether a new connection is shown the certificate in a file."""
    return ssl.get_server_certificate(("127.0.0.1", gateway.port), timeout=60) in pair.read_text()


@contextlib.contextmanager
def connected(gateway: Gateway, known: Path) -> Iterator[Callable[[], bool]]:
    """Whether a WebSocket through one door answers. In one thread: the client of threads reads while it writes, for
    which a connection of OpenSSL is not made.
    """
    context = ssl.create_default_context(cafile=known)
    url = f"{gateway.url.replace('https', 'wss')}/agent-client/mailcomposer"

    async def opened() -> ClientConnection:
        return await connect(url, ssl=context, proxy=None, open_timeout=60, ping_interval=None)

    async def asked() -> bool:
        await socket.send(INITIALIZE)
        async with asyncio.timeout(60):
            return bool(json.loads(await socket.recv())["id"] == 0)

    with asyncio.Runner() as runner:
        socket = runner.run(opened())
        try:
            yield lambda: runner.run(asked())
        finally:
            runner.run(socket.close())


@pytest.mark.parametrize("through", ["", "..data"])
def test_a_folder_that_is_swapped_as_a_mounted_secret_is_taken_and_no_connection_is_dropped(
    through: str, agents: dict[str, str], pairs: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """Whether the files that are named are links themselves, or lie behind the link that is swapped."""
    mount, home = tmp_path / "mount", tmp_path / "home"
    home.mkdir()
    for name, (_, pair) in pairs.items():
        (mount / name).mkdir(parents=True)
        for file in ("tls.crt", "tls.key"):
            (mount / name / file).write_bytes(pair.read_bytes())
    (mount / "..data").symlink_to("one")
    for file in ("tls.crt", "tls.key"):
        (mount / file).symlink_to(f"..data/{file}")
    args = ["--tls-cert", str(mount / through / "tls.crt"), "--tls-key", str(mount / through / "tls.key")]
    (known, old), (_, new) = pairs["one"], pairs["two"]
    with (
        Gateway(TABLE.format(**agents), home, args=args, authority=known) as gateway,
        connected(gateway, known) as answers,
    ):
        assert shown(gateway, old) and answers()
        (mount / "next").symlink_to("two")
        (mount / "next").replace(mount / "..data")
        gateway.process.wait_until(lambda: shown(gateway, new), "shown the new one")
        assert answers()


def test_a_bad_pair_is_refused_the_old_one_stays_and_a_good_one_is_taken(
    agents: dict[str, str], pairs: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    (known, old), (_, new) = pairs["one"], pairs["two"]
    served = tmp_path / "served.pem"
    served.write_bytes(old.read_bytes())
    args = ["--tls-cert", str(served), "--tls-key", str(served)]
    home = tmp_path / "home"
    home.mkdir()
    with Gateway(TABLE.format(**agents), home, args=args, authority=known) as gateway:
        served.write_text("half a file")
        refused = "the new certificate is refused and the old one stays"
        gateway.process.wait_until(lambda: refused in gateway.process.stderr(), "refused")
        assert shown(gateway, old)
        served.write_bytes(new.read_bytes())
        gateway.process.wait_until(lambda: shown(gateway, new), "shown the new one")


def test_sighup_reloads_the_pair_where_it_is_not_watched(
    agents: dict[str, str], pairs: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    (known, served), (_, new) = pairs["one"], pairs["two"]
    args = ["--no-watch", "--tls-cert", str(served), "--tls-key", str(served)]
    home = tmp_path / "home"
    home.mkdir()
    with (
        Gateway(TABLE.format(**agents), home, args=args, authority=known) as gateway,
        connected(gateway, known) as answers,
    ):
        served.write_bytes(new.read_bytes())
        gateway.process.signal(signal.SIGHUP)
        gateway.process.wait_until(lambda: shown(gateway, new), "shown the new one")
        assert answers()


@pytest.mark.parametrize("asking", [["agents"], ["runs"], ["stdio"]])
def test_who_asks_a_gateway_with_a_certificate_without_tls_is_told_what_its_address_is(
    asking: list[str], pairs: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    known, served = pairs["one"]
    args = ["--tls-cert", str(served), "--tls-key", str(served)]
    with Gateway("routes: []\n", tmp_path, args=args, authority=known) as gateway:
        done = interlingua(*asking, "--gateway", f"http://127.0.0.1:{gateway.port}")
    assert done.returncode == 1 and done.stderr.endswith(f"(if it serves TLS, it is {gateway.url})\n"), done.stderr


# --- what is no pair -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["--tls-cert", "a.pem"], ["--tls-key", "a.pem"]])
def test_one_of_the_two_options_is_wrong_usage(options: list[str], tmp_path: Path) -> None:
    for command in ("serve", "check"):
        done = interlingua(command, *options, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (2, "give both --tls-cert and --tls-key, or neither\n")


def test_serve_does_not_start_with_a_bad_pair_and_check_tells_of_it(table: Path, tmp_path: Path) -> None:
    options = ["--tls-cert", "gone.pem", "--tls-key", "gone.pem"]
    for command, code in (("serve", 2), ("check", 1)):
        done = interlingua(command, str(table), *options, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (code, "gone.pem: no such file or directory\n")


def test_a_pair_is_of_two_files_that_fit(pairs: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    (known, one), (_, two) = pairs.values()
    (tmp_path / "junk").write_text("junk")
    for chain, key, told in (
        (one, two, f"{two}: does not fit the first certificate of {one}"),
        (tmp_path / "junk", one, f"{tmp_path / 'junk'}: no certificate in PEM form"),
        (known, known, f"{known}: no private key in PEM form"),
        (one, tmp_path, f"{tmp_path}: is a directory"),
    ):
        with pytest.raises(Invalid) as refused:
            Certificate(chain, key)
        assert str(refused.value) == told
    assert Certificate(one, one).context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_an_encrypted_key_is_opened_by_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, pair = authority(tmp_path, "hidden", passphrase="open sesame")
    for given in (None, "wrong", "x" * 2000):
        if given:
            monkeypatch.setenv(PASSPHRASE, given)
        with pytest.raises(Invalid, match=f"encrypted, and the environment variable {PASSPHRASE} does not open it"):
            Certificate(pair, pair)
    monkeypatch.setenv(PASSPHRASE, "open sesame")
    assert "valid until" in str(Certificate(pair, pair))
