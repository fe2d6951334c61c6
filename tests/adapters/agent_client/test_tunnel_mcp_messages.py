"""The messages of MCP over the connection, as they are read and passed on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from adapters.agent_client import forwarded
from adapters.agent_client.tunnel import mcp_messages
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError


def raw(value: Any) -> Raw:
    """As it arrives, half surrogate pairs and all."""
    return Raw(json.dumps(value).encode())


def test_a_message_is_read_and_passed_on_whatever_its_texts_hold() -> None:
    inner = {"half": "\ud83d", "whole": "\u00e9\U0001f600", "number": 1.0, "none": None}
    message = raw({"connectionId": "a", "method": "tools/call", "params": inner, "new": [inner], "\ud83d": 1})
    said = mcp_messages.read(message)
    assert (said.connection_id, said.method, json.loads(bytes(said.params))) == ("a", "tools/call", inner)
    passed = json.loads(bytes(jsonrpc.replaced(message, connectionId="b", requestId=None)))
    assert passed == {"connectionId": "b", "method": "tools/call", "params": inner, "new": [inner], "\ud83d": 1}
    assert json.loads(bytes(jsonrpc.replaced(raw({"a": None}), a="1", b=None))) == {"a": "1"}


@pytest.mark.parametrize("params", [[], "x", {"connectionId": 1, "method": "x"}, {"method": ["\ud83d"]}])
def test_what_is_no_message_is_refused(params: Any) -> None:
    with pytest.raises(RpcError) as error:
        mcp_messages.read(raw(params))
    assert error.value.error.code == -32602


def test_outcomes_are_results_errors_or_neither() -> None:
    assert bytes(mcp_messages.unwrapped(raw({"result": None, "error": 1}))) == b"null"
    with pytest.raises(RpcError) as error:
        mcp_messages.unwrapped(raw({"error": {"code": -1, "message": "no", "data": [1]}}))
    assert json.loads(bytes(mcp_messages.refused(error.value.error))) == {
        "error": {"code": -1, "message": "no", "data": [1]}
    }
    neither: Any
    for neither in ({}, [], {"error": {"code": "x"}}, {"error": {"code": 1}}):
        with pytest.raises(RpcError) as error:
            mcp_messages.unwrapped(raw(neither))
        assert error.value.error.code == mcp_messages.BROKEN
    plain = RpcError(-1, "no").error
    assert json.loads(bytes(mcp_messages.refused(plain))) == {"error": {"code": -1, "message": "no"}}


def test_only_servers_without_an_address_are_offered_under_whichever_name_their_id_has() -> None:
    servers = [
        {"type": "acp", "name": "a", "id": "1"},
        {"type": "acp", "name": "b", "serverId": "2", "id": "3"},
        {"type": "acp", "name": "c"},
        {"type": "http", "name": "d", "id": "4"},
        "none",
    ]
    assert [(each.name, each.id, each.key) for each in mcp_messages.offered(servers)] == [
        ("a", "1", "id"),
        ("b", "2", "serverId"),
    ]
    assert mcp_messages.offered(None) == mcp_messages.offered("acp") == []
    one, two = mcp_messages.offered(servers)
    assert mcp_messages.connecting(one, None) == {"acpId": "1"}
    assert mcp_messages.connecting(two, raw({"x": 1})) == {"serverId": "2", "_meta": raw({"x": 1})}


@pytest.mark.parametrize(("params", "id"), [({"requestId": 0}, 0), ({"requestId": "x"}, "x"), ({}, None), ([], None)])
def test_a_cancellation_names_a_request_or_none(params: Any, id: Any) -> None:
    assert forwarded.request_of(raw(params)) == id
