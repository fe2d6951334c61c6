"""Makes the environments of the other gateways: `python -m bench.peers`."""

from __future__ import annotations

from bench.peers import PEERS, lock
from tests.support.peers import environment

if __name__ == "__main__":
    for peer in PEERS:
        print(f"{peer.name} {peer.version}: {environment(lock(peer))}", flush=True)
