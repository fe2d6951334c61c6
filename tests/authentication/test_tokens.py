"""Whose a token is: what a request shows, how it is checked, and what is kept of it."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import ValidationError

from gateway.access import Authentication, Authenticator, JwtOptions, Principal, Subjects, Visit
from gateway.access import credentials as checked
from gateway.access.credentials import bearer
from gateway.core.errors import Unauthenticated
from gateway.core.types import Identity, Thread
from gateway.transport.asgi import refusals
from tests.authentication.rig import ANA, AUTHENTICATION, BOB, JWT, token
from tests.support.aio import Still, later, run

PEOPLE = Authenticator(Authentication.model_validate(AUTHENTICATION))
MISSING = [(b"www-authenticate", b'Bearer realm="interlingua"')]
INVALID = [(b"www-authenticate", b'Bearer error="invalid_token"')]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["Bearer t"], "t"),
        (["bEARER   t "], "t"),
        (["Bearer a b"], "a b"),
        (["Bearer"], None),
        (["Bearer   "], None),
        (["Basic t"], None),
        (["t"], None),
        ([""], None),
        ([], None),
        (["Bearer t", "Bearer t"], None),
    ],
)
def test_the_token_of_a_request_is_that_of_its_one_bearer_header(values: list[str], shown: str | None) -> None:
    assert bearer([(b"authorization", value.encode()) for value in values]) == shown


AUTHORIZED = b"authorization"
KEY = b"x-api-key"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([(AUTHORIZED, f"Bearer {ANA}")], "ana"),
        ([(KEY, ANA)], "ana"),
        ([(KEY, f" {ANA} ")], "ana"),
        ([(AUTHORIZED, f"Bearer {ANA}"), (KEY, BOB)], "ana"),
        ([(b"accept", "*/*"), (KEY, BOB), (b"x-other", ANA)], "bob"),
        ([(AUTHORIZED, "Bearer stolen"), (KEY, ANA)], INVALID),
        ([(AUTHORIZED, "Basic stolen"), (KEY, ANA)], MISSING),
        ([(KEY, "stolen")], INVALID),
        ([(KEY, ANA), (KEY, ANA)], MISSING),
        ([(KEY, "")], MISSING),
        ([], MISSING),
        ([(b"x-other", ANA)], MISSING),
    ],
)
def test_a_client_is_who_its_headers_say_or_is_told_whether_a_token_was_missing(
    headers: list[tuple[bytes, str]], found: str | list[tuple[bytes, bytes]]
) -> None:
    given = [(name, value.encode()) for name, value in headers]
    if isinstance(found, str):
        assert PEOPLE.identify(given).who.id == found
        sees = PEOPLE.sees(given)
        assert sees is not None and sees("echo") and sees("held") is (found == "ana")
        return
    with pytest.raises(Unauthenticated) as caught:
        PEOPLE.identify(given)
    assert refusals.headers(caught.value) == found
    assert PEOPLE.sees(given) is None


def shows(token: str) -> list[tuple[bytes, bytes]]:
    return [(AUTHORIZED, f"Bearer {token}".encode())]


def test_only_a_door_that_asks_looks_at_tokens() -> None:
    assert PEOPLE.required and not Authenticator(None).required
    assert PEOPLE.arrived([]) is None and Authenticator(None).arrived(shows(ANA)) is None
    arrived = PEOPLE.arrived(shows(ANA))
    assert arrived is not None and arrived.who.id == "ana"
    for door, shown in ((PEOPLE, "stolen"), (Authenticator(None), ANA)):
        with pytest.raises(Unauthenticated):
            door.principal(shown)
    with pytest.raises(Unauthenticated):
        PEOPLE.arrived(shows("stolen"))


@pytest.mark.parametrize(
    ("patterns", "there"),
    [(["*"], ["echo", "ask"]), (["a*"], ["ask"]), (["ECHO"], []), (["?"], []), ([], []), (["echo", "echo"], ["echo"])],
)
def test_the_agents_of_a_client_are_those_that_its_patterns_mean(patterns: list[str], there: list[str]) -> None:
    clients = [{"name": "dora", "token": "t", "agents": patterns, "tools": patterns}]
    dora = Authenticator(Authentication.model_validate({"clients": clients})).principal("t")
    assert [name for name in ("echo", "ask") if dora.may_use(name)] == there and dora.tools == tuple(patterns)
    with pytest.raises(ValidationError):
        Authentication.model_validate({"clients": [{"name": "dora", "token": "t", "agents": [""]}]})


def test_a_client_that_has_no_token_of_its_own_is_known_by_a_jwt_alone() -> None:
    clients = [{"name": "dora", "agents": ["echo"]}, {"name": "emil"}, {"name": "ana", "token": ANA}]
    people = Authenticator(Authentication.model_validate({"clients": clients, "jwt": JWT}))
    dora = people.principal(token("dora", groups=["ignored"]))
    assert (dora.who, dora.agents) == (Identity(id="dora"), ("echo",))
    assert people.principal(ANA).who.id == "ana"
    for shown in ("", "None", "dora", "stolen"):
        with pytest.raises(Unauthenticated):
            people.principal(shown)


def test_a_jwt_gives_the_rights_that_the_section_gives_its_bearers_and_lasts_as_long_as_it_says() -> None:
    jwt = {**JWT, "agents": ["echo"], "tools": ["read"], "leeway": 30}
    people = Authenticator(Authentication.model_validate({"clients": [{"name": "ana", "token": ANA}], "jwt": jwt}))
    ends = int(time.time()) + 600
    assert people.principal(token("visitor", exp=ends, groups=["a"])) == Principal(
        Identity(id="visitor", roles=("a",)), ("echo",), ends + 30, oversees=False, tools=("read",)
    )
    assert people.principal(token("ana", exp=ends)) == Principal(Identity(id="ana"), expires=ends + 30)
    assert people.principal(ANA) == Principal(Identity(id="ana"), expires=math.inf)


@pytest.mark.parametrize(
    ("claim", "roles"),
    [("a  b a", ("a", "b")), (["a", "", 7, "b", "a"], ("a", "b")), ({"a": 1}, ()), (None, ()), ("", ()), (7, ())],
)
def test_roles_are_the_texts_of_a_list_or_the_words_of_a_text(claim: Any, roles: tuple[str, ...]) -> None:
    assert PEOPLE.principal(token(groups=claim)).who.roles == roles


def test_tokens_that_held_are_remembered_the_newest_only_and_nothing_of_them_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checked, "_REMEMBERED", 2)
    options = JwtOptions.model_validate({**{key: JWT[key] for key in ("key", "algorithms", "audience")}})
    subjects = Subjects(options)
    tokens = [token(f"visitor-{n}", private="a secret claim") for n in range(3)]
    found = [subjects.find(each) for each in tokens]
    assert [each.name for each in found if each] == ["visitor-0", "visitor-1", "visitor-2"]
    options._keys["HS256"] = b"another key, so that no token holds when it is looked at again"
    assert [subjects.find(each) is not None for each in tokens] == [False, True, True]
    assert "a secret claim" not in repr(found)


RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
SIZES = {"HS256": 32, "HS384": 48, "HS512": 64}


def keys(algorithm: str) -> tuple[Any, str]:
    """The key that signs, and the one of the options."""
    if algorithm in SIZES:
        return "k" * SIZES[algorithm], "k" * SIZES[algorithm]
    key: Any = RSA
    if algorithm in CURVES:
        key = ec.generate_private_key(CURVES[algorithm])
    elif algorithm == "EdDSA":
        key = Ed25519PrivateKey.generate()
    return key, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.mark.parametrize(
    ("algorithm", "other"),
    [
        ("HS256", "HS384"),
        ("HS384", "HS256"),
        ("HS512", "HS256"),
        ("RS256", "PS256"),
        ("RS384", "RS256"),
        ("RS512", "RS256"),
        ("PS256", "RS256"),
        ("PS384", "PS512"),
        ("PS512", "PS384"),
        ("ES256", None),
        ("ES384", None),
        ("ES512", None),
        ("EdDSA", None),
    ],
)
def test_a_jwt_is_signed_in_a_way_that_the_section_names(algorithm: str, other: str | None) -> None:
    private, known = keys(algorithm)
    options = {"key": known, "algorithms": [algorithm], "audience": "gateway"}
    signed = jwt.encode({"sub": "ana", "aud": "gateway", "exp": int(time.time()) + 600}, private, algorithm)
    found = Subjects(JwtOptions.model_validate(options)).find(signed)
    assert found is not None and found.name == "ana"
    if other is not None:
        key = known if algorithm not in SIZES else "k" * 64
        assert Subjects(JwtOptions.model_validate({**options, "key": key, "algorithms": [other]})).find(signed) is None
        assert JwtOptions.model_validate({**options, "key": key, "algorithms": [algorithm, other]}).algorithms
    foreign = "EdDSA" if algorithm in SIZES else "HS256"
    with pytest.raises(ValidationError, match="one key is never for both"):
        JwtOptions.model_validate({**options, "algorithms": [algorithm, foreign]})
    if algorithm in SIZES:
        with pytest.raises(ValidationError, match=f"needs {SIZES[algorithm]} bytes"):
            JwtOptions.model_validate({**options, "key": known[:-1]})
    else:
        with pytest.raises(ValidationError, match=f"the key is none for {algorithm}"):
            JwtOptions.model_validate({**options, "key": "no key"})


def test_a_key_is_given_or_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"  {'k' * 32}\n")
    options: dict[str, Any] = {"algorithms": ["HS256"], "audience": "gateway"}
    signed = jwt.encode({"sub": "ana", "aud": "gateway", "exp": int(time.time()) + 600}, "k" * 32, "HS256")
    assert Subjects(JwtOptions.model_validate({**options, "key_file": tmp_path / "key"})).find(signed) is not None
    for wrong, why in (
        ({}, "name one of key, key_file and discovery"),
        ({"key": "k" * 32, "key_file": tmp_path / "key"}, "name one of key, key_file and discovery"),
        ({"key_file": tmp_path / "none"}, "key_file: No such file"),
        ({"key_file": tmp_path}, "key_file: Is a directory"),
    ):
        with pytest.raises(ValidationError, match=why):
            JwtOptions.model_validate({**options, **wrong})


def test_a_client_has_one_token_which_is_nobody_elses() -> None:
    digest = hashlib.sha256(b"t").hexdigest()
    for clients, why in (
        ([{"name": "a", "token": "t", "token_sha256": digest}], "name one of token and token_sha256"),
        ([{"name": "a", "token": "t"}, {"name": "b", "token_sha256": digest.upper()}], "two have the same token"),
        ([{"name": "a", "token": "t"}, {"name": "a", "token": "u"}], "'a' is there twice"),
        ([{"name": "a", "token": "t"}, {"name": "anonymous", "token": "u"}], "nobody may be called anonymous"),
        ([], "nobody could connect"),
    ):
        with pytest.raises(ValidationError, match=why):
            Authentication.model_validate({"clients": clients})
    for wrong in ("", "ab", digest[1:], f"{digest}0", f"x{digest[1:]}"):
        with pytest.raises(ValidationError, match="should match pattern"):
            Authentication.model_validate({"clients": [{"name": "a", "token_sha256": wrong}]})
    people = Authenticator(Authentication.model_validate({"clients": [{"name": "a", "token_sha256": digest.upper()}]}))
    assert people.principal("t") == Principal(Identity(id="a"))


# --- how long somebody may stay --------------------------------------------------------------------------------------


class Days:
    """A clock for tokens that a test sets, and the visits of clients whose tokens expire by it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.people = Authenticator(None, lambda: self.now)
        self.ended: list[str] = []

    def visit(self, expires: float = math.inf) -> Visit:
        return Visit(self.people, Principal(Identity(id="ana"), expires=expires))


