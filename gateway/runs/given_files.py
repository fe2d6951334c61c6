"""The files that a run is given: those that come with its request, and those of its thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gateway.agents.directory import Entry
from gateway.core import files
from gateway.core.errors import TooLarge, Unsupported
from gateway.core.files import Attachment
from gateway.core.types import Agent, Artifact, RunRequest
from gateway.runs.threads import new_id


@dataclass
class GivenFiles:
    """What becomes of a request's files. `lost`: how many of them its agent does not get."""

    request: RunRequest
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
    """The request with references to its files in its input, where the input has places for them.

    `attached` come with the request, `uploaded` are those of its thread. `owner`: the id that the files' URLs name,
    `limit`: bytes that one file may have. Raises TooLarge, and Unsupported for a file that the agent does not take.
    """
    found = GivenFiles(request)
    if agent.capabilities.files and entry.route.target.protocol != request.protocol:
        document, more = files.taken(agent, request.input)
        found.request, attached = replace(request, input=document), [*attached, *more]
    if not attached and not uploaded:
        return found
    for each in attached:
        if len(each.content) > limit:
            raise TooLarge(f"the file {each.name} is larger than {limit} bytes")
        if _refused(entry, agent, each.media_type, each.name):
            found.lost += 1
            continue
        artifact = _artifact(each, owner, public_url)
        found.stored.append((artifact, each.content))
    new = [artifact for artifact, _ in found.stored]
    given_now = {artifact.id for artifact in new}
    waiting = [artifact for artifact in uploaded if artifact.run is None]
    known = [artifact for artifact in reversed(uploaded) if artifact.run is not None]
    found.lost += sum(_refused(entry, agent, each.media_type, each.name) for each in waiting)
    if not agent.capabilities.files:
        document, left = files.place(agent, found.request.input, [*new, *waiting])
        document, _ = files.place(agent, document, known)
        homeless = [artifact for artifact in left if files.takes(agent, artifact.media_type)]
        for artifact in homeless:
            if artifact.id in given_now and entry.route.lossy != "allow":
                raise Unsupported(f"agent {agent.name} has no place for one more file ({artifact.name})")
        found.lost += len(homeless)
        found.stored = [pair for pair in found.stored if pair[0] not in homeless]
        found.request = replace(found.request, input=document)
    ids = [artifact.id for artifact in new if artifact in (pair[0] for pair in found.stored)]
    ids += files.referred(found.request.input, [artifact.id for artifact in uploaded])
    found.request = replace(found.request, files=tuple(ids))
    return found


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
