"""Tokens of an issuer that publishes its keys (OpenID Connect Discovery): those of a provider that others made."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.access import AwaitsKeys, JwtOptions, Subjects, issuer
from gateway.access.issuer import AGAIN_SECONDS, REFRESH_SECONDS
from gateway.core.errors import AgentBroken, Unavailable
from tests.authentication.rig import bearer
from tests.limits.rig import Clock, Limited, gateway
from tests.support.aio import run
from tests.support.peers import oidc_provider
from tests.support.processes import Process, free_port
from tests.support.scripted import bound, until
from tests.support.serving import serving

AUDIENCE = "https://gateway.example.com"


@pytest.fixture(scope="module")
def provider() -> Iterator[Process]:
    with oidc_provider() as running:
        yield running


def options(url: str, **more: Any) -> JwtOptions:
    return JwtOptions.model_validate({"discovery": url, "algorithms": ["RS256", "ES256"], "audience": AUDIENCE, **more})


def token(url: str, client: str = "robot", resource: str = AUDIENCE) -> str:
    """A token that the provider gives to a client of its own."""
    asked = {"grant_type": "client_credentials", "resource": resource}
    found = httpx2.post(f"{url}/token", data=asked, auth=(client, "secret"), timeout=60)
    assert found.status_code == 200, found.text
    return str(found.json()["access_token"])


def control(url: str, what: str, method: str = "POST") -> dict[str, Any]:
    found: dict[str, Any] = httpx2.request(method, f"{url}/control/{what}", timeout=60).json()
    return found


class Judge:
    """The subjects of tokens as a door finds them, with a clock that stands still for the keys."""

    def __init__(self, options: JwtOptions) -> None:
        self.clock = Clock()
        self.waited = 0
        """How often a token had to wait for keys."""
        self._subjects = Subjects(options)
        assert self._subjects.keys is not None
        self._subjects.keys.now = self.clock

    async def name(self, token: str) -> str | None:
        """Whose it is, None for nobody's. Raises Unavailable."""
        try:
            found = self._subjects.find(token)
        except AwaitsKeys as awaits:
            self.waited += 1
            assert str(awaits).endswith("try again") and awaits.retry_after, "said by who cannot wait"
            await awaits.fetched()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(AwaitsKeys, "fetched", None)  # a second look never waits again
                found = self._subjects.find(token)
        return None if found is None else found.name

    async def refused(self, token: str, why: str = "try again later") -> float:
        """The seconds after which a token may be shown again that cannot be judged now."""
        with pytest.raises(Unavailable, match=why) as found:
            await self.name(token)
        return found.value.retry_after


# --- the provider that others made -----------------------------------------------------------------------------------


async def test_a_token_of_the_issuer_is_its_clients_and_the_keys_are_fetched_once(provider: Process) -> None:
    judge, before = Judge(options(provider.url)), control(provider.url, "asked", "GET")["asked"]
    for client in ("robot", "visitor", "robot"):
        assert await judge.name(token(provider.url, client)) == client
        judge.clock.now += AGAIN_SECONDS
        assert not fetching()
    assert judge.waited == 1
    assert control(provider.url, "asked", "GET")["asked"] == before + 1


async def test_a_token_for_others_an_expired_one_and_a_changed_one_are_nobodys(provider: Process) -> None:
    judge = Judge(options(provider.url))
    good, expired = token(provider.url), token(provider.url, resource=f"{AUDIENCE}/short")
    head, body, signature = good.split(".")
    assert await judge.name(good) == "robot"
    assert await judge.name(token(provider.url, resource="https://other.example.com")) is None
    assert await judge.name(f"{head}.{body}.{signature[::-1]}") is None
    short = Judge(options(provider.url, audience=f"{AUDIENCE}/short"))
    await until(lambda: jwt.decode(expired, options={"verify_signature": False})["exp"] < time.time())
    assert await short.name(expired) is None


