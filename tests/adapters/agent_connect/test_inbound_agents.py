"""Agents: search, get, descriptor."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.agent_connect import codec, codec_agents
from gateway.core.types import Agent, AgentCapabilities, agent_id
from tests.adapters.agent_connect.api import Api, hold
from tests.adapters.agent_connect.inbound_server import Server

UNKNOWN = "00000000-0000-0000-0000-000000000000"


def test_search_lists_every_agent_in_the_order_of_the_routes(api: Api) -> None:
    found = api("POST", "/agents/search", {})
    assert [agent["metadata"]["ref"]["name"] for agent in found[:3]] == ["echo", "gated", "asker"]
    assert found[0]["agent_id"] == agent_id("echo")


def test_search_finds_by_name_and_version(api: Api) -> None:
    assert [a["agent_id"] for a in api("POST", "/agents/search", {"name": "asker"})] == [agent_id("asker")]
    assert [a["agent_id"] for a in api("POST", "/agents/search", {"version": "1.2.3"})] == [agent_id("echo")]
    assert api("POST", "/agents/search", {"name": "asker", "version": "1.2.3"}) == []


def test_search_pages_with_limit_and_offset(api: Api) -> None:
    every = api("POST", "/agents/search", {"limit": 1000})
    paged = [a for offset in range(len(every)) for a in api("POST", "/agents/search", {"limit": 1, "offset": offset})]
    assert paged == every


@pytest.mark.parametrize("body", [{"limit": 0}, {"limit": 1001}, {"offset": -1}, {"limit": "ten"}, {"name": 5}, [], 4])
def test_search_refuses_what_is_out_of_bounds(api: Api, body: Any) -> None:
    told = api("POST", "/agents/search", body, status=422)
    assert not isinstance(body, dict) or told.startswith(f"/{next(iter(body))}: ")


def test_an_agent_is_found_by_id_and_by_name(api: Api) -> None:
    by_id = api("GET", f"/agents/{agent_id('echo')}")
    assert by_id == api("GET", "/agents/echo")
    assert by_id["metadata"] == {"ref": {"name": "echo", "version": "1.2.3"}, "description": "Says it again."}


@pytest.mark.parametrize("ident", [UNKNOWN, "nobody"])
def test_an_unknown_agent_is_404(api: Api, ident: str) -> None:
    assert "echo" in api("GET", f"/agents/{ident}", status=404)
    api("GET", f"/agents/{ident}/descriptor", status=404)


def test_the_descriptor_says_what_the_agent_takes_and_what_the_gateway_adds(api: Api) -> None:
    told = api("GET", f"/agents/{agent_id('echo')}/descriptor")
    specs = told["specs"]
    assert specs["input"]["properties"]["message"] == {"type": "string"}
    assert specs["config"]["properties"] == {"pace": {"type": "number", "minimum": 0}}
    assert specs["capabilities"] == {
        "threads": True,
        "interrupts": True,
        "callbacks": True,
        "streaming": {"values": True, "custom": True},
    }
    assert specs["custom_streaming_update"]["required"] == ["type"]


def test_the_descriptor_is_also_at_the_path_of_the_prose(api: Api) -> None:
    ident = agent_id("asker")
    assert api("GET", f"/agents/agent/{ident}/descriptor") == api("GET", f"/agents/{ident}/descriptor")


def test_an_agent_that_may_ask_publishes_interrupts_and_one_that_may_not_publishes_none(api: Api) -> None:
    def kinds(name: str) -> Any:
        told = api("GET", f"/agents/{agent_id(name)}/descriptor")["specs"]
        return [i["interrupt_type"] for i in told["interrupts"]] if "interrupts" in told else None

    assert kinds("asker") == ["approval"]
    assert kinds("echo") == ["permission", "elicitation", "input"]
    assert kinds("silent") is None


PUBLISHED = {
    "metadata": {"ref": {"name": "org.example.mail", "version": "0.3.0"}, "description": "Mails.", "team": "m"},
    "specs": {"input": {}, "custom_streaming_update": None, "deployments": [1]},
    "locator": "x",
}


def test_an_agent_connect_agents_own_descriptor_keeps_what_the_gateway_does_not_know() -> None:
    agent = Agent(
        name="mail",
        version="0.3.0",
        description="Mails.",
        input_schema={"type": "object"},
        output_schema={},
        capabilities=AgentCapabilities(threads=True, streaming=True),
        thread_schema={"type": "object"},
        extra={"agent_connect": PUBLISHED},
    )
    import json

    told = hold(json.loads(codec_agents.encode_descriptor(agent)), "AgentACPDescriptor")
    assert told["locator"] == "x" and told["metadata"]["team"] == "m" and told["specs"]["deployments"] == [1]
    assert told["metadata"]["ref"]["name"] == "mail"
    assert told["specs"]["thread_state"] == {"type": "object"}
    assert told["specs"]["capabilities"]["streaming"] == {"values": True, "custom": False}
    assert "custom_streaming_update" not in told["specs"]
    assert codec_agents.names(agent) == {"mail", "org.example.mail"}


def test_errors_are_defined_with_whether_another_try_may_help(api: Api) -> None:
    told = api.raw("GET", f"/agents/{agent_id('echo')}/errors").json()
    found = {one["code"]: one for one in told}
    assert found["agent_gone"]["transient"] is True and found["agent_gone"]["errcode"] == 502
    assert found["invalid"]["transient"] is False and found["invalid"]["errcode"] == 422
    assert all(one["description"].endswith(".") for one in told)
    assert api.raw("GET", f"/agents/{UNKNOWN}/errors").status_code == 404


def test_an_agent_that_defines_errors_has_them_told_behind_the_gateway_s() -> None:
    own = [{"errcode": 7, "description": "it failed on purpose", "transient": True, "schema": {"type": "object"}}]
    agent = Agent(name="x", input_schema={}, output_schema={}, extra={"agent_connect": {"specs": {"errors": own}}})
    told = json.loads(codec.encode_errors(codec_agents.own_errors(agent)))
    assert told[-1:] == own and len(told) > 5


def test_a_configured_instance_is_an_agent_whose_runs_have_the_configuration(api: Api, server: Server) -> None:
    made = api.raw("POST", "/agents/gated/instances", {"config": {"configurable": {"gate": "mine"}}})
    assert made.status_code == 422, "it publishes no configuration"
    bad = api.raw("POST", "/agents/echo/instances", {"config": {"configurable": {"pace": -1}}})
    assert bad.status_code == 422 and "/config" in bad.json()
    made = api.raw("POST", "/agents/echo/instances", {"config": {"configurable": {"pace": 2}}})
    agent = hold(made.json(), "Agent")
    for given in ({}, {"config": {"configurable": {"pace": 5}}}):
        body = {"agent_id": agent["agent_id"], "input": {"message": "hi"}, **given}
        run_id = api("POST", "/runs/wait", body)["run"]["run_id"]
        run = server.on_loop(lambda run_id=run_id: server.engine.runs.get(run_id))
        assert run.request.config == {"pace": 2}
    assert api("GET", f"/agents/{agent['agent_id']}/descriptor")["specs"]["config"] == {}
    assert api.raw("DELETE", f"/agents/gated/instances/{agent['agent_id']}").status_code == 404
    assert api.raw("DELETE", f"/agents/echo/instances/{agent['agent_id']}").status_code == 204
    api("GET", f"/agents/{agent['agent_id']}", status=404)
    assert api.raw("DELETE", "/agents/echo/instances/echo").status_code == 404, "that is the route table's"
