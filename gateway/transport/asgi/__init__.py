"""Serving HTTP on ASGI itself, where Starlette's requests and responses are too slow, or buffer.

request.py       one request and its answer, also to an error; one path of a REST protocol, its operations by method
origin.py        which web pages may connect
refusals.py      errors where no protocol has words yet
uvicorn.py       PieceProtocol: the server's protocol with a short way for streams; what `serve` gives uvicorn
"""

from gateway.transport.asgi import origin, refusals
from gateway.transport.asgi.request import (
    ClientGone,
    Everybody,
    Headers,
    HttpRequest,
    Reply,
    RestEndpoint,
    RestOperation,
    WhileConnected,
    respond,
)
