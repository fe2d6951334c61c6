"""The real Agent Protocol server does, with its own client, what the adapter's README says of it."""

from tests.support.peers import agent_protocol_client
from tests.support.processes import Process


def test_the_server_s_own_quirks_are_the_recorded_ones(agent_protocol_server: Process) -> None:
    lines = agent_protocol_client("all", agent_protocol_server.url, "--input", "hello world")
    told = [(line["op"], line["result"]) for line in lines if "result" in line]
    assert next(result for op, result in told if op == "create_agent_task")["additional_input"] == {}
    (refused,) = [line["error"] for line in lines if line["op"] == "list_agent_task_artifacts" and "error" in line]
    assert refused["type"] == "ValidationError" and "not list" in refused["body"]
    ids = [result["step_id"] for op, result in told if op == "execute_agent_task_step"]
    assert [result["step_id"] for op, result in told if op == "get_agent_task_step"] == [ids[0]] * 3
