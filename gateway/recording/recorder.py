"""Which runs are recorded: those of routes that say so, and those that an operator asks for, for some time."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.config import Config
from gateway.contract import Batch, GatewayRecords, Take, Watch
from gateway.contract.interception import InterceptedRun
from gateway.contract.wrapping import Wrapped
from gateway.core.errors import InterlinguaError
from gateway.recording.recording import MESSAGE_BYTES, RUN_BYTES, RUN_ENTRIES, RunRecording
from gateway.runs.live import LiveRun
from gateway.runs.post import PostOffice
from gateway.store import Store
from gateway.store.records import new_id
from gateway.transport.tap import TAP, NotedWork, about, current, enter

if TYPE_CHECKING:
    from gateway.recording.redaction import SecretRemover

MOST_SECONDS: Final = 3600
"""The longest time that an operator can ask for at once."""
RUNS: Final = 100
TOTAL_BYTES: Final = 32 * 1024 * 1024
"""How much is kept of all runs together. The oldest recordings go first."""
LIMITS: Final[Mapping[str, int]] = {
    "message_bytes": MESSAGE_BYTES,
    "run_entries": RUN_ENTRIES,
    "run_bytes": RUN_BYTES,
    "runs": RUNS,
    "bytes": TOTAL_BYTES,
    "seconds": MOST_SECONDS,
}
PAGE_BYTES: Final = 256 * 1024
"""About how much of a recording one page has: it may go through the store."""
HEAR_SECONDS: Final = 3.0
"""How long another process has to say that it heard of a wish, or whether it has a recording."""
GATHER_SECONDS: Final = 0.5
"""For how long a process gathers entries for one that follows elsewhere: so often, at most, do they cost the store."""
RECORDING: Final = "recording"
"""Under which wishes are kept in the store, each until it ends: of two that are made at once the newer counts."""
EVERY: Final = None
"""Stands for every agent, where an operator asks for no certain one."""


class TurnRecording(msgspec.Struct, frozen=True):
    """An operator's wish, as processes tell it one another: to have the runs of an agent, or of EVERY one, recorded or
    not, for some seconds from `at` on (since the epoch). Then it is as the file says again. Answered with nothing.
    """

    agent: str | None
    record: bool
    seconds: int
    at: float = msgspec.field(default_factory=time.time)

    @property
    def until(self) -> float:
        """When it ends."""
        return self.at + self.seconds


class Recorder:
    """Implements `gateway.contract.interception.RunRecorder`. One per gateway process; `close` it at the end."""

    def __init__(self) -> None:
        self.on = False
        self.bytes = 0
        self.wishes: dict[str | None, TurnRecording] = {}
        """By agent, and under EVERY for all others."""
        self._routes: Mapping[str, bool] = {}
        self._config = Config()
        self._secrets: SecretRemover | None = None
        self._recordings: dict[str, RunRecording] = {}
        self._timer: asyncio.TimerHandle | None = None

    # --- who decides -------------------------------------------------------------------------------------------------

    def follow(self, config: Config) -> None:
        """Take what a route table says of it, and its secrets."""
        self._config = config
        if self._secrets is not None:
            self._secrets.learn(config)
        routes: dict[str, bool] = {}
        for route in config.routes:
            routes[route.name] = routes.get(route.name, False) or route.record is not None
        self._routes = routes
        self._judge()

    @property
    def secrets(self) -> SecretRemover:
        """Knows what is to be told to nobody. Made when there is something to tell: its patterns take long to make."""
        if self._secrets is None:
            from gateway.recording.redaction import SecretRemover

            self._secrets = SecretRemover()
            self._secrets.learn(self._config)
        return self._secrets

    def turn(self, wish: TurnRecording) -> None:
        """Do as an operator wishes, unless a newer wish for the same agent is known."""
        if (known := self.wishes.get(wish.agent)) is None or known.at <= wish.at:
            self.wishes[wish.agent] = wish
            self._judge()

    def wanted(self, agent: str, route: str) -> bool:
        wish = self.wishes.get(agent) or self.wishes.get(EVERY)
        return self._routes.get(route, False) if wish is None else wish.record

    def _judge(self) -> None:
        """See what is recorded now, until the next wish ends."""
        now = time.time()
        self.wishes = {agent: wish for agent, wish in self.wishes.items() if wish.until > now}
        self.on = any(self._routes.values()) or any(wish.record for wish in self.wishes.values())
        TAP.use(self, self.on)
        for recording in self._recordings.values():
            if recording.open and not self.wanted(recording.agent, recording.route):
                recording.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.wishes:
            wait = min(wish.until for wish in self.wishes.values()) - now
            self._timer = asyncio.get_running_loop().call_later(wait + 0.001, self._judge)

    def close(self) -> None:
        """Record nothing more."""
        self.wishes.clear()
        self._routes = {}
        if self._timer is not None:
            self._timer.cancel()
        self.on = False
        TAP.use(self, False)
        for recording in self._recordings.values():
            recording.close()

    # --- what the engine tells ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def beginning(self, run: InterceptedRun) -> Iterator[None]:
        assert isinstance(run, LiveRun), "the engine has no other"
        recording = self._begun(run)
        if recording is not None and (subject := current()) is not None:
            subject.concerns(recording, "client")
        if recording is not None:
            recording.tell()
        with about(None if recording is None else recording.said):
            yield

    def _begun(self, live: LiveRun) -> RunRecording | None:
        if not self.wanted(live.agent.name, live.entry.route.name):
            return None
        if (recording := self._recordings.get(live.run.id)) is None:
            recording = self._recordings[live.run.id] = RunRecording(live, self.secrets, self._grow)
            self._make_room()
        return recording

    def telling(self, run_id: str) -> None:
        recording = self._recordings.get(run_id)
        enter(None if recording is None else recording.said)

    def named(self, run_id: str) -> None:
        if (recording := self._recordings.get(run_id)) is None:
            return
        recording.look()
        if (subject := current()) is not None:
            subject.concerns(recording, "client")

    def watched(self, run_id: str, watch: Watch) -> Watch:
        recording = self._recordings.get(run_id)
        return watch if recording is None else NotedWatch(watch, recording.told)

    # --- what operators see ------------------------------------------------------------------------------------------

    def of(self, run_id: str) -> RunRecording | None:
        """What is recorded of a run, in this process."""
        return self._recordings.get(run_id)

    @property
    def runs(self) -> int:
        return len(self._recordings)

    def _grow(self, bytes: int) -> None:
        self.bytes += bytes
        self._make_room()

    def _make_room(self) -> None:
        while len(self._recordings) > RUNS or (self.bytes > TOTAL_BYTES and len(self._recordings) > 1):
            self._recordings.pop(next(iter(self._recordings))).forget()


class NotedWatch(Wrapped[Watch]):
    """A watch of a recorded run: what its follower says is said to the run's client. See `gateway.contract.Watch`."""

    def __init__(self, watch: Watch, subject: NotedWork) -> None:
        super().__init__(watch)
        self._subject = subject

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        def taken(batch: Batch) -> Awaitable[None] | None:
            with about(self._subject):
                return take(batch)

        with about(self._subject):
            return await self._inner.follow(taken, timeout)


