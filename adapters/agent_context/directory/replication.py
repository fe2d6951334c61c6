"""Shares the directory between gateway processes through the store: registrations, revocations, votes, who is alive.

Everything kept is compared with what was read before, so that a look costs next to nothing while nothing changes, and
nothing is written that is there already. What this process changed after the look began is not taken from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Final

from msgspec.structs import replace

from adapters.agent_context.codec.errors import note, to_rpc
from adapters.agent_context.directory.evaluation import NONE, Vote, Votes, lacks, merged
from adapters.agent_context.directory.members import Members
from adapters.agent_context.directory.registered import AGENT, EVALUATION, GONE, PROCESS, Joined, Revocation, stored
from adapters.agent_context.wire import ERROR, PROTOCOL
from gateway.contract import Kept
from gateway.core.errors import Conflict, InterlinguaError

log = logging.getLogger(__name__)

PROBE: Final = 5.0
"""Seconds between two looks whether the other processes live."""
PIECE: Final = 50
"""Records that are taken over between two turns of others."""
SURE: Final = 3
"""A vote that was found kept so often stays."""
YEAR: Final = 365 * 86400.0
"""How long votes count after the last."""


class Replication:
    """One per directory. `refresh` is never called twice at once.

    `changed` is called with the agents that have changed. `revoked` is called for an agent whose access another
    process has revoked.
    """

    def __init__(
        self, members: Members, changed: Callable[[Iterable[str]], None], revoked: Callable[[str], None]
    ) -> None:
        self.votes: dict[str, Votes] = {}
        self._members = members
        self._gateway = members.gateway
        self._changed = changed
        self._revoked = revoked
        self._known: dict[str, Kept] = {}
        self._read: Sequence[Kept] = ()
        self._probed = -1e9
        self._unsure: dict[tuple[str, str], dict[str, tuple[Vote, int]]] = {}

    async def open(self) -> None:
        await self._live()
        await self.refresh()

    async def aclose(self) -> None:
        try:
            await self._gateway.records.forget(PROTOCOL, PROCESS + self._gateway.process)
        except InterlinguaError as error:
            log.debug("this process is not forgotten: %s", error)

    async def refresh(self) -> None:
        mark = self._members.marks.count
        kept = await self._gateway.records.kept(PROTOCOL)
        if kept is not self._read:
            await self._compare({one.name: one for one in kept}, mark)
        self._read = kept if self._members.marks.count == mark else ()
        self._members.marks.seen(mark)
        await self._confirm(mark)
        await self._probe()
        if PROCESS + self._gateway.process not in self._known:
            await self._live()

    @property
    def oldest(self) -> str | None:
        """The other process that has lived longest, if it has lived longer than this one. All know the same one: who
        came later has read of it.
        """
        me, known = self._gateway.process, self._known
        alive = (each for each in (me, *self._members.liveness.others) if PROCESS + each in known)
        born = {each: known[PROCESS + each].number for each in alive}
        first = min(born, key=lambda each: (born[each], each), default=me)
        return None if first == me else first

    async def vote(self, agent: str, owner: str, vote: Vote) -> Votes:
        """One more vote on an agent of this owner's ("" for none). Returns all."""
        async with self._members.lock(EVALUATION + agent):
            votes = self.of(agent, owner)
            known = next((each for each in votes.votes if each.voter == vote.voter), None)
            if known is not None and known.at >= vote.at:
                vote = replace(vote, at=known.at + 1e-3)
            votes = merged(votes, vote)
            await self._keep(agent, votes)
            self._unsure.setdefault((agent, owner), {})[vote.voter] = (vote, 0)
        return votes

    def of(self, agent: str, owner: str) -> Votes:
        votes = self.votes.get(agent, NONE)
        return votes if votes.owner == owner else Votes(owner=owner)

    # --- what was kept ------------------------------------------------------------------------------------------

    async def _compare(self, now: dict[str, Kept], mark: int) -> None:
        before, marks = self._known, self._members.marks
        news = [one for name, one in now.items() if before.get(name) is not one]
        gone = before.keys() - now.keys()
        if news or gone:
            await self._take(news, gone, mark)
            for one in news:
                if marks.newer(one.name, mark):
                    now.pop(one.name)  # to be looked at again
            for name in gone:
                if marks.newer(name, mark):
                    now[name] = before[name]
        self._known = now

    async def _take(self, news: list[Kept], gone: Iterable[str], mark: int) -> None:
        marks = self._members.marks
        others = self._members.liveness.others | self._processes(one.name for one in news)
        changed = self._live_others(others - self._processes(gone))
        for number, one in enumerate(news, 1):
            if not number % PIECE:
                await asyncio.sleep(0)
            kind, _, key = one.name.partition("/")
            if not marks.newer(one.name, mark) and self._taken(kind + "/", key, one):
                changed.add(key)
        for name in gone:
            kind, _, key = name.partition("/")
            if kind + "/" != PROCESS and not marks.newer(name, mark):
                self._lost(kind + "/", key)
                changed.add(key)
        if changed:
            self._changed(changed)

    def _taken(self, kind: str, key: str, one: Kept) -> bool:
        """Whether it is news to anybody."""
        members = self._members
        if kind == AGENT:
            return self._registered(key, one)
        if kind == GONE:
            how = stored(one.data, Revocation) or Revocation()  # one that cannot be read holds all the same
            if key in members.revoked:  # it may be for longer now
                members.revoked[key] = how
                return False
            members.revoke(key, how)
            self._revoked(key)
            return True
        if kind == EVALUATION:
            before = self.votes.get(key)
            self.votes[key] = stored(one.data, Votes) or NONE
            return before != self.votes[key]
        return False

    def _lost(self, kind: str, key: str) -> None:
        if kind == AGENT:
            self._members.drop(key)
        elif kind == GONE:
            self._members.restore(key)
        elif kind == EVALUATION:
            self.votes.pop(key, None)

    def _registered(self, key: str, one: Kept) -> bool:
        members, liveness = self._members, self._members.liveness
        found, known, me = stored(one.data, Joined), members.by_id.get(key), self._gateway.process
        if found is None or found.id != key:
            log.warning("what is kept of agent %s cannot be read", key)
            return False
        if known is not None and known.joined == found and known.owner == one.owner:
            return False
        if known is not None and known.connection is not None:
            if found.process == me and known.owner == one.owner:
                if found.seen > known.joined.seen:  # it sent a heartbeat to another process
                    known.hear_elsewhere(found, liveness.now())
                return False
            if found.process == "" and found.record == known.joined.record and known.owner == one.owner:
                members.note(known, known.joined)  # who wrote so did not know
                return False
            taken = Conflict(f"agent {key} has registered at another gateway at the same time, and is reached there")
            known.connection.session.tell(ERROR, note(to_rpc(taken), source=key))
            known.unbind()
        if known is None:
            beat = liveness.now() - max(0.0, members.now() - found.seen)
        else:
            beat = liveness.now() if found.seen > known.joined.seen else known.heard
        same = known is not None and known.joined.record == found.record
        try:
            member = members.take(found, one.owner, beat=beat)
        except (InterlinguaError, RecursionError, ValueError) as error:  # it was kept by another version, say
            log.warning("agent %s is not served: %s", key, error)
            return False
        if found.process == me and not members.lock(AGENT + key).locked():  # or it is registering just now
            members.note(member, replace(found, process=""))
        if same:
            return False  # a change of its status is told by the sweep
        member.tell(members.status(member))
        return True

    def _processes(self, names: Iterable[str]) -> set[str]:
        return {name.removeprefix(PROCESS) for name in names if name.startswith(PROCESS)} - {self._gateway.process}

    def _live_others(self, others: Set[str]) -> set[str]:
        """These other processes live. Returns the agents whose connections are there or gone by that."""
        members = self._members
        if others == members.liveness.others:
            return set()
        members.liveness.live(others)
        return {member.id for member in members.by_id.values() if member.tell(members.status(member))}

    # --- votes --------------------------------------------------------------------------------------------------

    async def _keep(self, agent: str, votes: Votes) -> None:
        await self._members.write(EVALUATION + agent, votes, expires_at=self._members.now() + YEAR)
        self.votes[agent] = votes

    async def _confirm(self, mark: int) -> None:
        """Votes of ours that another process has written over come in again."""
        for agent, owner in list(self._unsure):
            async with self._members.lock(EVALUATION + agent):
                if self._members.marks.newer(EVALUATION + agent, mark):
                    continue
                mine, votes = self._unsure.pop((agent, owner)), self.votes.get(agent, Votes(owner=owner))
                if votes.owner != owner:
                    continue  # the agent is another by now
                lost = [vote for vote, _ in mine.values() if lacks(votes, vote)]
                left = {who: (vote, 0 if vote in lost else seen + 1) for who, (vote, seen) in mine.items()}
                left = {who: (vote, seen) for who, (vote, seen) in left.items() if seen < SURE}
                if left:
                    self._unsure[agent, owner] = left
                if lost:
                    await self._keep(agent, merged(votes, *lost))

    # --- other processes ----------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Say that this process lives; again, should others have taken it for dead."""
        me = self._gateway.process
        with contextlib.suppress(Conflict):  # it is taken for dead just now
            await self._gateway.records.keep(PROTOCOL, PROCESS + me, {}, owner=me)

    async def _probe(self) -> None:
        now = self._members.liveness.now()
        others = self._members.liveness.others
        if not others or (now - self._probed < PROBE and not self._members.doubted()):
            return
        self._probed = now
        await self.probe(*sorted(others))

    async def probe(self, *processes: str) -> None:
        """Notice those of the other processes that are dead: the record of one that lives cannot be taken over."""
        for process in processes:
            try:
                await self._gateway.records.keep(PROTOCOL, PROCESS + process, {}, owner=self._gateway.process)
            except Conflict:
                continue
            await self._gateway.records.forget(PROTOCOL, PROCESS + process)
            if gone := self._live_others(self._members.liveness.others - {process}):
                self._changed(gone)
