"""Serving HTTP on ASGI itself, where Starlette's requests and responses are too slow, or buffer.

exchange.py  one request and its answer
origin.py    which web pages may connect
refusals.py  errors where no protocol has words yet
uvicorn.py   PieceProtocol: the server's protocol with a short way for streams; what `serve` gives uvicorn
"""

from gateway.transport.asgi import exchange, origin, refusals
from gateway.transport.asgi.exchange import ClientGone, Exchange, Headers, Reply

__all__ = ["ClientGone", "Exchange", "Headers", "Reply", "exchange", "origin", "refusals"]
