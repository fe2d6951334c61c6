"""What a wrong routes.yaml is told: every mistake, each in one line with its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import DocumentError, load
from tests.config.conftest import ADAPTERS
from tests.support.certificates import authority

Mistakes = Callable[..., list[str]]

ALL_AT_ONCE = """\
inbound:
  door: {path: metrics, keepalive: 1}
  phone: {}
  dor: {}
route: []
public_url: nowhere
routes:
  - name: a b
    timeuot: 3
    target: {protocol: phne}
  - nam: b
    target:
      protocol: both
      url: x
      steps: 0
      foo: 1
      auth: {bearer: 17, apikey: 3}
    text: {input: foo, outptu: 3}
    version: 1.0
    labels: [1]
  - name: c
    target: {protocol: both}
  - name: c
    timeout: 5y
    match: {protocol: [both, dor], metdata: 1}
    lossy: sometimes
    target: 3
  - 4
  - name: d
    target: {protocol: door}
  - name: e
    match: door
    target: {url: "http://x"}
  - name: 7
  - name: f
    target: {protocol: ${UNSET}}
    description: ${ALSO_UNSET}
store: {retention: {age: 0, size: 3XB}}
webhooks: {allow: [10.0.0.0/8, foo]}
telemetry: 4
"""

TOLD = """\
routes.yaml:2 inbound.door.keepalive: unknown key; did you mean 'keep_alive'?
routes.yaml:3 inbound.phone: 'phone' calls agents but serves no clients; have both, door
routes.yaml:4 inbound.dor: no adapter 'dor'; have both, door; did you mean 'door'?
routes.yaml:5 route: unknown key; did you mean 'routes'?
routes.yaml:6 public_url: should begin with http:// or https://
routes.yaml:8 routes[0].name: 'a b' is not a name: letters, digits, '_' and '-' only
routes.yaml:9 routes[0].timeuot: unknown key; did you mean 'timeout'?
routes.yaml:10 routes[0].target.protocol: no adapter 'phne'; have both, phone; did you mean 'phone'?
routes.yaml:11 routes[1].name: required
routes.yaml:11 routes[1].nam: unknown key; did you mean 'name'?
routes.yaml:14 routes[1].target.url: should begin with http:// or https://
routes.yaml:15 routes[1].target.steps: should be greater than or equal to 1
routes.yaml:16 routes[1].target.foo: unknown key; have protocol, agent, auth, tls, weight, url, steps, command
routes.yaml:17 routes[1].target.auth.apikey: unknown key; did you mean 'api_key'?
routes.yaml:17 routes[1].target.auth.bearer: should be text, not a whole number: put it in quotes
routes.yaml:18 routes[1].text.input: 'foo' is not a JSON pointer: '' or '/key/key'
routes.yaml:18 routes[1].text.outptu: unknown key; did you mean 'output'?
routes.yaml:19 routes[1].version: should be text, not a number: put it in quotes
routes.yaml:20 routes[1].labels: should be a mapping, not a list
routes.yaml:22 routes[2].target.url: required
routes.yaml:23 routes[3].name: never reached: routes[2] (line 21) takes every request for it
routes.yaml:24 routes[3].timeout: should be a duration such as 60s, 5m, 1h30m, 500ms, or a number of seconds
routes.yaml:25 routes[3].match.metdata: unknown key; did you mean 'metadata'?
routes.yaml:25 routes[3].match.protocol[1]: no adapter 'dor'; have both, door; did you mean 'door'?
routes.yaml:26 routes[3].lossy: should be 'refuse' or 'allow'
routes.yaml:27 routes[3].target: should be a mapping with keys such as 'protocol', not a whole number
routes.yaml:28 routes[4]: should be a mapping, not a whole number
routes.yaml:30 routes[5].target.protocol: 'door' serves clients but calls no agents; have both, phone
routes.yaml:32 routes[6].match: should be a mapping, not text
routes.yaml:33 routes[6].target.protocol: required; have both, phone
routes.yaml:34 routes[7].name: should be text, not a whole number: put it in quotes
routes.yaml:34 routes[7].target: required
routes.yaml:36 routes[8].target.protocol: environment variable UNSET is not set; ${UNSET:-...} gives a default
routes.yaml:37 routes[8].description: environment variable ALSO_UNSET is not set; ${ALSO_UNSET:-...} gives a default
routes.yaml:38 store.retention.age: should be longer than nothing, and end
routes.yaml:38 store.retention.size: should be a size such as 64MB, 1.5GiB, or a number of bytes
routes.yaml:39 webhooks.allow[1]: value is not a valid IPv4 or IPv6 network
routes.yaml:40 telemetry: should be a mapping, not a whole number
"""


def test_every_mistake_is_told_at_once_with_its_line_and_key(mistakes: Mistakes) -> None:
    assert sorted(mistakes(ALL_AT_ONCE)) == sorted(TOLD.splitlines())


def test_mistakes_come_in_the_order_of_the_file(mistakes: Mistakes) -> None:
    lines = [int(line.split(":")[1].split()[0]) for line in mistakes(ALL_AT_ONCE)]
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("routes: [1,\n", "routes.yaml:2:1: not YAML: expected the node content, but found '<stream end>'"),
        (
            "a: b: c",
            "routes.yaml:1:5: not YAML: mapping values are not allowed here: a text with ': ' in it is put in quotes",
        ),
        ("a: 1\n\tb: 2", "routes.yaml:2:1: not YAML: found character '\\t' that cannot start any token"),
        ("a: 1\nb: \x01", "routes.yaml:2:4: not YAML: character U+0001 is not allowed"),
        ("--- {}\n--- {}", "routes.yaml:2:1: not YAML: but found another document"),
        ("a: *x", "routes.yaml:1:4: not YAML: found undefined alias 'x'"),
        ("a: {b: ${X}", "routes.yaml:1:12: not YAML: expected ',' or '}', but got '<stream end>'"),
        ("a: !!python/object:os.system x", "routes.yaml:1 a: not YAML: could not determine a constructor"),
        ("routes: !!int x", "routes.yaml:1 routes: not YAML: invalid literal"),
        ("hosts: ['http://a']", "routes.yaml:1 hosts[0]: 'http://a' is not a host's name, which has no scheme"),
        ("limits: {queue: many}", "routes.yaml:1 limits.queue: should be a whole number without a unit, not text"),
        (
            "limits: {door: {requests: 5s}}",
            "routes.yaml:1 limits.door.requests: should be a number without a unit, not text",
        ),
        ("limits: {client: {runs: 0}}", "routes.yaml:1 limits.client.runs: should be greater than or equal to 1"),
        (
            "limits: {door: {requests: true}}",
            "routes.yaml:1 limits.door.requests: should be a number, not true or false",
        ),
        ("limits: {route: {requests: 1}}", "routes.yaml:1 limits.route.requests: unknown key"),
        (
            "inbound: {door: {limits: {requests: 0}}}",
            "routes.yaml:1 inbound.door.limits.requests: should be greater than 0",
        ),
        ("- a", "routes.yaml:1: should be a mapping with keys such as 'routes', not a list"),
        ("nothing", "routes.yaml:1: should be a mapping with keys such as 'routes', not text"),
        ("routes: {}", "routes.yaml:1 routes: should be a list, not a mapping"),
        ("inbound: []", "routes.yaml:1 inbound: should be a mapping of protocols, not a list"),
        ("inbound: {door: 3}", "routes.yaml:1 inbound.door: should be a mapping"),
        ("inbound: {door: {path: x}}", "routes.yaml:1 inbound.door.path: should begin with '/'"),
        ("inbound: {door: {path: /metrics}}", "routes.yaml:1 inbound.door.path: '/metrics' is the gateway's own"),
        ("inbound: {door: {path: '/{x}'}}", "routes.yaml:1 inbound.door.path: should be a plain path"),
        ("inbound: {both: , door: {path: /both-ways}}", "routes.yaml:1 inbound.door.path: '/both-ways' is both's path"),
        ("inbound: {door: {path: /}}", "routes.yaml:1 inbound.door.path: should be a plain path"),
        (
            "inbound: {both: , door: {path: /both-ways/in}}",
            "routes.yaml:1 inbound.door.path: '/both-ways/in' and both's path '/both-ways' are one below the other",
        ),
        (
            "inbound: {both: {path: /a/b}, door: {path: /a}}",
            "routes.yaml:1 inbound.door.path: '/a' and both's path '/a/b' are one below the other",
        ),
        ("inbound: {on: {}}", "routes.yaml:1 inbound.on: a key is text: put it in quotes, 'on'"),
        ("? [a]\n: 1", "routes.yaml:1: a key is text, not a list or a mapping"),
        ("routes: &a [*a]", "routes.yaml:1 routes[0]: an alias to something that contains it"),
        ("<<: 3", "routes.yaml:1: '<<' takes a mapping"),
        ("limits: {body: x}", "routes.yaml:1 limits.body: should be a size"),
        ("store: {url: redis://here}", "routes.yaml:1 store.url: should be sqlite:///FILE"),
        ("store: {url: x.db}", "routes.yaml:1 store.url: should be sqlite:///FILE"),
        ("public_url: 'ftp://x'", "routes.yaml:1 public_url: URL scheme should be 'http' or 'https'"),
        (
            "routes: [{name: a, target: {protocol: both, url: 'http://x/y?z=1'}}]",
            "routes.yaml:1 routes[0].target.url: should end with a host or path: what is asked for is put after it",
        ),
        (
            "routes: [{name: a, target: {protocol: both, url: 'localhost:9001'}}]",
            "routes.yaml:1 routes[0].target.url: should begin with http:// or https://",
        ),
        ('telemetry: {headers: {k: "a\\nb"}}', "routes.yaml:1 telemetry.headers.k: has a line break"),
    ],
)
def test_a_mistake_names_its_place(mistakes: Mistakes, text: str, told: str) -> None:
    assert [line[: len(told)] for line in mistakes(text)][:1] == [told]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("routes:\n\t- name: a", ": indent with spaces"),
        ("a: @b", ": a text that begins with it is put in quotes"),
        ("a: {agents: *}", ": a text that begins with '*' is put in quotes"),
        ("a: [b, *c]", ": a text that begins with '*' is put in quotes"),
        ("a: &", ": a text that begins with '&' is put in quotes"),
        ("telemetry: {monitors: {tokens: secret}}", ", not text: put it in brackets, its parts separated by commas"),
    ],
)
def test_a_mistake_that_is_often_made_says_what_to_write(mistakes: Mistakes, text: str, hint: str) -> None:
    (told,) = mistakes(text)
    assert told.endswith(hint)


@pytest.mark.parametrize(("porter", "name"), [("porter: bell, ", "bell"), ("", "porter")])
def test_no_route_has_the_name_of_an_agent_that_a_protocol_brings(mistakes: Mistakes, porter: str, name: str) -> None:
    text = """