def test_new_keys_are_fetched_for_the_first_token_of_one_and_an_old_one_that_is_gone_opens_nothing() -> None:
    with oidc_provider() as provider:
        asyncio.run(_rotated(provider.url))


async def _rotated(url: str) -> None:
    judge, old = Judge(options(url)), token(url)
    assert await judge.name(old) == "robot"
    control(url, "rotate")
    new = token(url)
    assert await judge.refused(new, "the token's key is not known") == AGAIN_SECONDS, "it was asked a moment ago"
    judge.clock.now += AGAIN_SECONDS
    assert await judge.name(new) == "robot"
    assert judge.waited == 2
    assert await judge.name(old) == "robot", "its key is still published"
    control(url, "drop")
    assert await judge.name(old) == "robot"
    judge.clock.now += REFRESH_SECONDS
    assert await judge.name(new) == "robot", "old keys are used while new ones are fetched"
    await until(lambda: not fetching())
    assert await judge.name(new) == "robot"
    assert await judge.refused(old, "the token's key is not known") == AGAIN_SECONDS
    judge.clock.now += AGAIN_SECONDS
    assert await judge.name(old) is None, "its key is gone"
    assert await judge.name(new) == "robot"


def fetching() -> list[asyncio.Task[Any]]:
    """The tasks that ask issuers for their keys."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("keys of")]


async def test_a_key_that_nobody_has_is_asked_for_once_and_many_such_do_not_reach_the_issuer(provider: Process) -> None:
    judge = Judge(options(provider.url))
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    claims = {"sub": "robot", "aud": AUDIENCE, "iss": provider.url, "exp": time.time() + 600}

    def forged(kid: str) -> str:
        return jwt.encode(claims, key, "RS256", headers={"kid": kid})

    assert await judge.name(token(provider.url)) == "robot"
    judge.clock.now += AGAIN_SECONDS
    before = control(provider.url, "asked", "GET")["asked"]
    assert await judge.name(forged("first")) is None
    for number in range(50):
        assert await judge.refused(forged(f"other {number}")) == AGAIN_SECONDS
    judge.clock.now += AGAIN_SECONDS
    assert await judge.name(forged("first")) is None
    assert control(provider.url, "asked", "GET")["asked"] == before + 1
    assert await judge.name(forged(control(provider.url, "asked", "GET")["newest"])) is None
    assert await judge.name(token(provider.url)) == "robot"


async def test_an_issuer_that_is_down_is_asked_again_and_its_old_keys_go_on_as_long_as_the_options_say() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    judge = Judge(options(url, keep=1000))
    nobodys = jwt.encode({"sub": "x", "aud": AUDIENCE}, rsa.generate_private_key(65537, 2048), "RS256")
    assert await judge.refused(nobodys, "the issuer of the token cannot be asked") == AGAIN_SECONDS
    judge.clock.now += 4
    assert await judge.refused(nobodys) == AGAIN_SECONDS - 4
    assert judge.waited == 1
    with oidc_provider(port):
        judge.clock.now += AGAIN_SECONDS - 4
        good = token(url)
        assert await judge.name(good) == "robot"
    judge.clock.now += 999
    assert await judge.name(good) == "robot"
    judge.clock.now += 1
    assert await judge.refused(good) == AGAIN_SECONDS - 1


# --- at the doors ----------------------------------------------------------------------------------------------------

ROUTES = """
store: {{url: 'sqlite://'}}
inbound:
  agent_client:
    authentication: &people
      jwt: &jwt {{discovery: "{url}", algorithms: [RS256], audience: {audience}}}
  agent_communication: {{authentication: *people}}
  agent_connect: {{authentication: *people}}
  agent_context: {{access: {{jwt: {{<<: *jwt, may: [read, message]}}}}}}
  agent_protocol: {{authentication: *people}}
