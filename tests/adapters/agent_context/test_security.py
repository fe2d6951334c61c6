"""Who is it, and what may it do: whatever does not hold is refused, and no secret is told."""

from __future__ import annotations

import base64
import logging
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.agent_context.codec.errors import to_rpc
from adapters.agent_context.options import RIGHTS, AccessOptions
from adapters.agent_context.security import Access, ClientPrincipal
from gateway.access import Subjects
from gateway.core.errors import Denied
from gateway.core.types import JsonObject
from tests.adapters.agent_context.codec_records import unhurried
from tests.adapters.agent_context.security_keys import (
    ALICE,
    BOB,
    JWT,
    SECRET,
    STRANGER,
    TOKEN,
    access,
    agent,
    claims,
    forged,
    pem,
    private_pem,
    register,
    signed,
    token,
)

HOUSE = access(jwt=JWT)


def refused(house: Access, bearer: str | None = None, record: JsonObject | None = None) -> str:
    """What is told to somebody who is refused."""
    with pytest.raises(Denied) as caught:
        house.principal(bearer) if record is None else register(house, record, bearer)
    assert to_rpc(caught.value).error.code == -32003
    return str(caught.value) + caught.value.detail


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_everybody_may_do_everything_where_nothing_is_said_of_access() -> None:
    house = Access(None)
    for bearer in (None, "anything"):
        principal = house.principal(bearer)
        assert principal.name == "anonymous"
        assert all(principal.can(right, "any") for right in RIGHTS)
    assert register(house, agent(auth={"token": "x", "signature": "y"})).name == "anonymous"


def test_a_token_tells_who_it_is_and_what_they_may() -> None:
    principal = HOUSE.principal(TOKEN)
    assert principal == ClientPrincipal("planner", frozenset({"register", "message", "read"}), ("planner-*", "shared"))


@pytest.mark.parametrize("bearer", ["", "planner", TOKEN[:-1], TOKEN + " ", TOKEN.upper(), "\ud800", "é" * 5000])
def test_a_token_that_is_nobodys_is_refused(bearer: str) -> None:
    told = refused(HOUSE, bearer)
    assert told == "the token is not valid"


def test_who_shows_no_token_is_anonymous_and_may_nothing_unless_it_is_said() -> None:
    nobody = HOUSE.principal(None)
    assert nobody.name == "anonymous" and not any(nobody.can(right) for right in RIGHTS)
    reader = access(anonymous=["read"]).principal(None)
    assert reader.can("read", "any") and not reader.can("register")


def test_two_tokens_of_different_clients_are_refused() -> None:
    assert "different" in refused(HOUSE, TOKEN, agent(auth={"token": token()}))
    assert refused(HOUSE, TOKEN, agent(auth={"token": "x"})) == "the token is not valid"


# --- policy ----------------------------------------------------------------------------------------------------------


def test_case_counts_in_patterns() -> None:
    assert not ClientPrincipal("p", frozenset(RIGHTS), ("abc*",)).can("read", "ABC")


# --- JSON Web Tokens -------------------------------------------------------------------------------------------------


def test_a_jwt_is_who_its_subject_is() -> None:
    house = access(jwt={**JWT, "may": ["read"], "agents": ["a*"]})
    visitor = house.principal(token())
    assert visitor == ClientPrincipal("visitor", frozenset({"read"}), ("a*",))
    assert house.principal(token(sub="planner")) == house.principal(TOKEN)
    assert house.principal(token(algorithm="HS512", aud=["x", "gateway"])).name == "visitor"


def test_the_roles_are_those_of_the_list_or_of_the_claim() -> None:
    clients = [{"name": "ann", "token": "ann-token", "roles": ["editor"]}]
    house = access(clients=clients, jwt={**JWT, "roles": "groups"})
    assert house.principal("ann-token").roles == house.principal(token(sub="ann", groups=["boss"])).roles == ("editor",)
    for claim, roles in (
        (["a", "b", "a"], ("a", "b")),
        ("a  b", ("a", "b")),
        ([1, "", "a"], ("a",)),
        (None, ()),
        (7, ()),
    ):
        assert house.principal(token(groups=claim)).roles == roles
    assert house.principal(token(roles=["a"])).roles == house.principal(None).roles == ()


