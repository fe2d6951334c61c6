"""The files of a run: what its agent makes, and what clients gave it (see `gateway.contract.RunContext`)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from gateway.core import events as e
from gateway.core.types import Artifact, JsonObject, Run, Thread
from gateway.runs.records import in_chunks
from gateway.runs.rules import Rules
from gateway.runs.threads import UPLOADS, new_id
from gateway.store import Store


@dataclass(kw_only=True)
class RunFiles:
    """A part of `LiveRun`."""

    run: Run
    store: Store
    thread: Thread | None = None
    house_rules: Rules
    public_url: str = ""
    """What the URLs of artifacts begin with."""
    artifacts: list[Artifact] = field(default_factory=list, init=False)

    def emit(self, *events: e.Event) -> None:
        raise NotImplementedError

    async def add_artifact(
        self,
        name: str,
        content: AsyncIterator[bytes] | bytes,
        *,
        media_type: str = "application/octet-stream",
        relative_path: str | None = None,
        metadata: JsonObject | None = None,
    ) -> Artifact:
        artifact_id = new_id()
        artifact = Artifact(
            id=artifact_id,
            name=name,
            run=self.run.id,
            thread=self.run.thread,
            relative_path=relative_path,
            media_type=media_type,
            created_at=time.time(),
            url=f"{self.public_url}/artifacts/{self.run.id}/{artifact_id}",
            metadata=metadata or {},
        )
        limit = self.house_rules.artifact_limit
        artifact = await self.store.put_artifact(artifact, in_chunks(content), max_bytes=limit)
        self.artifacts.append(artifact)
        self.emit(e.ArtifactAdded(artifact=artifact))
        return artifact

    async def uploads(self) -> Sequence[Artifact]:
        uploaded_to = self.thread is not None and self.thread.attributes.get(UPLOADS)
        if not self.run.request.files and not uploaded_to:
            return []
        found = await self.store.artifacts(run=self.run.id, thread=self.run.thread)
        return [artifact for artifact in found if not artifact.agent_created]

    async def contents(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The content of files, by id. Raises NotFound for one that was removed."""
        return {each: b"".join([chunk async for chunk in self.open_artifact(each)]) for each in ids}

    def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        return self.store.open_artifact(artifact_id)
