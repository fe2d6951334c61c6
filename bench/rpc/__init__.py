"""What the measurements of protocols that are JSON-RPC share: agent_client, agent_communication.

wires.py    both ways to one agent: a process's pipes, a WebSocket
client.py   one connection: requests and their answers
turns.py    the load: many prompts or calls at once
ways.py     what is measured each way, in turns: rounds, and what they took
speaker.py  an agent without an event loop: who speaks when
"""