NOW = int(time.time())
BAD = {
    "expired": token(exp=NOW - 1),
    "no end": token(exp=None),
    "not yet": token(nbf=NOW + 86_400),
    "issued in the future": token(iat=NOW + 86_400),
    "another audience": token(aud="other"),
    "audiences without ours": token(aud=["a", "b"]),
    "no audience": token(aud=None),
    "another issuer": token(iss="https://evil.example"),
    "no issuer": token(iss=None),
    "nobody": token(sub=None),
    "an empty name": token(sub=""),
    "a name on two lines": token(sub="a\nb"),
    "anonymous": token(sub="anonymous"),
    "another key": token(SECRET[::-1]),
    "another algorithm": token(algorithm="HS384"),
    "no algorithm": forged({"alg": "none", "typ": "JWT"}, claims()),
    "none, in other letters": forged({"alg": "nOnE"}, claims()),
    "an algorithm that is no text": forged({"alg": ["HS256"]}, claims()),
    "no signature": token().rpartition(".")[0] + ".",
    "another's signature": token(sub="planner").rpartition(".")[0] + "." + token().rpartition(".")[2],
    "what must be understood": token(headers={"crit": ["exp"]}),
    "two parts": "a.b",
    "four parts": token() + ".x",
    "no JSON": "e30.bm90IGpzb24.c2ln",
    "claims that are a list": forged({"alg": "HS256"}, []),  # type: ignore[arg-type]
    "too long": token(x="a" * 20_000),
    "a number that never ends": forged({"alg": "HS256"}, {"exp": 10**400}),
}


@pytest.mark.parametrize("bearer", [pytest.param(bad, id=name) for name, bad in BAD.items()])
def test_a_jwt_that_does_not_hold_is_refused(bearer: str) -> None:
    assert refused(HOUSE, bearer) == "the token is not valid"


def test_a_jwt_that_names_no_issuer_will_do_where_none_is_asked_for() -> None:
    house = access(jwt={**JWT, "issuer": None})
    assert house.principal(token(iss=None)).name == house.principal(token(iss="any")).name == "visitor"


def test_a_public_key_is_no_secret() -> None:
    house = access(jwt={**JWT, "key": pem(ALICE), "algorithms": ["EdDSA"]})
    assert house.principal(token(private_pem(ALICE), "EdDSA")).name == "visitor"
    refused(house, token(private_pem(BOB), "EdDSA"))
    refused(house, forged({"alg": "HS256"}, claims()))
    refused(house, token())


def test_clocks_may_differ_by_as_much_as_is_said() -> None:
    assert access(jwt={**JWT, "leeway": 30}).principal(token(exp=int(time.time()) - 5)).name == "visitor"


def test_a_jwt_that_held_is_remembered_until_it_expires_and_no_longer() -> None:
    clock = [float(int(time.time()))]
    options = AccessOptions.model_validate({"jwt": {**JWT, "leeway": 30}}).jwt
    assert options is not None
    subjects = Subjects(options, lambda: clock[0])
    visitor = token(exp=int(clock[0]) + 60)
    found = subjects.find(visitor)
    assert found is not None and found.name == "visitor"
    options._keys["HS256"] = b"another key, so that it would not hold if it was looked at again"
    clock[0] += 89
    assert subjects.find(visitor) == found
    clock[0] += 1
    assert subjects.find(visitor) is None
    assert visitor not in repr(vars(subjects))


def test_a_jwt_means_nothing_where_none_are_accepted() -> None:
    refused(access(), token())


# --- signatures ------------------------------------------------------------------------------------------------------


def test_a_signed_agent_is_its_signers() -> None:
    record = signed(agent())
    assert register(HOUSE, record).name == "alice"
    assert register(HOUSE, signed(agent(auth={"token": "alice-token"}))).name == "alice"
    assert register(HOUSE, record, bearer="alice-token").name == "alice"
    assert register(HOUSE, signed(agent(), BOB)).name == "bob"


def test_how_an_agent_is_written_down_does_not_matter() -> None:
    record = signed(agent(meta={"a": 1.0, "b": 1e21, "c": 100, "d": -0.0}))
    shuffled = dict(reversed(record.items()))
    shuffled["meta"] = {"d": 0, "c": 1e2, "b": 1000.0 * 1e18, "a": 1}
    assert register(HOUSE, shuffled).name == "alice"


def test_who_has_a_public_key_has_to_sign() -> None:
    assert "missing" in refused(HOUSE, None, agent(auth={"token": "alice-token"}))
    assert HOUSE.principal("alice-token").name == "alice"


def test_a_signature_that_nobody_can_check_is_refused() -> None:
    assert "no public key" in refused(HOUSE, TOKEN, signed(agent()))
    assert "no public key" in refused(HOUSE, token(), signed(agent()))


def changed(record: JsonObject, **changes: Any) -> JsonObject:
    return {**record, **changes}


