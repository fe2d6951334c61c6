"""`gateway.wire.jsonrpc`: one case table for what comes in, and laws that hold for whatever goes out."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from gateway.core.errors import AgentFailed, Invalid
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorObject,
    Glimpse,
    Malformed,
    MessageBatch,
    Notification,
    Request,
    Response,
    RpcError,
    glimpse,
    unpack,
)
from tests.core.json_values import ALPHABET, FLOATS, HALVED, INTEGERS, json_values


def request(id: Any, method: str = "m", params: bytes = b"") -> Request:
    return Request(id, method, Raw(params))


def answer(id: Any, result: bytes = b"", error: ErrorObject | None = None) -> Response:
    return Response(id, Raw(result), error)


# name: (the bytes, the message they are)
MESSAGES: dict[str, tuple[bytes, Any]] = {
    "a request": (b'{"jsonrpc":"2.0","id":0,"method":"m","params":{"a":[1]}}', request(0, params=b'{"a":[1]}')),
    "a request without params": (b'{"jsonrpc":"2.0","id":1,"method":"m"}', request(1)),
    "params that are null are kept": (b'{"jsonrpc":"2.0","id":1,"method":"m","params":null}', request(1, "m", b"null")),
    "an id of digits in quotes is a string": (b'{"jsonrpc":"2.0","id":"1","method":"m"}', request("1")),
    "an id that is null is an id": (b'{"jsonrpc":"2.0","id":null,"method":"m"}', request(None)),
    "a fraction as id": (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', request(1.5)),
    "an id of many digits": (b'{"jsonrpc":"2.0","id":%d,"method":"m"}' % 2**90, request(2**90)),
    "a notification": (b'{"jsonrpc":"2.0","method":"n","params":[]}', Notification("n", Raw(b"[]"))),
    "members in any order, and some that nobody knows": (
        b' {"x":{"id":9,"method":"no"},"params":1,"method":"m","_meta":null,"id":7,"jsonrpc":"2.0"}\r\n',
        request(7, params=b"1"),
    ),
    "the last of two equal members counts": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}', request(2)),
    "an answer": (b'{"jsonrpc":"2.0","id":3,"result":{"a":1}}', answer(3, b'{"a":1}')),
    "an answer of null": (b'{"jsonrpc":"2.0","id":3,"result":null}', answer(3, b"null")),
    "an error": (
        b'{"jsonrpc":"2.0","id":3,"error":{"code":-32000,"message":"no","data":[1],"more":2}}',
        answer(3, error=ErrorObject(-32000, "no", Raw(b"[1]"))),
    ),
    "an error beside null is an error": (
        b'{"jsonrpc":"2.0","id":3,"result":null,"error":{"code":1,"message":"no"}}',
        answer(3, error=ErrorObject(1, "no")),
    ),
    "a result beside an error of null is a result": (b'{"id":3,"result":1,"error":null}', answer(3, b"1")),
    "an answer without version": (b'{"id":3,"result":1}', answer(3, b"1")),
    "what has a method is no answer whatever else it has": (
        b'{"jsonrpc":"2.0","id":3,"result":1,"method":"m"}',
        request(3),
    ),
    "an error that is text": (b'{"id":3,"error":"boom"}', answer(3, error=ErrorObject(INTERNAL_ERROR, "boom"))),
    "an error with no code": (
        b'{"id":3,"error":{"message":"boom"}}',
        answer(3, error=ErrorObject(INTERNAL_ERROR, "boom")),
    ),
    "an error that is nothing known": (
        b'{"id":3,"error":{"code":"x"}}',
        answer(3, error=ErrorObject(INTERNAL_ERROR, "an error that cannot be read", Raw(b'{"code":"x"}'))),
    ),
    "half a surrogate pair stays an escape": (
        b'{"jsonrpc":"2.0","method":"n","params":{"t":"a\\ud83d","u":"\xc3\xa9"}}',
        Notification("n", Raw(b'{"t":"a\\ud83d","u":"\\u00e9"}')),
    ),
    "half a surrogate pair in an answer": (b'{"id":3,"result":"\\ude00"}', answer(3, b'"\\ude00"')),
    "a batch": (
        b'[{"jsonrpc":"2.0","method":"n"}, {"id":1,"result":2}]',
        MessageBatch((Notification("n"), answer(1, b"2"))),
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_what_it_says(name: str) -> None:
    data, expected = MESSAGES[name]
    assert jsonrpc.decode(data) == expected


# name: (the bytes, code, part of the reason, id, whether they are an answer)
NO_MESSAGES: dict[str, tuple[bytes, int, str, Any, bool]] = {
    "nothing": (b"", PARSE_ERROR, "truncated", UNSET, False),
    "words": (b"npm WARN deprecated", PARSE_ERROR, "malformed", UNSET, False),
    "two texts": (b"{} {}", PARSE_ERROR, "malformed", UNSET, False),
    "a number": (b"1", INVALID_REQUEST, "not an object", UNSET, False),
    "text with half a surrogate pair": (b'"\\ud800"', INVALID_REQUEST, "not an object", UNSET, False),
    "an empty object": (b"{}", INVALID_REQUEST, "neither method nor id", UNSET, False),
    "a line of a log": (b'{"level":"info","msg":"hi"}', INVALID_REQUEST, "neither", UNSET, False),
    "a result for nobody": (b'{"jsonrpc":"2.0","result":1}', INVALID_REQUEST, "neither", UNSET, False),
    "no version": (b'{"id":4,"method":"m"}', INVALID_REQUEST, 'jsonrpc is not "2.0"', 4, False),
    "another version": (b'{"jsonrpc":"1.0","id":4,"method":"m"}', INVALID_REQUEST, "jsonrpc", 4, False),
    "the version as a number": (b'{"jsonrpc":2.0,"id":4,"method":"m"}', INVALID_REQUEST, "jsonrpc", 4, False),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":4,"method":1}', INVALID_REQUEST, "method", 4, False),
    "a method that is half a pair": (b'{"jsonrpc":"2.0","id":4,"method":"\\ud83d"}', INVALID_REQUEST, "", 4, False),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"m"}', INVALID_REQUEST, "the id", UNSET, False),
    "an id that is an object": (b'{"jsonrpc":"2.0","id":{},"method":"m"}', INVALID_REQUEST, "the id", UNSET, False),
    "an id beyond all numbers": (b'{"jsonrpc":"2.0","id":1e999,"method":"m"}', INVALID_REQUEST, "id", UNSET, False),
    "an id that is half a pair": (b'{"jsonrpc":"2.0","id":"\\ud83d","method":"m"}', INVALID_REQUEST, "", UNSET, False),
    "an answer to half a pair": (b'{"id":"\\ud83d","result":1}', INVALID_REQUEST, "the id", UNSET, False),
    "no UTF-8 in a request": (
        b'{"jsonrpc":"2.0","id":"x","method":"m","params":"\xff"}',
        PARSE_ERROR,
        "UTF-8 at byte 49",
        "x",
        False,
    ),
    "no UTF-8 in an answer": (b'{"jsonrpc":"2.0","id":5,"result":"\xff"}', PARSE_ERROR, "UTF-8", 5, True),
    "a raw surrogate": (b'{"id":5,"result":"\xed\xa0\x80"}', PARSE_ERROR, "UTF-8", 5, True),
    "half an answer": (b'{"jsonrpc":"2.0","id":5,"result":{"a":', PARSE_ERROR, "truncated", 5, True),
    "half an answer with half a pair": (b'{"id":5,"result":"\\ud83d', PARSE_ERROR, "", 5, True),
    "a constant of JavaScript": (b'{"id":5,"result":["\\ud83d",NaN]}', PARSE_ERROR, "NaN", 5, True),
    "brackets without end": (b"[" * 100_000, PARSE_ERROR, "deep", UNSET, False),
    "params nested too deep": (
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        PARSE_ERROR,
        "deep",
        1,
        False,
    ),
    "half a pair and nested too deep": (
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":["\\ud83d",' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
        PARSE_ERROR,
        "",
        1,
        False,
    ),
    "an empty batch": (b" [ ]", INVALID_REQUEST, "an empty array", UNSET, False),
    "a batch of too many": (b"[" + b"1," * 1000 + b"1]", INVALID_REQUEST, "1000 messages", UNSET, False),
    "a batch too long": (b"[" + b" " * 1024 * 1024 + b"1]", INVALID_REQUEST, "1048576 bytes", UNSET, False),
    "an array that is no JSON": (b"[1", PARSE_ERROR, "truncated", UNSET, False),
}


@pytest.mark.parametrize("name", NO_MESSAGES)
def test_what_is_no_message_says_why_and_for_whom(name: str) -> None:
    data, code, reason, id, is_answer = NO_MESSAGES[name]
    found = jsonrpc.decode(data)
    assert isinstance(found, Malformed)
    assert (found.code, found.id, found.answer, found.size) == (code, id, is_answer, len(data))
    assert reason in found.reason
    assert found.start == data[:200]


def test_a_batch_in_a_batch_is_not_looked_into() -> None:
    depth = 300
    found = jsonrpc.decode(b"[" * depth + b"]" * depth)
    assert isinstance(found, MessageBatch)
    assert [one.reason for one in found.messages if isinstance(one, Malformed)] == ["an array in an array"]


def test_a_batch_says_of_each_what_is_wrong_with_it() -> None:
    found = jsonrpc.decode(b'[1,{"jsonrpc":"2.0","id":1,"method":"m"},{"id":2,"method":"m"},{"t":"\\ud83d"}]')
    assert isinstance(found, MessageBatch)
    kinds = [type(one).__name__ for one in found.messages]
    assert kinds == ["Malformed", "Request", "Malformed", "Malformed"]


def test_ids_of_different_type_are_different_though_equal_numbers_are_not() -> None:
    ids = [b"1", b'"1"', b"1.5", b"null", b'"null"']
    found = [jsonrpc.decode(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % id) for id in ids]
    assert len({one.id for one in found if isinstance(one, Request)}) == len(ids)
    assert jsonrpc.result(1) != jsonrpc.result("1")


@pytest.mark.parametrize("id", [0, -1, 2**90, "", "1", "é", 1.5, 1.0, None], ids=repr)
def test_an_id_is_echoed_with_its_type(id: Any) -> None:
    asked = jsonrpc.decode(jsonrpc.request(id, "m"))
    assert isinstance(asked, Request)
    told = jsonrpc.decode(jsonrpc.result(asked.id, 1))
    assert isinstance(told, Response)
    assert (told.id, type(told.id)) == (id, type(id))
    assert json.loads(jsonrpc.error(asked.id, ErrorObject(1, "x")))["id"] == id


def test_an_answer_that_is_only_an_id_is_bare() -> None:
    assert jsonrpc.decode(b'{"jsonrpc":"2.0","id":3}') == Response(3)
    assert Response(3).bare
    assert not answer(3, b"null").bare
    assert not answer(3, error=ErrorObject(1, "")).bare


def test_half_pairs_in_a_large_message_are_replaced_and_whole_ones_are_not() -> None:
    text = '"\\ud83d\\ude00 \\\\ud83d \\ud83d \\uDE00 \\u00e9"'
    filler = " " * (1024 * 1024)
    found = jsonrpc.decode(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":[{text},"{filler}"]}}'.encode())
    assert isinstance(found, Request)
    assert unpack(found.params)[0] == "😀 \\ud83d \ufffd \ufffd é"


def test_unpacking_keeps_half_pairs_and_judges_types() -> None:
    assert unpack(Raw(b'["\\ud83d"]'), list[str]) == ["\ud83d"]
    assert unpack(b"[1]", list[int]) == [1]
    for wrong in (b'["a"]', b'["\\ud83d"]'):
        with pytest.raises(msgspec.ValidationError):
            unpack(wrong, list[int])
    with pytest.raises(msgspec.DecodeError):
        unpack(Raw())


UNSTORABLE = {
    "half a pair in a text": (rb'{"a":{"b/c":["x","\ud800y"]}}', "/a/b~1c/1", "surrogate"),
    "half a pair in a name": (rb'{"a":[{"\udfff":1}]}', "/a/0", "name of a member"),
    "the second half alone": (rb'{"a":"\udc00\ud800"}', "/a", "surrogate"),
    "a number beyond all doubles": (b'{"a":[0,-1e400]}', "/a/1", "out of range"),
    "an integer of too many digits": (b'{"a":{"b":%b}}' % (b"9" * 5000), "/a/b", "out of range"),
    "both": (rb'{"a":1E+999,"b":"\ud800"}', "/a", "out of range"),
    "deep nests": (b"[" * 100_000 + b"]" * 100_000, "", "nested too deep"),
    "no object": (rb'"\ud800"', "", "surrogate"),
    "a large text": (rb'{"a":"\ud800' + b"x" * (1 << 20) + b'"}', "", "params: "),
}


@pytest.mark.parametrize("name", UNSTORABLE)
def test_params_that_nobody_can_store_are_refused_with_their_place(name: str) -> None:
    params, path, why = UNSTORABLE[name]
    with pytest.raises(Invalid, match=why) as refused:
        jsonrpc.check(Raw(params))
    assert refused.value.path == path


@pytest.mark.parametrize(
    "params", [b"", b"null", rb'{"\ud83d\ude00":"\ud83d\ude00"}', b'{"a":[1e308,1e-400,-0.0]}', b"9" * 4300]
)
def test_params_that_can_be_stored_are_taken(params: bytes) -> None:
    jsonrpc.check(Raw(params))


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 5000])
def test_half_a_pair_beside_a_number_beyond_all_is_no_json(number: bytes) -> None:
    found = jsonrpc.decode(rb'{"jsonrpc":"2.0","id":1,"method":"m","params":["\ud83d",' + number + b"]}")
    assert isinstance(found, Malformed)
    assert (found.code, found.id, found.method) == (PARSE_ERROR, 1, "m")
    with pytest.raises(msgspec.DecodeError):
        unpack(rb'["\ud83d",' + number + b"]")


# --- going out ---------------------------------------------------------------------------------------------------


def test_absent_params_are_left_out_and_an_absent_result_is_null() -> None:
    assert jsonrpc.request(1, "m") == b'{"jsonrpc":"2.0","id":1,"method":"m"}'
    assert jsonrpc.notification("m", Raw()) == b'{"jsonrpc":"2.0","method":"m"}'
    assert jsonrpc.result("a") == jsonrpc.result("a", Raw()) == b'{"jsonrpc":"2.0","id":"a","result":null}'
    bare = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}'
    assert jsonrpc.error(None, ErrorObject(PARSE_ERROR, "no")) == bare
    assert b'"data":null' in jsonrpc.error(1, ErrorObject(1, "no", None))


def test_a_raw_goes_out_as_it_is_but_on_one_line() -> None:
    raw = Raw(b'{\r\n  "a": 1.10,\n  "b\\n": "\xc3\xa9"\n}')
    assert jsonrpc.request(1, "m", raw).endswith(b'"params":{    "a": 1.10,   "b\\n": "\xc3\xa9" }}')
    assert jsonrpc.result(1, Raw(b"[\n]")).endswith(b"[ ]}")
    assert jsonrpc.result(1, Raw(b"[\r]")).endswith(b"[ ]}")


def test_half_pairs_go_out_as_escapes_with_raws_and_structs_beside_them() -> None:
    class Point(msgspec.Struct):
        x: int

    data = jsonrpc.notification("m", {"t": "\ud83d", "raw": Raw(b'["\\ude00",\n1]'), "p": Point(1), "n": math.nan})
    assert json.loads(data)["params"] == {"t": "\ud83d", "raw": ["\ude00", 1], "p": {"x": 1}, "n": None}
    assert data.isascii()
    with pytest.raises(TypeError):
        jsonrpc.notification("m", ["\ud83d", object()])


def test_what_cannot_be_json_is_refused() -> None:
    with pytest.raises(TypeError):
        jsonrpc.result(1, object())


def test_an_error_is_an_answer_of_the_agents_and_carries_all_of_it() -> None:
    error = RpcError(-32000, "log in first", {"a": 1})
    assert isinstance(error, AgentFailed)
    assert str(error) == "log in first"
    assert json.loads(jsonrpc.error(1, error.error))["error"] == {
        "code": -32000,
        "message": "log in first",
        "data": {"a": 1},
    }


IDS = st.integers(-(2**70), 2**70) | st.text(ALPHABET, max_size=4) | st.none() | st.floats(-1e9, 1e9)
VALUES = json_values(HALVED, INTEGERS | FLOATS)
METHODS = st.text(ALPHABET, max_size=8)


def loose(value: Any) -> Any:
    """As JSON sees it, so that 1.0 and -0.0 are told from 1 and 0."""
    return json.dumps(value, sort_keys=True)


@given(IDS, METHODS, VALUES)
def test_what_is_encoded_is_decoded_the_same_and_is_one_line(id: Any, method: str, value: Any) -> None:
    wanted = loose(value)
    for data in (
        jsonrpc.request(id, method, [value]),
        jsonrpc.notification(method, [value]),
        jsonrpc.result(id, [value]),
        jsonrpc.error(id, ErrorObject(-1, method, [value])),
    ):
        assert b"\n" not in data and b"\r" not in data
        found = jsonrpc.decode(data)
        assert json.loads(data)["jsonrpc"] == "2.0"
        if isinstance(found, Request | Notification):
            assert found.method == method
            body = found.params
        else:
            assert isinstance(found, Response)
            assert found.error is None or (found.error.code, found.error.message) == (-1, method)
            body = found.result if found.error is None else found.error.data
        if not isinstance(found, Notification):
            assert (found.id, type(found.id)) == (id, type(id))
        assert loose(unpack(body)) == loose([value]) == f"[{wanted}]"


MEMBERS = {
    "jsonrpc": st.sampled_from(['"2.0"', '"2.0"', '"2.0"', '"1.0"', "2", "null"]),
    "id": st.sampled_from(["1", '"1"', "null", "true", "1.5", "{}", '"\\ud83d"']),
    "method": st.sampled_from(['"m"', '"m"', "null", "1", '"\\ud83d"']),
    "params": st.sampled_from(["{}", "[1]", "null", '"\\ud83d"', "[NaN]"]),
    "result": st.sampled_from(["null", "1", '{"id":2}', '"\\ude00"']),
    "error": st.sampled_from(["null", '{"code":1,"message":"x"}', '"x"', "[]"]),
    "_meta": st.sampled_from(["1", '{"method":"no"}']),
}


@given(st.lists(st.sampled_from(sorted(MEMBERS)), unique=True), st.data())
def test_what_is_a_message_does_not_depend_on_what_nobody_reads(names: list[str], data: st.DataObject) -> None:
    members = [f'"{name}":{data.draw(MEMBERS[name])}' for name in names]
    plain = jsonrpc.decode(("{" + ",".join(members) + "}").encode())
    with_half = jsonrpc.decode(("{" + ",".join(['"_x":"\\ud83d"', *members]) + "}").encode())  # read the slow way
    if isinstance(plain, Malformed):
        assert isinstance(with_half, Malformed)
        assert (plain.code, plain.id) == (with_half.code, with_half.id)
    else:
        assert with_half == plain
    if "method" in names:
        assert not isinstance(plain, Response)


@given(st.binary(max_size=60) | st.text(ALPHABET + '{}[]:,"0123idmethodresult\\', max_size=60).map(str.encode))
def test_no_bytes_whatever_make_decoding_raise(data: bytes) -> None:
    assert isinstance(jsonrpc.decode(data), Request | Notification | Response | Malformed | MessageBatch)
    glimpse(data)


@given(IDS, METHODS, VALUES, st.data())
def test_a_message_cut_anywhere_is_never_taken_for_another(
    id: Any, method: str, value: Any, data: st.DataObject
) -> None:
    whole = jsonrpc.decode(jsonrpc.request(id, method, [value]))
    cut = jsonrpc.request(id, method, [value])
    cut = cut[: data.draw(st.integers(0, len(cut) - 1))]
    assert isinstance(jsonrpc.decode(cut), Malformed)
    seen = glimpse(cut)
    assert isinstance(whole, Request)
    assert not seen.answer
    assert seen.id is UNSET or seen.id == id
    assert seen.method in ("", method)


# name: (first bytes, what they tell)
GLIMPSES: dict[str, tuple[bytes, Glimpse]] = {
    "a request": (b'{"jsonrpc":"2.0","id":7,"method":"a/b","params":{"x', Glimpse(7, "a/b")),
    "the method first": (b'{ "method" : "a" , "id" : "7" , "params":[', Glimpse("7", "a")),
    "an answer": (b'{"jsonrpc":"2.0","id":7,"result":{"co', Glimpse(7, answer=True)),
    "an error": (b'{"id":null,"error":', Glimpse(None, answer=True)),
    "a result before its id": (b'{"result":{"a":1', Glimpse()),
    "an id after the params": (b'{"method":"m","params":{"a', Glimpse(method="m")),
    "a number that may go on": (b'{"id":12', Glimpse()),
    "an id that is none": (b'{"id":true,"method":"m","params":', Glimpse(method="m")),
    "a method and a result": (b'{"id":1,"method":"m","result":', Glimpse(1, "m")),
    "no object": (b"[1,2", Glimpse()),
    "no JSON": (b"\xff\xfe{", Glimpse()),
    "nothing": (b"", Glimpse()),
}


@pytest.mark.parametrize("name", GLIMPSES)
def test_the_first_bytes_tell_whose_message_it_was(name: str) -> None:
    start, expected = GLIMPSES[name]
    assert glimpse(start) == expected


# name: (first bytes, last bytes, what they tell)
ENDS: dict[str, tuple[bytes, bytes, Glimpse]] = {
    "a request of the TypeScript SDK": (
        b'{"method":"m","params":{"a":"',
        b'x"},"jsonrpc":"2.0","id":7}',
        Glimpse(7, "m"),
    ),
    "an answer of it": (b'{"result":{"a":"', b'"}]}, "jsonrpc": "2.0", "id": "7" } \r', Glimpse("7", answer=True)),
    "an error": (b'{"error":{"data":"', b'"},"id":7}', Glimpse(7, answer=True)),
    "the params first": (b'{"params":{"a', b'},"id":7,"method":"m"}', Glimpse(7, "m")),
    "a text that looks like it": (b'{"result":{"a', rb'","a":"b,\"id\":7}', Glimpse()),
    "a key that looks like it": (b'{"result":{"a', rb'"},"b,\"id":7}', Glimpse()),
    "an id of something inside": (b'{"result":{"a', b'"},"id":7}}', Glimpse()),
    "an id in an array": (b'[{"result":{"a', b'"},"id":7}]', Glimpse()),
    "no id": (b'{"method":"m","params":{"a', b'"},"jsonrpc":"2.0"}', Glimpse(method="m")),
    "an id that is none": (b'{"method":"m","params":{"a', b'"},"id":true}', Glimpse(method="m")),
    "the end alone": (b'{"level":"info","words":"', b'"},"id":7}', Glimpse(7)),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_last_bytes_tell_what_the_first_do_not(name: str) -> None:
    start, end, expected = ENDS[name]
    assert glimpse(start, end) == expected


@given(IDS, METHODS, VALUES)
def test_the_ends_of_a_whole_message_tell_its_id_wherever_that_stands(id: Any, method: str, value: Any) -> None:
    for members in ({"method": method, "params": [value]}, {"result": [value]}):
        whole = jsonrpc.encoded({**members, "jsonrpc": "2.0", "id": id})
        assert glimpse(whole[:30], whole[-200:]).id == id


def test_what_is_nested_deeper_than_there_is_room_for_where_it_is_read_is_invalid() -> None:
    with pytest.raises(msgspec.ValidationError, match="nested too deep"):
        jsonrpc.unpack(b"[" * 200_000 + b"]" * 200_000)


@pytest.mark.parametrize(
    ("message", "data", "told"),
    [
        ("Internal error", {"details": "boom"}, "Internal error: boom"),
        ("Internal error", Raw(b'{"details": "boom"}'), "Internal error: boom"),
        ("Internal error", "OPENAI_API_KEY is not set\n", "Internal error: OPENAI_API_KEY is not set"),
        ("Internal error", {"error": {"code": 429, "message": "quota"}, "reason": "no"}, "Internal error: quota"),
        ("Internal error", {"message": "", "error": "quota"}, "Internal error: quota"),
        ("Internal error: boom", {"details": "boom"}, "Internal error: boom"),
        ("", {"details": "boom"}, "boom"),
        ("no", {"details": {"expected": "text"}, "code": "invalid", "path": "/x"}, "no"),
        ("no", {"details": {"error": {"message": "too deep"}}}, "no"),
        ("no", [1], "no"),
        ("no", None, "no"),
        ("no", Raw(), "no"),
        ("no", Raw(b'{"details": '), "no"),
        ("no", Raw(b"[" * 100_000), "no"),
        ("no", "x" * 10_000, f"no: {'x' * 499}…"),
    ],
)
def test_an_error_as_text_has_the_reason_that_only_its_data_gives(message: str, data: Any, told: str) -> None:
    error = RpcError(-32603, message, data)
    assert str(error) == told and error.error.message == message
