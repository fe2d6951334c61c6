"""JSON-RPC 2.0 over a Pipe: requests, answers and notifications, both ways at once.

peer.py     Peer: one connection; what adapters use
handler.py  Handler: what an adapter brings for what comes in
incoming.py what comes in: order, batches, what is no message
asking.py   our requests and their answers
serving.py  the other end's requests and our answers
outbox.py   what goes out: order, bounds, few writes
"""

from gateway.transport.rpc.handler import Canceller, Counts, Handler, Swift
from gateway.transport.rpc.peer import Peer

__all__ = ["Canceller", "Counts", "Handler", "Peer", "Swift"]