DECOMPOSED = unicodedata.normalize("NFD", "caf\u00e9")
GOOD = signed(agent(meta={"version": "1", "name": "caf\u00e9", "n": 1}))
SIGNATURE = GOOD["auth"]["signature"]
FORGED = {
    "another id": changed(GOOD, id="alice-2"),
    "another capability": changed(GOOD, capabilities={**GOOD["capabilities"], "tools": ["root"]}),
    "one more member": changed(GOOD, endpoint={"url": "http://evil.example"}),
    "one less": {key: value for key, value in GOOD.items() if key != "meta"},
    "another token": changed(GOOD, auth={"token": "alice-token", "signature": SIGNATURE}),
    "letters composed otherwise": changed(GOOD, meta={**GOOD["meta"], "name": DECOMPOSED}),
    "another number": changed(GOOD, meta={**GOOD["meta"], "n": 1.0000000000000002}),
    "a flag for a number": changed(GOOD, meta={**GOOD["meta"], "n": True}),
    "a number that is not exact": changed(GOOD, meta={**GOOD["meta"], "n": 2**53 + 1}),
    "half a surrogate pair": changed(GOOD, meta={**GOOD["meta"], "name": "\ud83d"}),
    "another agent's": changed(agent("alice-3"), auth={"signature": SIGNATURE}),
    "a stranger's": signed(agent(), STRANGER),
    "no base64": changed(agent(), auth={"signature": "!" + SIGNATURE}),
    "letters that are no ASCII": changed(agent(), auth={"signature": "é" * 88}),
    "cut short": changed(GOOD, auth={"signature": SIGNATURE[:-4]}),
    "two of them": changed(GOOD, auth={"signature": SIGNATURE + SIGNATURE}),
    "empty bytes": changed(agent(), auth={"signature": "===="}),
    "all zero": changed(agent(), auth={"signature": "A" * 86 + "=="}),
}


@pytest.mark.parametrize("record", [pytest.param(each, id=name) for name, each in FORGED.items()])
@pytest.mark.parametrize("bearer", [None, "alice-token"])
def test_a_signature_of_anything_else_is_refused(record: JsonObject, bearer: str | None) -> None:
    assert register(HOUSE, GOOD).name == "alice"
    assert "signature is not valid" in refused(HOUSE, bearer, record)


@given(st.binary(min_size=64, max_size=64))
@unhurried
def test_no_bytes_at_random_are_a_signature(raw: bytes) -> None:
    refused(HOUSE, None, agent(auth={"signature": base64.b64encode(raw).decode()}))


# --- secrets ---------------------------------------------------------------------------------------------------------


def test_no_secret_is_told_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = [refused(HOUSE, bearer) for bearer in (*BAD.values(), "stolen-token")]
    told += [refused(HOUSE, "alice-token", record) for record in FORGED.values()]
    told += [refused(HOUSE, TOKEN, signed(agent()))]
    said = "".join(told) + caplog.text + repr(HOUSE) + repr(vars(HOUSE))
    for secret in (TOKEN, SECRET, "alice-token", "stolen-token", SIGNATURE, *BAD.values()):
        assert secret not in said


def test_the_options_do_not_show_their_secrets() -> None:
    options = AccessOptions.model_validate({"clients": [{"name": "a", "token": TOKEN}], "jwt": JWT})
    shown = repr(options) + str(options.model_dump()) + options.model_dump_json()
    assert TOKEN not in shown and SECRET not in shown


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clients": [{"name": "a", "token": "t"}, {"name": "b", "token": "t"}]}, "same token"),
        ({"clients": [{"name": "a"}, {"name": "a"}]}, "'a' is there twice"),
        ({"clients": [{"name": "anonymous"}]}, "nobody may be called anonymous"),
        ({"clients": [{"name": "a", "token": ""}]}, "at least 1"),
        ({"clients": [{"name": "a", "public_key": "AAAA"}]}, "32 bytes"),
        ({"clients": [{"name": "a", "public_key": "?"}]}, "not base64"),
        ({"clients": [{"name": "a", "may": ["everything"]}]}, "register"),
        ({"jwt": {**JWT, "algorithms": ["none"]}}, "HS256"),
        ({"jwt": {**JWT, "algorithms": []}}, "at least 1"),
        ({"jwt": {**JWT, "algorithms": ["HS256", "RS256"]}}, "one kind"),
        ({"jwt": {**JWT, "key": "short"}}, "32 bytes"),
        ({"jwt": {**JWT, "key": pem(ALICE)}}, "none for HS256"),
        ({"jwt": {**JWT, "algorithms": ["RS256"]}}, "none for RS256"),
        ({"jwt": {**JWT, "key_file": "also.pem"}}, "one of key, key_file and discovery"),
        ({"jwt": {**JWT, "key": None, "key_file": "/nowhere/key.pem"}}, "No such file"),
        ({"jwt": {key: value for key, value in JWT.items() if key != "audience"}}, "audience"),
    ],
)
def test_options_that_would_let_anybody_in_are_refused(options: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        AccessOptions.model_validate(options)
    told = "".join(each["msg"] for each in caught.value.errors())
    assert SECRET not in told


def test_a_key_may_be_in_a_file(tmp_path: Any) -> None:
    (tmp_path / "key.pem").write_text(pem(ALICE) + "\n")
    house = access(jwt={**JWT, "key": None, "key_file": tmp_path / "key.pem", "algorithms": ["EdDSA"]})
    assert house.principal(token(private_pem(ALICE), "EdDSA")).name == "visitor"
