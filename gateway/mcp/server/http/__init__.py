"""MCP over HTTP, the server's end.

endpoint.py    every endpoint: origins, errors, refusals
streamable.py  Streamable HTTP: which request is served, and which is refused with what status
session.py     a session of it: calls, questions, streams; the sessions there are
streams.py     what is sent: the answer to a POST, and the `Out` of its calls; the stream of a GET
modern.py      2026-07-28: a POST, and nothing beside it
sse.py         HTTP+SSE, the transport before that (2024-11-05)
"""
