"""The files that a run is given: those that come with its request, and those of its thread."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.agents.directory import Entry
from gateway.contract.filling import Filled
from gateway.core import delta, files
from gateway.core.errors import TooLarge, Unsupported
from gateway.core.files import Attachment
from gateway.core.types import Agent, Artifact, RunRequest
from gateway.runs.threads import EARLIER, new_id


@dataclass
class GivenFiles:
    """What becomes of a request's files. `lost`: how many of them its agent does not get."""

    request: RunRequest
    filled: Filled | None = None
    """The input that was made of the request's words; None where it has none."""
    stored: list[tuple[Artifact, bytes]] = field(default_factory=list)
    """Files that are to be stored before the run is created."""
    lost: int = 0


def given(
    request: RunRequest,
    attached: Sequence[Attachment],
    uploaded: Sequence[Artifact],
    entry: Entry,
    agent: Agent,
    *,
    owner: str,
    public_url: str,
    limit: int,
) -> GivenFiles:
    """The request with its input made of its words, if it has any, and with references to its files in the places that
    the input has for them.

    `attached` come with the request, `uploaded` are those of its thread. `owner`: the id that the files' URLs name,
    `limit`: bytes that one file may have. Raises TooLarge, and Unsupported for a file that the agent does not take.
    """
    found = GivenFiles(request)
    if agent.capabilities.files and entry.route.target.protocol != request.protocol:
        document, more = files.taken(agent, request.input)
        found.request, attached = replace(request, input=document), [*attached, *more]
    if not attached and not uploaded:
        _fill(found, entry, agent)
        return found
    said: dict[str, str] = {}
    for each in attached:
        if len(each.content) > limit:
            raise TooLarge(f"the file {each.name} is larger than {limit} bytes")
        if _refused(entry, agent, each.media_type, each.name):
            found.lost += 1
            continue
        artifact = _artifact(each, owner, public_url)
        found.stored.append((artifact, each.content))
        if each.at is not None:
            said[artifact.id] = each.at
    new = [artifact for artifact, _ in found.stored]
    waiting = [artifact for artifact in uploaded if not _was_given(artifact)]
    known = [artifact for artifact in reversed(uploaded) if _was_given(artifact)]
    found.lost += sum(_refused(entry, agent, each.media_type, each.name) for each in waiting)
    if agent.capabilities.files:
        _fill(found, entry, agent)
    else:
        # A prompt is a message, with a place for files, only once the input is made of it. What else the input asks
        # for is not asked where a file is the answer.
        fresh, again = _place(found, agent, [*new, *waiting]), _place(found, agent, known)
        _fill(found, entry, agent)
        fresh = _place(found, agent, fresh)
        _place(found, agent, again)
        _leave(found, entry, [artifact for artifact in fresh if files.takes(agent, artifact.media_type)])
    ids = [artifact.id for artifact, _ in found.stored]
    ids += files.referred(found.request.input, [artifact.id for artifact in uploaded])
    creation = found.request.creation
    for artifact, _ in found.stored:
        if artifact.id in said:
            creation = delta.pointer_set(creation, said[artifact.id], files.reference(artifact))
    found.request = replace(found.request, files=tuple(ids), creation=creation)
    if found.filled is not None:
        found.filled = dataclasses.replace(found.filled, document=found.request.input)
    return found


def _fill(found: GivenFiles, entry: Entry, agent: Agent) -> None:
    request = found.request
    if request.prompt is not None:
        found.filled = entry.filling(agent).filled(request.prompt, request.input)
        found.request = replace(request, input=found.filled.document)


def _place(found: GivenFiles, agent: Agent, given: Sequence[Artifact]) -> list[Artifact]:
    """Put references to the files into the input; those that find no place."""
    document, left = files.place(agent, found.request.input, given)
    found.request = replace(found.request, input=document)
    return left


def _leave(found: GivenFiles, entry: Entry, homeless: Sequence[Artifact]) -> None:
    """Leave out files that found no place in the input. Raises Unsupported where they may not be."""
    new = {artifact.id for artifact, _ in found.stored}
    for artifact in homeless:
        if artifact.id in new and entry.route.lossy != "allow":
            raise Unsupported(f"agent {found.request.agent} has no place for one more file ({artifact.name})")
    found.lost += len(homeless)
    found.stored = [pair for pair in found.stored if pair[0] not in homeless]


def _was_given(artifact: Artifact) -> bool:
    """Whether a file of a thread came with an earlier run, or with one of the thread that this one is a copy of."""
    return artifact.run is not None or EARLIER in artifact.metadata


def _refused(entry: Entry, agent: Agent, media_type: str, name: str) -> bool:
    """Whether a file is left out. Raises Unsupported where it may not be."""
    return not entry.takes_file(agent, media_type, name)


def _artifact(file: Attachment, owner: str, public_url: str) -> Artifact:
    artifact_id = new_id()
    return Artifact(
        id=artifact_id,
        name=file.name,
        media_type=file.media_type,
        size=len(file.content),
        agent_created=False,
        created_at=time.time(),
        url=f"{public_url}/artifacts/{owner}/{artifact_id}",
    )
