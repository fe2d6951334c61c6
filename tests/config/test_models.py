"""What a right routes.yaml becomes."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.config import DocumentError, load, loads
from gateway.contract import Adapter, InboundOptions
from gateway.registry import scan
from tests.config.conftest import ADAPTERS, DoorOptions, Read, Strategy

ROUTE = "routes: [{name: a, target: {protocol: both, url: 'http://x:1/'}, %s}]"


def test_an_empty_file_serves_every_protocol_at_its_own_path(read: Read) -> None:
    config = read("")
    assert {name: options.path for name, options in config.inbound.items()} == {"both": "/both-ways", "door": "/door"}
    assert config.routes == ()
    assert config.store.url == "sqlite:///interlingua.db"
    assert config.adapters["both"].title == "Both"


def test_only_the_protocols_that_inbound_names_are_served(read: Read) -> None:
    config = read("inbound:\n  door: {path: /elsewhere/, keep_alive: 3}\n")
    assert list(config.inbound) == ["door"]
    assert config.inbound["door"] == DoorOptions(path="/elsewhere", keep_alive=3)


def test_a_section_with_nothing_below_its_key_is_the_default(read: Read) -> None:
    config = read("inbound:\nroutes:\nstore:\nwebhooks:\nlimits:\ntelemetry:\n")
    assert config == read("")
    assert list(read("inbound:\n  door:\n").inbound) == ["door"]


def test_the_whole_of_a_route_is_read(read: Read) -> None:
    (route,) = read(
        """
        routes:
          - name: mail-composer_2
            match: {protocol: door, metadata: {team: mail}}
            target:
              protocol: both
              url: http://127.0.0.1:9001/
              agent: composer
              auth: {bearer: ${TOKEN}}
            timeout: 1m30s
            text: {input: /message, output: ""}
            labels: {tools: [a, b]}
            delegation: {approve: true, quality: 8, cost: 0.002}
            model: {cost: 0.9, intelligence: 1}
            version: 1.2.3
            description: Writes
            lossy: allow
            backpressure: true
        """,
        TOKEN="t{}",
    ).routes
    assert isinstance(route.target, Strategy)
    assert route.target.url == "http://127.0.0.1:9001"
    assert route.target.auth.bearer is not None
    assert route.target.auth.bearer.get_secret_value() == "t{}"
    assert "t{}" not in repr(route)
    assert route.match.protocol == ("door",)
    assert route.match.metadata == {"team": "mail"}
    assert (route.timeout, route.text.input, route.text.output) == (90.0, "/message", "")
    assert route.labels == {"tools": ("a", "b")}
    assert route.delegation.given == {"approve": True, "quality": 8.0, "cost": 0.002}
    assert route.model is not None and route.model.given == {"cost": 0.9, "intelligence": 1.0}
    assert (route.version, route.description, route.lossy, route.backpressure) == ("1.2.3", "Writes", "allow", True)


def test_what_a_route_does_not_say_of_its_agent_is_not_given(read: Read) -> None:
    (route,) = read(ROUTE % "delegation: {quality: , speed: 0}").routes
    assert route.delegation.given == {"speed": 0.0} and route.model is None
    (route,) = read(ROUTE % "delegation: , model: ").routes
    assert route.delegation.given == {} and route.model is not None and route.model.given == {}


@pytest.mark.parametrize(
    ("key", "written"),
    [
        *(("delegation", f"quality: {value}") for value in ("-1", "10.1", ".nan", ".inf", "true", "good")),
        *(("delegation", f"{key}: {value}") for key in ("cost", "speed") for value in ("-0.1", ".inf", "[1]")),
        ("delegation", "approve: 3"),
        *(("model", f"{key}: {value}") for key in ("cost", "speed", "intelligence") for value in ("1.1", "null")),
    ],
)
def test_a_rating_out_of_range_is_refused(mistakes, key: str, written: str) -> None:  # type: ignore[no-untyped-def]
    (line,) = mistakes(ROUTE % f"{key}: {{{written}}}")
    assert line.startswith(f"routes.yaml:1 routes[0].{key}.{written.partition(':')[0]}: should be ")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("60s", 60), ("5m", 300), ("500ms", 0.5), ("90", 90), ("1.5", 1.5), ("1h30m", 5400), ("7d", 604800), ("'30'", 30)],
)
def test_a_duration_is_seconds(read: Read, written: str, seconds: float) -> None:
    assert read(ROUTE % f"timeout: {written}").routes[0].timeout == seconds


@pytest.mark.parametrize("written", ["0", "-1", "5y", "soon", "true", "[1]", ".nan", ".inf", "''", "0s", "1:30"])
def test_what_is_no_duration_is_refused(mistakes, written: str) -> None:  # type: ignore[no-untyped-def]
    (line,) = mistakes(ROUTE % f"timeout: {written}")
    assert line.startswith("routes.yaml:1 routes[0].timeout: should be ")


def test_a_run_may_be_given_no_limit(read: Read) -> None:
    assert read(ROUTE % "timeout: null").routes[0].timeout is None


@pytest.mark.parametrize(
    ("written", "size"),
    [("64MB", 64_000_000), ("1GiB", 2**30), ("1.5kB", 1500), ("2048", 2048), ("'10'", 10), ("1 MiB", 2**20)],
)
def test_a_size_is_bytes(read: Read, written: str, size: int) -> None:
    assert read(f"store: {{artifact_limit: {written}}}").store.artifact_limit == size


@pytest.mark.parametrize("written", ["0", "-5MB", "1XB", "big", "true", ".inf", "0.1"])
def test_what_is_no_size_is_refused(mistakes, written: str) -> None:  # type: ignore[no-untyped-def]
    (line,) = mistakes(f"store: {{artifact_limit: {written}}}")
    assert line.startswith("routes.yaml:1 store.artifact_limit: should be ")


def test_the_other_sections_are_read(read: Read) -> None:
    config = read(
        """
        store: {url: "sqlite://", retention: {age: null, size: 1GB}}
        webhooks: {allow: [10.0.0.0/8, "fd00::/8", 192.168.1.7]}
        public_url: https://gateway.example/
        limits: {shutdown: 3s}
        telemetry: {otlp: "http://collector:4318", headers: {x-key: k}}
        """
    )
    assert (config.store.retention.age, config.store.retention.size) == (None, 10**9)
    assert config.webhooks.allow == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"), ip_network("192.168.1.7/32"))
    assert config.public_url == "https://gateway.example"
    assert config.limits.shutdown == 3.0
    assert config.telemetry.otlp == "http://collector:4318"
    assert config.telemetry.headers["x-key"].get_secret_value() == "k"


def test_the_limit_of_bodies_holds_for_every_protocol_that_does_not_say_its_own(read: Read) -> None:
    config = read("limits: {body: 2MB}")
    assert config.inbound["door"].max_body == 2_000_000  # type: ignore[attr-defined]
    config = read("limits: {body: 2MB}\ninbound: {door: {max_body: 5}}")
    assert config.inbound["door"].max_body == 5  # type: ignore[attr-defined]


def test_the_limit_of_files_holds_for_every_protocol_that_does_not_say_its_own(read: Read) -> None:
    config = read("store: {artifact_limit: 3MB}")
    assert config.inbound["door"].max_upload == 3_000_000  # type: ignore[attr-defined]
    config = read("store: {artifact_limit: 3MB}\ninbound: {door: {max_upload: 5}}")
    assert config.inbound["door"].max_upload == 5  # type: ignore[attr-defined]
    assert read("").inbound["door"].max_upload == 2000  # type: ignore[attr-defined]


def test_relative_paths_start_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "routes.yaml").write_text("routes: []\n")
    monkeypatch.chdir(tmp_path)
    config = load("sub/routes.yaml", ADAPTERS)
    assert config.base == tmp_path / "sub"
    assert config.path == tmp_path / "sub" / "routes.yaml"


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_bytes(b"\xef\xbb\xbfroutes: []\n")
    assert load(tmp_path / "r.yaml", ADAPTERS).routes == ()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.yaml", None, ": no such file or directory"),
        ("latin.yaml", b"# caf\xe9\n", ":1: not UTF-8: byte 5 is wrong"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DocumentError) as raised:
        load(tmp_path / name, ADAPTERS)
    assert str(raised.value) == f"{tmp_path / name}{message}"


def test_one_name_may_have_routes_that_differ_in_their_match(read: Read) -> None:
    config = read(
        """
        routes:
          - {name: a, match: {protocol: door}, target: {protocol: phone}}
          - {name: a, match: {metadata: {team: x}}, target: {protocol: phone}}
          - {name: a, target: {protocol: phone}}
        """
    )
    assert len(config.routes) == 3


def test_a_config_cannot_be_changed(read: Read) -> None:
    with pytest.raises(ValueError, match="frozen"):
        read("").routes = ()  # type: ignore[misc]


def test_a_protocol_s_former_name_still_works_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    renamed = {**ADAPTERS, "both": replace(ADAPTERS["both"], formerly="old")}
    text = "inbound: {old: %s}\n" + ROUTE % "match: {protocol: [old]}"
    config = loads(text.replace("protocol: both", "protocol: old") % "", renamed)
    assert config.inbound["both"].path == "/old", "clients find it where it was"
    (route,) = config.routes
    assert (route.target.protocol, route.match.protocol) == ("both", ("both",))
    assert [record.message for record in caplog.records] == ["routes.yaml: protocol 'old' is called 'both' now"]
    with pytest.raises(DocumentError, match=r"routes.yaml:2 inbound.both.x: unknown key"):
        loads("inbound:\n  old: {x: 1}\n", renamed)


@pytest.mark.parametrize("adapter", [*scan().values()], ids=lambda adapter: adapter.name)
def test_a_section_that_is_left_out_is_what_an_empty_one_is_validated_to_be(adapter: Adapter) -> None:
    options = adapter.serve_options
    assert options.model_construct() == options.model_validate({})


def test_a_section_that_is_left_out_and_has_to_say_something_is_refused() -> None:
    class Asking(InboundOptions):
        house: str

    asking = {"door": replace(ADAPTERS["door"], serve_options=Asking)}
    for text in ("", "inbound: {door: }", "inbound: {door: {}}"):
        with pytest.raises(DocumentError, match=r"inbound.door.house: required"):
            loads(text, asking)
