"""Every operation of every REST door takes whatever comes: never a 5xx, a traceback or a hang. As `test_jsonrpc.py`."""

from __future__ import annotations

import asyncio
import collections
import json
import random
import re
import time
from urllib.parse import urlsplit

import pytest

from tests.fuzz import operations
from tests.fuzz.doors import WITHIN
from tests.fuzz.judging import http_fault, log_fault
from tests.fuzz.mutation import mutated
from tests.fuzz.operations import Form, Operation
from tests.support.examples import FUZZ_SECONDS, FUZZ_SEED
from tests.support.processes import Gateway

COUNT = 500
STREAM_SECONDS = 2.0
"""How long a stream of events is read that goes on: then the client goes."""
VALID = 0.35
"""The share of requests that are sent as they should be."""
TEXTS = (b"\xff", b"/", b"\x00", b"x" * 5000, b"%ED%A0%80", b"\xed\xa0\x80")

SEGMENTS = [
    *(b"%ED%A0%80", b"%FF", b"%00", b"%2F", b"..", b"%2E%2E%2F", b"x" * 3000, b"%C3%A9", b"%", b"%zz", b"a%20b"),
    *(b"", b"null", b"0", b"-1", b"1e400", b"agent", b"00000000-0000-0000-0000-000000000000", b"\xff", b"\xc3\xa9"),
    *(b"%0A", b"%0D%0AX", b";a=b", b"{thread_id}", b"*", b"%E2%80%A8"),
]
VALUES = [
    *(b"1", b"0", b"-1", b"1e400", b"nan", b"inf", b"99999999999999999999", b"x", b"", b"true", b"%ED%A0%80", b"%FF"),
    *(
        b"%00",
        b"\xff",
        b"1.5",
        b"%C2%B2",
        b"interrupt",
        b"rollback",
        b"9" * 5000,
        b"00000000-0000-0000-0000-000000000000",
    ),
]
FORMS = (b"multipart/form-data", b"multipart/form-data; boundary=", b"multipart/form-data; boundary=\xff")
HEADERS = [
    *((b"content-type", value) for value in (b"text/plain", b"", b"application/json; charset=utf-16", b"\xff", *FORMS)),
    *((b"accept", value) for value in (b"text/event-stream", b"image/png", b"\xff;q=x", b"*/*;q=nan")),
    *((b"last-event-id", value) for value in (b"-1", b"x", b"9" * 5000, b"1.5", b"\xff", b"1.-1", b"")),
    *((b"traceparent", value) for value in (b"x", b"\xff", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01")),
    *((b"authorization", value) for value in (b"Bearer \xff", b"Basic eA==", b"Bearer", b"")),
    *((b"content-encoding", value) for value in (b"gzip", b"br", b"identity", b"\xff")),
    *((b"content-length", value) for value in (b"\xb2", b"-1", b"9" * 5000)),
    (b"host", b"\xff"), (b"origin", b"http://\xff"), (b"cookie", b"\xff=\xff"), (b"x-forwarded-host", b"\xff"),
    (b"range", b"bytes=9-1"), (b"if-none-match", b"\xff"), (b"transfer-encoding", b"x"),
]  # fmt: skip


@pytest.mark.parametrize("door", ["agent_connect", "agent_protocol"])
def test_no_request_is_an_internal_error(door: str, served: Gateway) -> None:
    operations_of = {"agent_connect": operations.agent_connect, "agent_protocol": operations.agent_protocol}[door]
    asyncio.run(_fuzz(door, operations_of(), served))


async def _fuzz(door: str, every: list[Operation], served: Gateway) -> None:
    began = time.monotonic()
    seed, before = FUZZ_SEED, len(served.process.stderr())
    statuses: collections.Counter[int] = collections.Counter()
    sent: collections.Counter[str] = collections.Counter()
    while True:
        fuzzer = Fuzzer(random.Random(f"{door} {seed}"), served.url, every)
        for at in range(COUNT):
            operation = every[at] if at < len(every) else fuzzer.rng.choice(every)
            status = await fuzzer.request(operation)
            statuses[status // 100] += 1
            sent[operation.id] += 1
            _judge(fuzzer, served.process.stderr()[before:] if at % 25 == 24 else "", seed)
        _judge(fuzzer, served.process.stderr()[before:], seed)
        seed += 1
        if time.monotonic() - began >= FUZZ_SECONDS:
            break
    print(f"{door}: {sent.total()} requests, {dict(statuses)} in {time.monotonic() - began:.1f} s")
    assert len(sent) == len(every)
    assert statuses[2] >= COUNT // 20 and statuses[4] >= COUNT // 5, statuses


def _judge(fuzzer: Fuzzer, log: str, seed: int) -> None:
    """Fail with the first fault, and the requests that came before it."""
    fault = fuzzer.fault or log_fault(log)
    recent = "\n".join(repr(data[:600]) for data in fuzzer.recent)
    assert fault is None, f"INTERLINGUA_FUZZ_SEED={seed}\n{fault}\nafter\n{recent}"


class Fuzzer:
    """Requests to one gateway, each over a connection of its own. `fault`: the first answer that must not be."""

    def __init__(self, rng: random.Random, url: str, every: list[Operation]) -> None:
        self.rng = rng
        self.fault: str | None = None
        self.recent: collections.deque[bytes] = collections.deque(maxlen=25)
        self._port = urlsplit(url).port or 80
        self._every = every
        self._names: dict[str, list[bytes]] = {"agent": [b"echo", b"asker", b"writer", b"every"], "agent_id": [b"echo"]}
        self._ids = re.compile(rb'"(thread_id|run_id|agent_id|task_id|step_id|artifact_id)": ?"([^"\\]+)"')

    async def request(self, operation: Operation) -> int:
        """Send it, mostly changed; the status, 0 where the connection was ended without an answer."""
        rng = self.rng
        odd = rng.random() >= VALID
        path = re.sub(r"\{(\w+)\}", lambda found: self._segment(found[1], odd).decode("latin-1"), operation.path)
        target = path.encode("latin-1") + self._query(operation, odd)
        kind, body = self._body(operation, odd)
        headers = {b"host": b"127.0.0.1", b"content-type": kind, b"content-length": str(len(body)).encode()}
        if odd and rng.random() < 0.2:
            name, value = rng.choice(HEADERS)
            headers[name] = value
        method = operation.method.encode()
        if odd and rng.random() < 0.03:
            method = rng.choice((b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"X", b"PATCH"))
        lines = [method + b" " + target + b" HTTP/1.1", *(name + b": " + value for name, value in headers.items())]
        data = b"\r\n".join([*lines, b"connection: close", b"", body])
        self.recent.append(data)
        try:
            answer = await asyncio.wait_for(self._exchange(data), WITHIN)
        except TimeoutError:
            self.fault = self.fault or f"was not answered within {WITHIN:g} s"
            return 0
        found = re.match(rb"HTTP/1.1 (\d{3})", answer)
        status = int(found[1]) if found else 0
        for name, value in self._ids.findall(answer):
            known = self._names.setdefault(name.decode(), [])
            known.append(value)
            del known[:-5]
        self.fault = self.fault or http_fault(status, answer)
        return status

    async def _exchange(self, data: bytes) -> bytes:
        """The answer: whole, or the beginning of a stream that goes on."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        answer = b""
        try:
            writer.write(data)
            while b"text/event-stream" not in answer:
                part = await reader.read(1 << 16)
                if not part:
                    return answer
                answer += part
            with_end = asyncio.create_task(reader.read())
            done, _ = await asyncio.wait([with_end], timeout=STREAM_SECONDS)
            if done:
                return answer + with_end.result()
            with_end.cancel()
            return answer
        except ConnectionError:
            return answer
        finally:
            writer.close()

    def _segment(self, parameter: str, odd: bool) -> bytes:
        """A path parameter: mostly of something that is there."""
        known = self._names.get(parameter)
        if not known or (odd and self.rng.random() < 0.15):
            return self.rng.choice(SEGMENTS)
        return self.rng.choice(known)

    def _query(self, operation: Operation, odd: bool) -> bytes:
        rng = self.rng
        given = [(b"timeout", b"1")] if "wait" in operation.path else []
        names = [name.encode() for name in operation.query] + [b"timeout", b"wait", b"x", b"%FF"]
        if odd and rng.random() < 0.3:
            given += [(rng.choice(names), rng.choice(VALUES)) for _ in range(rng.choice((1, 1, 2, 150)))]
        if odd and rng.random() < 0.05:
            given.append((b"&=&;%", b"=?"))
        return b"?" + b"&".join(name + b"=" + value for name, value in given) if given else b""

    def _body(self, operation: Operation, odd: bool) -> tuple[bytes, bytes]:
        body = operation.body
        if isinstance(body, Form):
            return self._form(body, odd)
        if body is None:
            return b"application/json", self.rng.choice((b"{}", b"\xff", b"[" * 3000)) if odd else b""
        return b"application/json", mutated(self.rng, body) if odd else json.dumps(body).encode()

    def _form(self, form: Form, odd: bool) -> tuple[bytes, bytes]:
        """Multipart; where it is odd with names that are none, parts that are missing, and without an end."""
        rng = self.rng
        name, fields = form.name.encode(), {key.encode(): value.encode() for key, value in form.fields.items()}
        if odd:
            name = rng.choice((name, b"../../x", b"\xff", b"", b"a\x00b", b"x" * 3000, b'"', b"%ED%A0%80"))
            fields = {key: rng.choice((value, b"..", *TEXTS)) for key, value in fields.items()}
        parts = [b'content-disposition: form-data; name="file"; filename="' + name + b'"\r\n\r\n' + form.file]
        parts += [b'content-disposition: form-data; name="' + key + b'"\r\n\r\n' + fields[key] for key in fields]
        if not odd:
            return b"multipart/form-data; boundary=b", _multipart(parts)
        rng.shuffle(parts)
        del parts[: rng.choice((0, 0, 0, 1, 2))]
        body = _multipart(parts)
        if rng.random() < 0.15:
            body = body[: rng.randrange(len(body))]
        if rng.random() < 0.1:
            at = rng.randrange(len(body) or 1)
            body = body[:at] + rng.choice((b"\xff", b"\r\n", b"\x00", b"--b")) + body[at:]
        return b"multipart/form-data; boundary=b", body


def _multipart(parts: list[bytes]) -> bytes:
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n"
