"""HTTP/1.1 calls to agents: a client of our own on httptools' parser, which is loaded at the first call.

client.py      HttpClient: request, stream, upload, download; what adapters use
response.py    an answer: HttpResponse, a whole one; StreamResponse, as it arrives: limits, idle timeout, decompression
session.py     the requests to one target: URLs, headers, redirects, the one retry; its connections: made (addresses,
               TLS), kept while idle, limited
outgoing.py    a request before it is sent: URL, head, form
connection.py  one connection: a request out, a response in
"""

from gateway.transport.http.client import HttpAuth, HttpClient
from gateway.transport.http.credentials import credentials_of
from gateway.transport.http.outgoing import FilePart, segment
from gateway.transport.http.response import HttpResponse, StreamResponse, Unreachable, away
