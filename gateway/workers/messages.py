"""What a supervisor and its workers say to each other: a line of JSON each, over a socket that both inherit."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from gateway.tracing.metrics import Family

VARIABLE = "INTERLINGUA_WORKER"
LONGEST = 64 * 1024 * 1024
"""Bytes of a line: one may hold every counter of a gateway."""
REPORT_SECONDS = 5.0


def report_seconds(silence: float) -> float:
    """How often a worker says unasked how it is. One that is killed takes what it has counted since along. More often
    where one that says nothing is to be killed sooner.
    """
    return min(REPORT_SECONDS, silence / 4)


class Seat(Struct, frozen=True, kw_only=True):
    """What a worker is given. descriptors: the link's end, then a listening socket for each place.

    place: which of the sockets is its own. number: from 1, different from those of all workers that live. One that
    takes over from a worker that has still to stop gets one that was free: there is one more than there are places.
    """

    place: int
    number: int
    workers: int
    link: int
    listeners: tuple[int, ...]
    folder: str


class Up(Struct, frozen=True, tag=True):
    """A worker serves clients. greeting: what to print for whoever started the gateway. shutdown, silence: those of
    `limits`.
    """

    greeting: str
    shutdown: float
    silence: float


class Changed(Struct, frozen=True, tag=True):
    """A worker was told to read its files again by `why`: all others shall."""

    why: str


class WorkerReport(Struct, frozen=True, kw_only=True, tag=True):
    """How a worker is. agents: whether each is ready, by name. backlog: bytes that its store has still to write.
    figures: its metrics, each a Family; only who adds them up decodes them. why: why it is not ready, if it is not.
    leaves: it was told to stop, and accepts no connection any more.
    """

    ready: bool
    agents: Mapping[str, bool]
    backlog: int
    figures: Raw
    why: str = ""
    leaves: bool = False


class Gather(Struct, frozen=True, tag=True):
    """A worker is asked how all of them are. It says how it is itself. number: what Gathered answers."""

    number: int
    own: WorkerReport


class AskWorker(Struct, frozen=True, tag=True):
    """Say how you are."""


class Gathered(Struct, frozen=True, kw_only=True, tag=True):
    """How all workers are. places: how many there shall be. reports: by worker, the last that it said. silent: by
    worker, how many seconds ago that was, of those that do not answer. ended: counters of the workers that have ended.
    late: whether this was said before it was asked for, since the supervisor does not answer.
    """

    number: int
    places: int
    reports: Mapping[int, WorkerReport]
    silent: Mapping[int, float]
    ended: Raw
    late: bool = False


class Reload(Struct, frozen=True, tag=True):
    """Read the files again."""

    why: str


class Cover(Struct, frozen=True, tag=True):
    """Accept connections in place of the worker at `place`, until Uncover."""

    place: int


class Uncover(Struct, frozen=True, tag=True):
    """`place` has a worker again."""

    place: int


class Adopt(Struct, frozen=True, tag=True):
    """A worker has ended: take over what it leaves in the store."""


FromWorker = Up | Changed | WorkerReport | Gather
ToWorker = Reload | Cover | Uncover | Adopt | AskWorker | Gathered

from_worker = msgspec.json.Decoder(FromWorker)
to_worker = msgspec.json.Decoder(ToWorker)
_encoder = msgspec.json.Encoder()
_figures = msgspec.json.Decoder(list[Family])


def packed(figures: Sequence[Family]) -> Raw:
    """Metrics as a report has them."""
    return Raw(_encoder.encode(figures))


def unpacked(figures: Raw) -> Sequence[Family]:
    """The same, to be added up."""
    return _figures.decode(figures)


def say(writer: asyncio.StreamWriter | None, message: FromWorker | ToWorker) -> None:
    """Say it, if the other side is still there."""
    if writer is not None and not writer.is_closing():
        writer.write(_encoder.encode(message) + b"\n")
