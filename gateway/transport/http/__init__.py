"""HTTP calls to agents. The only room that knows aiohttp, and it imports it at the first call.

client.py    HttpClient: request, stream, upload, download; what adapters use
response.py  what they get back
session.py   aiohttp: connections, redirects, the one retry, its errors as ours
exchange.py  one plain request on aiohttp's connections, the short way
body.py      a response's bytes: limits, idle time, the end that was not the end
gunzip.py    bounded decompression
"""

from gateway.transport.http.client import Auth, HttpClient
from gateway.transport.http.outgoing import FilePart, segment
from gateway.transport.http.response import Response, StreamResponse, Unreachable

__all__ = [
    "Auth",
    "FilePart",
    "HttpClient",
    "Response",
    "StreamResponse",
    "Unreachable",
    "segment",
]