def timed(body: Any) -> None:
    run(body(), timeout=100_000, loop_factory=Still)


def test_a_token_holds_until_it_expires_and_not_at_that_moment() -> None:
    days = Days()
    for expires, expired, lasting in ((1000.5, False, False), (1000.0, True, False), (math.inf, False, True)):
        visit = days.visit(expires)
        assert (visit.expired, visit.lasting) == (expired, lasting)
    assert days.visit(1000.5).left() == 0.5
    assert days.visit(9999.0).left() == 3600.0, "the clock may be set meanwhile"
    for visit in (days.visit(1000.0), days.visit(7.0)):
        with pytest.raises(Unauthenticated, match="the token has expired"):
            visit.left()


def test_a_thread_is_its_owners_and_one_without_is_everybodys_only_where_nobody_is_asked() -> None:
    def thread(owner: str | None) -> Thread:
        marks = {} if owner is None else {"owner": owner}
        return Thread(id="t", created_at=0.0, updated_at=0.0, attributes=marks)

    ana, nobody = Principal(Identity(id="ana")), Authenticator(None)
    assert thread("ana").attributes == ana.marks
    for owner, asked, unasked in (("ana", False, False), (None, False, True)):
        assert PEOPLE.owns(None, thread(owner)) is asked and nobody.owns(None, thread(owner)) is unasked
    assert [PEOPLE.owns(ana, thread(owner)) for owner in ("ana", "bob", None)] == [True, False, False]


