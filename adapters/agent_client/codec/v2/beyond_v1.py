"""What this codec puts into an event's `origin`, under ORIGIN_V2, beside what version 1's codec puts there.

An agent's update is first said in version 1's words, and these become events (codec/event_forms.py). Where version 1's
words, turned back, are not what the agent said, the last of the events has the difference: `more` and `less`. Where an
update becomes several of version 1's, or none that says it, one event has it whole, `{"update": ...}`, and those that
belong to it `{"silent": true}`. `{"lost": [...]}` names what version 1's words leave out (losses.py). A message has its
`messageId` where version 1 calls it otherwise.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.v2.wire import ORIGIN_V2
from adapters.agent_client.wire import PROTOCOL
from gateway.core import events as e
from gateway.core.types import JsonObject

_E = TypeVar("_E", bound=e.Event)

SILENT: JsonObject = {"silent": True}
ASIDE: JsonObject = {"aside": True}
"""Of what the agent did not say for the run in whose log it stands."""


def mine(event: e.Event) -> JsonObject | None:
    """What this codec put into an event's `origin`."""
    found = None if event.origin is None else event.origin.get(ORIGIN_V2)
    return found if isinstance(found, dict) else None


def with_mine(event: _E, marks: JsonObject) -> _E:
    """The event with more of it."""
    return replace(event, origin={**(event.origin or {}), ORIGIN_V2: {**(mine(event) or {}), **marks}})


def difference(back: JsonObject, said: JsonObject) -> JsonObject:
    """`more` and `less` of an update that turns back into `back` where the agent said `said`. Empty if it is that."""
    found = event_forms.difference(back, said)
    return {} if found is None else dict(found[PROTOCOL])
