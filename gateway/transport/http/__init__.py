"""HTTP calls to agents. The only room that knows aiohttp, and it imports it at the first call.

client.py    HttpClient: request, stream, upload, download; what adapters use
response.py  HttpResponse, StreamResponse
session.py   aiohttp: connections, redirects, the one retry, errors mapped to ours
exchange.py  one plain request directly on aiohttp's connections
body.py      a response's bytes: limits, idle timeout, decompression
gunzip.py    bounded decompression
"""

from gateway.transport.http.client import HttpAuth, HttpClient
from gateway.transport.http.outgoing import FilePart, segment
from gateway.transport.http.response import HttpResponse, StreamResponse, Unreachable

__all__ = [
    "FilePart",
    "HttpAuth",
    "HttpClient",
    "HttpResponse",
    "StreamResponse",
    "Unreachable",
    "segment",
]