def test_a_connection_ends_when_its_token_expires_once_and_not_after_it_was_left() -> None:
    async def body() -> None:
        days = Days()
        visits = {
            name: days.visit(expires) for name, expires in (("a", 1010.0), ("left", 1010.0), ("for ever", math.inf))
        }
        for name, visit in visits.items():
            visit.enter(lambda name=name: days.ended.append(name))  # type: ignore[misc]
        visits["left"].leave()
        days.now = 1009.0
        await later(9)
        assert days.ended == []
        days.now = 1010.0
        await later(1)
        assert days.ended == ["a"]
        await later(10_000)
        assert days.ended == ["a"]

    timed(body)


def test_a_clock_that_was_set_back_keeps_a_connection_and_one_that_was_set_forward_ends_it_within_the_hour() -> None:
    async def body() -> None:
        days = Days()
        days.visit(1010.0).enter(lambda: days.ended.append("soon"))
        days.visit(1_000_000.0).enter(lambda: days.ended.append("in days"))
        days.now = 500.0
        await later(10)
        assert days.ended == []
        days.now = 1010.0
        await later(510)
        assert days.ended == ["soon"]
        days.now = 1_000_000.0
        await later(3600)
        assert days.ended == ["soon", "in days"]

    timed(body)


def test_a_connection_whose_token_has_expired_already_ends_at_once() -> None:
    async def body() -> None:
        days = Days()
        days.visit(900.0).enter(lambda: days.ended.append("late"))
        await later(0)
        assert days.ended == ["late"]

    timed(body)


