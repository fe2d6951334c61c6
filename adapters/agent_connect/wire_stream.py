"""Messages of Agent Connect agents, as `msgspec` structs: openapi 0.2.3 schemas `RunOutputStream`, `Run`, `RunOutput`.

`Update` is the envelope of one streamed message and is decoded once per message: documents stay encoded. It knows only
the fields of the two kinds that come often; `decode.py` reads every other message, and every message with a field
that is not in the specification, through `Fields`, which loses nothing.
"""

from __future__ import annotations

import msgspec

from gateway.core.types import JsonObject

ABSENT = msgspec.Raw(b"")


class Update(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`ValueRunResultUpdate` or `CustomRunResultUpdate` with nothing unusual in it."""

    type: str
    run_id: str | None = None
    status: str | None = None
    values: msgspec.Raw = ABSENT
    update: msgspec.Raw = ABSENT


class ServerRun(msgspec.Struct, frozen=True):
    """`Run`: of what the agent says about a run, what this side reads. `status` is not held to the five."""

    run_id: str
    thread_id: str | None = None
    status: str = "pending"


class StreamedMessage(msgspec.Struct, frozen=True):
    """`Message`. `content` is a string or a list of blocks."""

    role: str = "assistant"
    content: str | list[str | JsonObject] | JsonObject | None = None
    id: str | None = None
    metadata: JsonObject | None = None


Fields = dict[str, msgspec.Raw]

decode_update = msgspec.json.Decoder(Update).decode
decode_fields = msgspec.json.Decoder(Fields).decode
decode_record = msgspec.json.Decoder(ServerRun).decode
decode_records = msgspec.json.Decoder(list[ServerRun]).decode