inbound: {door: {%skeep_alive: 1}}
routes:
  - {name: other, target: {protocol: phone}}
  - {name: %s, match: {protocol: door}, target: {protocol: phone}}
"""
    told = f"routes.yaml:5 routes[1].name: '{name}' is an agent of inbound.door itself; choose another name"
    assert mistakes(text % (porter, name)) == [told]


def test_a_key_given_twice_is_refused(mistakes: Mistakes) -> None:
    assert mistakes("store: {url: a,\n  url: b}\nstore: {}") == [
        "routes.yaml:2 store.url: given twice, first on line 1",
        "routes.yaml:3 store: given twice, first on line 1",
    ]


@pytest.mark.parametrize("match", ["", "match: {protocol: door}", "match: {metadata: {team: x}}"])
def test_a_name_given_twice_with_the_same_match_is_refused(mistakes: Mistakes, match: str) -> None:
    route = f"  - name: a\n    {match}\n    target: {{protocol: phone}}\n"
    assert mistakes(f"routes:\n{route}{route}") == [
        "routes.yaml:5 routes[1].name: 'a' is routes[0] (line 2) already, with the same match"
    ]


def test_a_secret_of_the_wrong_kind_is_not_repeated(mistakes: Mistakes) -> None:
    text = "routes: [{name: a, target: {protocol: phone, auth: {bearer: 918273, api_key: [hush]}}}]"
    assert not [line for line in mistakes(text) if "918273" in line or "hush" in line]


@pytest.mark.parametrize("way", ["bearer", "api_key"])
@pytest.mark.parametrize("secret", ["a\\nb", "hush\\n", "a\\0b", "\\x7f"])
def test_a_secret_that_no_header_can_have_is_told_and_not_repeated(mistakes: Mistakes, way: str, secret: str) -> None:
    text = f'routes: [{{name: a, target: {{protocol: phone, auth: {{{way}: "{secret}"}}}}}}]'
    told = "has a line break or another character that no header can have"
    assert mistakes(text) == [f"routes.yaml:1 routes[0].target.auth.{way}: {told}"]


def test_both_kinds_of_a_choice_are_named_in_one_line(mistakes: Mistakes) -> None:
    text = "routes: [{name: a, target: {protocol: both, url: 'http://x', command: 4}}]"
    assert mistakes(text) == [
        "routes.yaml:1 routes[0].target.command: should be a list, not a whole number or text, not a whole number: "
        "put it in quotes"
    ]


def test_a_targets_certificates_are_beside_the_file_and_what_is_wrong_with_them_is_a_mistake(tmp_path: Path) -> None:
    known, _ = authority(tmp_path, "known")
    file = tmp_path / "routes.yaml"
    text = "routes:\n  - name: a\n    target: {{protocol: both, url: 'https://x', tls: {{ca: {}}}}}\n"
    file.write_text(text.format(known.name))
    (route,) = load(file, ADAPTERS).routes
    assert route.target.tls is not None and route.target.tls.ca == known
    file.write_text(text.format("none.pem"))
    with pytest.raises(DocumentError, match=r"routes\.yaml:3 routes\[0\]\.target\.tls: .*none\.pem: no such file"):
        load(file, ADAPTERS)


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        ("[]", "targets: should be a list of one target or more"),
        ("[{protocol: both, url: 'http://x'}], target: {protocol: both, url: 'http://x'}", "targets: name either"),
        (
            "[{protocol: both, url: 'http://x'}, {protocol: both, url: 'http://x', weight: 2}]",
            r"targets\[1\]: is targets",
        ),
        ("[{protocol: both, url: 'http://x', weight: 0}]", "targets: one of them should have a `weight` above 0"),
        ("[{protocol: both, url: 'http://x'}, {protocol: mpc}]", r"targets\[1\]\.protocol: no adapter 'mpc'"),
        ("[7]", r"targets\[0\]: should be a mapping"),
    ],
)
def test_what_is_wrong_with_several_targets_is_told(mistakes: Mistakes, targets: str, told: str) -> None:
    (found,) = mistakes(f"routes: [{{name: a, targets: {targets}}}]")
    assert re.search(told, found), found
