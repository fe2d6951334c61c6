"""JSON-RPC 2.0 over a Pipe: requests, answers and notifications, both ways at once.

peer.py     Peer: one connection; what adapters use
handler.py  Handler: what an adapter implements
incoming.py reads messages: order, batches, garbage; serves the other end's requests
outgoing.py writes messages: order, bounds, few writes; our requests and their answers
"""

from gateway.transport.rpc.peer import Peer
