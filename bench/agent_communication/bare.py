"""A proxy that knows nothing but who asked what: WebSocket on one side, one agent on stdio on the other.

As agent_client/bare.py, but what an agent says of a call goes, unread, to the connection whose request had its token.
`python -m bench.agent_communication.bare --port N COMMAND ...`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from bench.agent_client.bare import Client, Proxy, main
from bench.rpc.wires import Program

_PROGRESS = b"/progress"
_TOKEN = b'"progressToken":"'


class Calls(Proxy):
    """See the module."""

    def _asks(self, agent: Program, client: Client, data: bytes) -> None:
        if data.find(_TOKEN) >= 0:
            self._sessions[_token(data)] = client
        super()._asks(agent, client, data)

    def _says(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if line.find(_PROGRESS, 0, 100) >= 0:
                self._sessions[_token(line)].put(line)
                continue
            message: dict[str, Raw] = msgspec.json.decode(line, type=dict[str, Raw])
            client, message["id"] = self._asked.pop(int(bytes(message["id"])))
            client.put(msgspec.json.encode(message))


def _token(data: bytes) -> bytes:
    at = data.find(_TOKEN) + len(_TOKEN)
    return data[at : data.find(b'"', at)]


if __name__ == "__main__":
    main(Calls)