class ReadRecording(msgspec.Struct, frozen=True):
    """Read on in the recording of a run, above the entry `after`. Answered with a `RecordingPage` or, by a process that
    has none, with None. `wait`: for so many seconds, if there is nothing new.
    """

    run: str
    after: int
    wait: float = 0.0


class RecordingPage(msgspec.Struct, frozen=True):
    """Entries with their numbers. `over`: the run has ended, or is not recorded any more, and this is the rest."""

    entries: tuple[tuple[int, msgspec.Raw], ...]
    over: bool


class AllRecordings:
    """The recordings of all processes on one store, whichever of them an operator asks. One per gateway process."""

    def __init__(self, recorder: Recorder, store: Store, records: GatewayRecords, post: PostOffice) -> None:
        self._recorder = recorder
        self._store = store
        self._records = records
        self._post = post
        post.serve(TurnRecording, self._turn)
        post.serve(ReadRecording, self._read)

    async def turn(self, wish: TurnRecording) -> int:
        """Have a wish that is made now heard by every process, also by those that start until it ends. Returns how many
        did not say that they had heard it. Raises Unavailable if the store does not take it.

        It counts as newer than what is known, though the clock of a process that told of that may be ahead.
        """
        if (known := self._recorder.wishes.get(wish.agent)) is not None and known.at >= wish.at:
            wish = msgspec.structs.replace(wish, at=math.nextafter(known.at, math.inf))
        data = msgspec.to_builtins(wish)
        await self._records.keep(RECORDING, new_id(), data, owner=RECORDING, expires_at=wish.until)
        self._recorder.turn(wish)
        others = await self._store.mailbox.others()
        return sum(await asyncio.gather(*[self._unheard(other, wish) for other in others]))

    async def learn(self) -> None:
        """Take the wishes that hold. To be called once, when this process is told of new ones already."""
        for kept in await self._records.kept(RECORDING):
            self._recorder.turn(msgspec.convert(kept.data, TurnRecording))

    async def _unheard(self, process: str, wish: TurnRecording) -> bool:
        """Tell another process of a wish; whether it does not say that it has heard it."""
        try:
            await self._post.ask(process, wish, type(None), within=HEAR_SECONDS)
        except InterlinguaError:
            return True
        return False

    async def where(self, run_id: str) -> str:
        """The process that has the recording of a run, if any has. Raises NotFound."""
        if self._recorder.of(run_id) is not None:
            return self._store.owner
        return await self._store.owner_of(run_id)

    async def recorded(self, run_id: str) -> bool:
        """Whether something of a run is recorded. False where the process that would know does not answer."""
        call = ReadRecording(run_id, after=2**53)
        with contextlib.suppress(InterlinguaError):
            owner = await self.where(run_id)
            return await self._post.ask(owner, call, RecordingPage | None, within=HEAR_SECONDS) is not None  # type: ignore[arg-type]
        return False

    async def read(self, process: str, call: ReadRecording) -> RecordingPage | None:
        """Read on in a recording of a process. Raises what `PostOffice.ask` does."""
        return await self._post.ask(process, call, RecordingPage | None)  # type: ignore[arg-type]

    async def _turn(self, process: str, wish: TurnRecording) -> None:
        self._recorder.turn(wish)

    async def _read(self, process: str, call: ReadRecording) -> RecordingPage | None:
        recording = self._recorder.of(call.run)
        if recording is None:
            return None
        if call.wait and await recording.news(call.after, call.wait) and process != self._store.owner:
            await asyncio.sleep(0 if recording.over else GATHER_SECONDS)
        entries = tuple((number, msgspec.Raw(data)) for number, data in recording.page(call.after, PAGE_BYTES))
        return RecordingPage(entries, recording.over and (not entries or entries[-1][0] == recording.last))
