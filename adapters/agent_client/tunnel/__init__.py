"""MCP over the connection: MCP servers that a client offers without an address, for agents of this protocol.

    MCP client <-> agent <-> AgentEnd <-> caller.ask, caller.tell      -> Switchboard <-> client <-> MCP server
                                      <-  gateway.relay, gateway.forward  <-

mcp_messages.py the messages, in the three ways in which they are spoken
switchboard.py  the inbound half: which client offers what, and its end of each MCP connection
tunnels.py      the outbound half: what each session was offered (offers.py)   agent_end.py  the agent's ends
shim_ends.py    ends of agents that do not, on this machine: an MCP server that they start, shim.py
http_doors.py   and elsewhere: Streamable HTTP on the gateway's port
translation.py  ends that speak another revision of MCP than the server, or MCP over HTTP: behind them is a proxy
tool_rules.py   which calls of tools the rules of a route let through

Between the halves an MCP connection is named by the switchboard. `mcp/connect` has `sessionId` and `name` besides, and
answers `stateless` where the client speaks that way; `mcp/message` has `requestId` from agents that do.
"""
