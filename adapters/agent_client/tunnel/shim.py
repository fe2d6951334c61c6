"""A program that an agent starts as an MCP server: what it is told and says is passed on to the gateway, as it is.

    python -I -S shim.py        (its three variables say where the gateway is, and prove that it may call there)

It imports nothing but the standard library, and little of that. It ends when the agent closes its standard input or the
gateway the connection; also while the agent does not read.
"""

from __future__ import annotations

import hmac
import os
import select
import signal
import socket
import sys
import time

ADDRESS = "INTERLINGUA_MCP_ADDRESS"
SERVER = "INTERLINGUA_MCP_SERVER"
SECRET = "INTERLINGUA_MCP_SECRET"
BLOCK = 64 * 1024
HELLO_SECONDS = 10.0
LAST_SECONDS = 2.0
"""For one end to take what is left, once the other has closed."""


def proof(secret: bytes, who: str, challenge: str, own: str) -> str:
    """The answer to `challenge`, which takes the secret to compute."""
    return hmac.new(secret, f"{who}:{challenge}:{own}".encode(), "sha256").hexdigest()


def main() -> int:
    """Call the gateway, then copy until one of both ends it."""
    try:
        address, server, secret = os.environ[ADDRESS], os.environ[SERVER], bytes.fromhex(os.environ[SECRET])
        gateway = socket.socket(socket.AF_UNIX)
        gateway.settimeout(HELLO_SECONDS)
        gateway.connect("\0" + address[1:] if address.startswith("@") else address)
        _shake_hands(gateway, server, secret)
    except (KeyError, ValueError, OSError) as error:
        print(f"the gateway that offered this MCP server is not there: {error!r}", file=sys.stderr)
        return 1
    gateway.setblocking(False)
    _copy(gateway)
    return 0


def _shake_hands(gateway: socket.socket, server: str, secret: bytes) -> None:
    theirs, own = _line(gateway), os.urandom(32).hex()
    gateway.sendall(f"{server} {own} {proof(secret, 'shim', theirs, own)}\n".encode())
    if not hmac.compare_digest(_line(gateway), proof(secret, "gateway", own, theirs)):
        raise ValueError("it does not know this session")


def _line(gateway: socket.socket) -> str:
    found = b""
    while not found.endswith(b"\n") and len(found) < 200:
        byte = gateway.recv(1)
        if not byte:
            raise ValueError("it has hung up")
        found += byte
    return found.decode("ascii").strip()


def _copy(gateway: socket.socket) -> None:
    """At most a block is held for each side; while that waits, no more is read for it."""
    for fd in (0, 1):
        os.set_blocking(fd, False)
    there = gateway.fileno()
    gone = getattr(select, "POLLRDHUP", 0)  # elsewhere the end is seen when all before it has been read
    up, down = b"", b""
    asking, open, deadline = True, True, 0.0
    while open or down:
        poll = select.poll()
        poll.register(1, select.POLLOUT if down else 0)
        if open:
            poll.register(there, gone | (0 if down else select.POLLIN) | (select.POLLOUT if up else 0))
        if asking and not up:
            poll.register(0, select.POLLIN)
        left = max(0.0, deadline - time.monotonic()) if deadline else None
        events = dict(poll.poll(None if left is None else left * 1000))
        if left == 0.0 or events.get(1, 0) & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            return  # nobody takes it any more
        if 1 in events:
            down = down[_write(1, down) :]
        heard = events.get(there, 0)
        if heard & select.POLLOUT:
            up = up[_write(there, up) :]
        if 0 in events:
            said = _read(0)
            if said:
                up = said
            elif said is not None:  # the agent needs it no more
                asking, deadline = False, time.monotonic() + LAST_SECONDS
                gateway.shutdown(socket.SHUT_WR)
        if heard & ~select.POLLOUT:
            came = _read(there) if not down else None
            down += came or b""
            if came == b"" or heard & (select.POLLERR | select.POLLHUP | gone):
                asking, open, deadline = False, False, time.monotonic() + LAST_SECONDS
                while came := _read(there):  # what the gateway said before it closed, no more than a socket holds
                    down += came


def _read(fd: int) -> bytes | None:
    """Read what has arrived: None if nothing has yet, empty at the end."""
    for _ in range(2):  # that it was reset is said before what came before that
        try:
            return os.read(fd, BLOCK)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            continue
    return b""


def _write(fd: int, data: bytes) -> int:
    """How much of it was taken. Where nobody reads any more, we end."""
    try:
        return os.write(fd, data)
    except (BlockingIOError, InterruptedError):
        return 0
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main())