operators: {{jwt: {{<<: *jwt, audience: {audience}/operators}}}}
routes: []
"""
WHO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": WHO}
EITHER = {"accept": "application/json, text/event-stream"}
EDITOR = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/agent-client", {"json": EDITOR}),
    ("POST", "/agent-communication/mcp", {"json": HELLO, "headers": EITHER}),
    ("POST", "/agent-connect/agents/search", {"json": {}}),
    ("POST", "/agent-context", {"json": HELLO, "headers": EITHER}),
    ("GET", "/agent-protocol/echo/ap/v1/agent/tasks", {}),
    ("GET", "/admin", {}),
]


async def test_each_door_waits_for_the_keys_of_the_first_token_and_then_serves_its_client(provider: Process) -> None:
    async with gateway(ROUTES.format(url=provider.url, audience=AUDIENCE)) as there:
        for method, path, more in ASKED:
            audience = f"{AUDIENCE}/operators" if path.startswith("/admin") else AUDIENCE
            shown = await asyncio.to_thread(token, provider.url, resource=audience)
            found = await there.call(method, path, shown, **more)
            assert found.status_code == 200, (path, found.status_code, found.text)
            other = await asyncio.to_thread(token, provider.url, resource="https://other.example.com")
            wrong = await there.call(method, path, other, **more)
            if path != "/agent-context":  # whoever shows nothing that holds may connect there, and do nothing
                assert wrong.status_code == 401, (path, wrong.text)


async def test_while_the_issuer_is_down_a_token_of_its_is_refused_with_503_at_each_door_and_nobody_elses_is() -> None:
    shown = jwt.encode({"sub": "x", "aud": AUDIENCE}, rsa.generate_private_key(65537, 2048), "RS256")
    async with gateway(ROUTES.format(url=f"http://127.0.0.1:{free_port()}", audience=AUDIENCE)) as there:
        for method, path, more in ASKED:
            found = await there.call(method, path, shown, **more)
            assert (found.status_code, found.headers["retry-after"]) == (503, "10"), (path, found.text)
            assert "the issuer of the token cannot be asked for its keys" in found.text
            nobodys = await there.call(method, path, "no-jwt", **more)
            assert nobodys.status_code == (200 if path == "/agent-context" else 401), (path, nobodys.text)


async def test_an_editor_that_authenticates_by_a_message_waits_for_the_keys_too(provider: Process) -> None:
    async with gateway(ROUTES.format(url=provider.url, audience=AUDIENCE)) as there:
        shown = await asyncio.to_thread(token, provider.url)
        assert "result" in await authenticated(there, shown)
        assert (await authenticated(there, "no-jwt"))["error"]["code"] == -32000


async def authenticated(there: Limited, token: str) -> Any:
    """What `authenticate` is answered with on a WebSocket of its own."""
    from gateway.transport.websocket.client import connect

    pipe = await connect(f"{there.url.replace('http', 'ws')}/agent-client")
    try:
        login = {"methodId": "interlingua", "_meta": {"token": token}}
        for message in (EDITOR, {"jsonrpc": "2.0", "id": 2, "method": "authenticate", "params": login}):
            await pipe.send([json.dumps(message).encode()])
            (answer,) = await pipe.receive()
        assert isinstance(answer, bytes)
        return json.loads(answer)
    finally:
        await pipe.aclose()


# --- issuers that are not as they should be --------------------------------------------------------------------------

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
SMALL = rsa.generate_private_key(public_exponent=65537, key_size=1024)
CURVE = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, **more: Any) -> dict[str, Any]:
    """A published key."""
    made = ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else RSAAlgorithm
    return {**made.to_jwk(key.public_key(), as_dict=True), "kid": "k", **more}


def signed(url: str, key: Any = KEY, algorithm: str = "RS256", kid: str | None = "k", **claims: Any) -> str:
    """A token of an issuer that is ours."""
    said = {"sub": "robot", "aud": AUDIENCE, "iss": url, "exp": time.time() + 600, **claims}
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, key, algorithm, headers={} if kid is None else {"kid": kid})


@asynccontextmanager
async def issuing(keys: Any, metadata: Callable[[str], Any] | None = None, status: int = 200) -> AsyncIterator[str]:
    """An issuer that publishes just this; its URL. `metadata` is made of that."""
    listener, url = bound()

    async def answer(request: Request) -> Response:
        said = metadata(url) if metadata else {"issuer": url, "jwks_uri": f"{url}/keys"}
        told = said if request.url.path.startswith("/.well-known") else keys
        return Response(told if isinstance(told, str) else json.dumps(told), status)

    app = Starlette(routes=[Route("/{path:path}", answer)])
    async with serving(app, listener):
        yield url


@pytest.mark.parametrize(
    ("keys", "shown", "found"),
    [
        ([jwk(KEY)], {}, "robot"),
        ([jwk(KEY, use="sig", alg="RS256")], {}, "robot"),
        ([jwk(KEY)], {"kid": None}, "robot"),
        ([jwk(CURVE, kid="other"), jwk(KEY)], {"kid": None}, "robot"),
        ([jwk(CURVE)], {"key": CURVE, "algorithm": "ES256"}, "robot"),
        ([jwk(KEY), "nonsense", {}, {"kty": ["RSA"]}, {"kty": "RSA", "n": 5}], {}, "robot"),
        ([jwk(KEY)], {"iss": "https://other.example.com"}, None),
        ([jwk(KEY)], {"iss": None}, None),
        ([jwk(KEY)], {"exp": time.time() - 1}, None),
        ([jwk(KEY)], {"sub": ""}, None),
        ([jwk(KEY)], {"algorithm": "RS512"}, None),
        ([jwk(KEY)], {"algorithm": "HS256", "key": "s" * 64}, None),
        ([jwk(KEY)], {"algorithm": "none", "key": ""}, None),
        ([jwk(KEY), jwk(KEY, kid="other")], {"kid": None}, None),
        ([jwk(KEY), jwk(SMALL, kid="small")], {"key": SMALL, "kid": "small"}, None),
        ([jwk(KEY), jwk(CURVE, kid="c", use="enc")], {"key": CURVE, "algorithm": "ES256", "kid": "c"}, None),
        ([jwk(KEY, alg="RS512"), jwk(CURVE)], {}, None),
        (
            [jwk(KEY), {"kty": "oct", "k": "c3Nzcw", "kid": "s"}],
            {"key": "s" * 64, "algorithm": "HS256", "kid": "s"},
            None,
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits")
async def test_a_token_is_judged_by_the_key_that_it_names_for_the_algorithms_that_are_accepted(
    keys: Any, shown: dict[str, Any], found: str | None
) -> None:
    async with issuing({"keys": keys}) as url:
        judge = Judge(options(url))
        assert await judge.name(signed(url, **shown)) == found


CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


@pytest.mark.parametrize("algorithm", [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)])
async def test_each_algorithm_with_public_keys_is_taken_where_it_is_accepted_and_not_elsewhere(algorithm: str) -> None:
    key = ec.generate_private_key(CURVES[algorithm]) if algorithm in CURVES else KEY

    async with issuing({"keys": [jwk(key), jwk(KEY, kid="other")]}) as url:
        shown = signed(url, key, algorithm)
        assert await Judge(options(url, algorithms=[algorithm])).name(shown) == "robot"
        other = "RS256" if algorithm != "RS256" else "RS384"
        strict = Judge(options(url, algorithms=[other]))
        assert await strict.name(shown) is None and strict.waited == 0


async def test_a_key_of_edwards_curve_is_taken_too() -> None:
    key = Ed25519PrivateKey.generate()
    published = {**OKPAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "k"}

    async with issuing({"keys": [published]}) as url:
        assert await Judge(options(url, algorithms=["EdDSA"])).name(signed(url, key, "EdDSA")) == "robot"


def test_keys_of_an_encrypted_issuer_that_are_not_encrypted_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(place: str) -> int:
        url = "https://login.example.com"

        async def document(client: Any, asked: str) -> dict[str, Any]:
            return {"keys": [jwk(KEY)]} if asked == place else {"issuer": url, "jwks_uri": place}

        monkeypatch.setattr(issuer, "_document", document)
        return len((await issuer.published_by(options(url))).keys)

    assert run(main("https://login.example.com/keys")) == 1
    with pytest.raises(AgentBroken, match="not encrypted"):
        run(main("http://login.example.com/keys"))


def test_a_fault_of_ours_is_as_an_issuer_that_is_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(options: JwtOptions) -> Any:
        raise RuntimeError("of ours")

    monkeypatch.setattr(issuer, "published_by", broken)

    async def main() -> None:
        assert await Judge(options("http://127.0.0.1:1")).refused(signed("x"), "cannot be asked") == AGAIN_SECONDS

    run(main())
    assert "of ours" in caplog.text


async def test_an_issuer_may_call_itself_otherwise_where_the_options_say_so() -> None:
    public = "https://login.example.com/"

    async with issuing({"keys": [jwk(KEY)]}, lambda url: {"issuer": public, "jwks_uri": f"{url}/keys"}) as url:
        assert await Judge(options(url, issuer=public)).name(signed(url, iss=public)) == "robot"
        assert await Judge(options(url, issuer=public)).name(signed(url)) is None
        await Judge(options(url)).refused(signed(url, iss=public))
    async with issuing({"keys": [jwk(KEY)]}, lambda url: {"issuer": f"{url}/", "jwks_uri": f"{url}/keys"}) as url:
        assert await Judge(options(url)).name(signed(f"{url}/")) == "robot"
        assert await Judge(options(url)).name(signed(url)) is None


@pytest.mark.parametrize(
    ("keys", "metadata", "status"),
    [
        ({"keys": []}, None, 200),
        ({"keys": [jwk(SMALL)]}, None, 200),
        ({"keys": 5}, None, 200),
        ([jwk(KEY)], None, 200),
        ("{", None, 200),
        ({"keys": [jwk(KEY)]}, None, 500),
        ({"keys": [jwk(KEY)]}, lambda url: {"issuer": url}, 200),
        ({"keys": [jwk(KEY)]}, lambda url: {"issuer": url, "jwks_uri": "file:///etc/passwd"}, 200),
        ({"keys": [jwk(KEY)]}, lambda url: {"issuer": "https://other", "jwks_uri": f"{url}/keys"}, 200),
        ({"keys": [jwk(KEY)]}, lambda url: "x" * 2_000_000, 200),
    ],
)
async def test_an_issuer_that_publishes_nothing_to_trust_is_as_one_that_is_down(
    keys: Any, metadata: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with issuing(keys, metadata, status) as url:
        assert await Judge(options(url)).refused(signed(url)) == AGAIN_SECONDS
        assert f"{url}: no keys: " in caplog.text


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"key": "k" * 32, "algorithms": ["HS256"]}, "name one of key, key_file and discovery"),
        ({"algorithms": ["HS256"]}, "no issuer publishes a secret"),
        ({"algorithms": ["RS256", "HS512"]}, "no issuer publishes a secret"),
        ({"discovery": "login.example.com"}, "should begin with http:// or https://"),
        ({"discovery": "https://login.example.com/?x"}, "should end with a host or path"),
        ({"keep": 0}, "greater than 0"),
    ],
)
def test_options_that_could_not_be_used_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        options(
            **{
                "url": "https://login.example.com",
                **({"url": given.pop("discovery")} if "discovery" in given else {}),
                **given,
            }
        )


async def test_what_is_shown_by_key_of_the_other_header_waits_as_well(provider: Process) -> None:
    async with gateway(ROUTES.format(url=provider.url, audience=AUDIENCE)) as there:
        shown = await asyncio.to_thread(token, provider.url)
        path = f"{there.url}/agent-connect/agents/search"
        assert (await there.http.post(path, json={}, headers={"x-api-key": shown})).status_code == 200
        assert (await there.http.post(path, json={}, headers=bearer(shown))).status_code == 200