def test_a_visit_that_is_no_connection_ends_nothing() -> None:
    async def body() -> None:
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: failures.append(what))
        days = Days()
        visit = days.visit(1010.0)
        assert visit.fits(Principal(Identity(id="ana"), expires=1020.0))
        days.now = 1030.0
        await later(30)
        assert visit.expired and not failures

    timed(body)


def test_a_newer_token_of_the_same_client_lets_it_stay_longer_and_an_older_one_changes_nothing() -> None:
    async def body() -> None:
        days = Days()
        visit = days.visit(1010.0)
        visit.enter(lambda: days.ended.append("ana"))
        ana = Identity(id="ana")
        assert not visit.fits(Principal(Identity(id="bob"), expires=9999.0))
        assert not visit.fits(Principal(ana, ("echo",), expires=9999.0)), "it may do something else"
        assert not visit.fits(Principal(ana, oversees=True, expires=9999.0))
        assert visit.fits(Principal(ana, expires=1005.0)) and visit.principal.expires == 1010.0
        assert visit.fits(Principal(ana, expires=1020.0)) and visit.principal.expires == 1020.0
        days.now = 1010.0
        await later(10)
        assert days.ended == []
        days.now = 1020.0
        assert not visit.fits(Principal(ana, expires=9999.0)), "it came too late"
        await later(10)
        assert days.ended == ["ana"]
        lasting = days.visit(1030.0)
        lasting.enter(lambda: days.ended.append("again"))
        assert lasting.fits(Principal(ana)) and lasting.lasting
        days.now = 5000.0
        await later(5000)
        assert days.ended == ["ana"]

    timed(body)
