"""What the options of a target come to for one of several workers."""

from __future__ import annotations

from adapters.agent_client.options import MAX_CONNECTIONS, AgentClientTarget


def test_processes_are_divided_among_workers_and_are_as_many_in_all() -> None:
    whole = AgentClientTarget(protocol="agent_client", command=("agent",), warm=3)
    parts = [whole.shared_out(place, 2) for place in range(2)]
    assert [part.warm for part in parts] == [2, 1]
    assert sum(part.most_connections for part in parts) == whole.most_connections == MAX_CONNECTIONS
    many = [whole.shared_out(place, 64) for place in range(64)]
    assert sum(part.warm for part in many) == 3 and not many[3].warmed
    assert {part.most_connections for part in many} == {1}, "each has to have one"
    assert whole.shared_out(1, 2) == parts[1] != parts[0]
