"""MCP over HTTP, the server's end.

endpoint.py    what every endpoint does: origins, errors, refusals
streamable.py  Streamable HTTP: which request is served, and which is refused with what status
session.py     a session of it: calls, questions, streams
sessions.py    the sessions there are, and when one is taken to have gone
standalone.py  the stream of a GET: what a client is told and asked outside of its calls
stream.py      what goes out for one request: numbered, kept a while, written as server-sent events
response_out.py  where the messages of a call go: onto the stream of its response
modern.py      2026-07-28: a POST, and nothing beside it
events.py      HTTP+SSE, the transport before that (2024-11-05)
"""
