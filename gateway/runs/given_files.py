"""The files that a run is given: those that come with its request, and those of its thread."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gateway.agents.entry import Entry
from gateway.contract.filling import Filled
from gateway.core import delta, files
from gateway.core.errors import TooLarge, Unsupported
from gateway.core.files import Attachment
from gateway.core.types import Agent, Artifact, RunRequest
from gateway.runs.threads import EARLIER
from gateway.store.records import new_id


class GivenFiles(msgspec.Struct):
    """The files of a request, sorted. `lost`: how many of them its agent does not get."""

    request: RunRequest
    entry: Entry
    agent: Agent
    filled: Filled | None = None
    """The input that was made of the request's words; None where it has none."""
    stored: list[tuple[Artifact, bytes]] = []
    """Files that are to be stored before the run is created."""
    lost: int = 0
    _kept_at: dict[str, str] = {}
    """By id of a file, where its base64 is in the request as it is kept."""

    def take_out(self) -> list[Attachment]:
        """The files that the client put into its input, for an agent whose protocol has a place for files."""
        document, found = files.taken(self.agent, self.request.input)
        if found:
            self.request = replace(self.request, input=document)
        return found

    def store(self, attached: Sequence[Attachment], folder: str, limit: int) -> None:
        """Note the files that the agent takes."""
        for each in attached:
            if len(each.content) > limit:
                raise TooLarge(f"the file {each.name} is larger than {limit} bytes")
            if self._refused(each.media_type, each.name):
                self.lost += 1
                continue
            artifact = _artifact(each, folder)
            self.stored.append((artifact, each.content))
            if each.at is not None:
                self._kept_at[artifact.id] = each.at

    def fill(self) -> None:
        """Make the input of the request's words, if it has any."""
        if self.request.prompt is not None:
            self.filled = self.entry.filling(self.agent).filled(self.request.prompt, self.request.input)
            self.request = replace(self.request, input=self.filled.document)

    def fill_with_files(self, uploaded: Sequence[Artifact]) -> None:
        """The same, with references to the files in the input's places for them.

        A message has a place for files only once it is made of the words. Every other place is taken before: what a
        file is the answer to is not asked.
        """
        new = [artifact for artifact, _ in self.stored]
        waiting = [artifact for artifact in uploaded if not _was_given(artifact)]
        known = [artifact for artifact in reversed(uploaded) if _was_given(artifact)]
        self.lost += sum(self._refused(each.media_type, each.name) for each in waiting)
        fresh, again = self._place([*new, *waiting]), self._place(known)
        self.fill()
        if self.filled is not None:
            fresh = self._place(fresh)
            self._place(again)
            self.filled = replace(self.filled, document=self.request.input, fits=False)
        if fresh and not self.agent.capabilities.files:
            self._leave([artifact for artifact in fresh if files.takes(self.agent, artifact.media_type)])

    def name(self, uploaded: Sequence[Artifact]) -> None:
        """Note in the request which files are its own, with references in place of their base64."""
        creation = self.request.creation
        for artifact, _ in self.stored:
            if artifact.id in self._kept_at:
                creation = delta.pointer_set(creation, self._kept_at[artifact.id], files.reference(artifact))
        ids = [artifact.id for artifact, _ in self.stored]
        ids += files.referred(self.request.input, [artifact.id for artifact in uploaded])
        self.request = replace(self.request, files=tuple(ids), creation=creation)

    def _place(self, given: Sequence[Artifact]) -> list[Artifact]:
        """Put references to the files into the input; those that find no place."""
        if not given:
            return []
        document, left = files.place(self.agent, self.request.input, given)
        self.request = replace(self.request, input=document)
        return left

    def _leave(self, homeless: Sequence[Artifact]) -> None:
        """Leave out files that found no place in the input. Raises Unsupported where they may not be."""
        new = {artifact.id for artifact, _ in self.stored}
        for artifact in homeless:
            if artifact.id in new and self.entry.route.lossy != "allow":
                raise Unsupported(f"agent {self.agent.name} has no place for one more file ({artifact.name})")
        self.lost += len(homeless)
        self.stored = [pair for pair in self.stored if pair[0] not in homeless]

    def _refused(self, media_type: str, name: str) -> bool:
        """Whether a file is left out. Raises Unsupported where it may not be."""
        return not self.entry.takes_file(self.agent, media_type, name)


def given(
    request: RunRequest,
    attached: Sequence[Attachment],
    uploaded: Sequence[Artifact],
    entry: Entry,
    agent: Agent,
    *,
    folder: str,
    limit: int,
) -> GivenFiles:
    """The request with its input made of its words, if it has any, and with references to its files in the places that
    the input has for them.

    `attached` come with the request, `uploaded` are those of its thread. `folder`: the URL of what is stored is below
    it, `limit`: bytes that one file may have. Raises TooLarge, and Unsupported for a file that the agent does not take.
    """
    found = GivenFiles(request, entry, agent)
    if agent.capabilities.files and entry.route.target.protocol != request.protocol:
        attached = [*attached, *found.take_out()]
    if not attached and not uploaded:
        found.fill()
        return found
    found.store(attached, folder, limit)
    found.fill_with_files(uploaded)
    if found.stored or uploaded:
        found.name(uploaded)
    return found


def _was_given(artifact: Artifact) -> bool:
    """Whether a file of a thread came with an earlier run, or with one of the thread that this one is a copy of."""
    return artifact.run is not None or EARLIER in artifact.metadata


def _artifact(file: Attachment, folder: str) -> Artifact:
    artifact_id = new_id()
    return Artifact(
        id=artifact_id,
        name=file.name,
        media_type=file.media_type,
        size=len(file.content),
        agent_created=False,
        created_at=time.time(),
        url=f"{folder}/{artifact_id}",
    )
