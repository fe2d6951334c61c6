"""Rules that do as they are told and remember what they were asked, in the place of those of a governed route."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gateway.contract.governing import Instruction, ToolServer
from gateway.core.errors import Denied
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome
from gateway.governance.binding import Root, Roots

PROMISED: JsonObject = {"agent": {"loadSession": True, "promptCapabilities": {"embeddedContext": True}}}


class Rules:
    """A `Governor` and a `RunGovernor` in one.

    root: where paths may be. promised: as `tiers.promised` has it. verdicts: by tool: "deny", "ask", else allowed.
    log: what was asked, in order, by the name of the method.
    """

    def __init__(self, root: Path, *, promised: JsonObject | None = None, ephemeral: bool = False) -> None:
        self.about: JsonObject = {"tier": "governance-aware", "operator": "mail-operator", "acp_rev": "b7f0005"}
        self.ephemeral = ephemeral
        self.judges = True
        self.preface: Sequence[Instruction] = ()
        self.first: Sequence[Instruction] = ()
        self.home: str | None = str(root)
        self.servers: Sequence[ToolServer] = ()
        self.roots = Roots((Root(path=str(root)),))
        self.promised = PROMISED if promised is None else promised
        self.verdicts: dict[str, str] = {}
        self.answers: list[Answer] = []
        self.questions: list[Interrupt] = []
        self.granted: list[bool] = []
        self.log: list[tuple[str, Any]] = []
        self.before_act: Callable[[], None] = lambda: None

    def lends(self, can: JsonObject) -> JsonObject:
        """All."""
        return can

    def effective(self, can: JsonObject) -> JsonObject:
        return _both(self.promised, can)

    def check(self, can: JsonObject) -> None:
        self.log.append(("check", can))

    def admit(self, path: str, *, write: bool = False) -> str:
        return self.roots.admit(path, write=write)

    def offers(self, tool: str, server: str | None = None) -> bool:
        return self.verdicts.get(tool) != "deny"

    async def opened(self, thread: str, *, principal: str | None = None, protocol: str = "") -> None:
        self.log.append(("opened", thread))

    async def stray(self, thread: str, tool: str, arguments: Json, *, call: str = "", why: str = "") -> None:
        self.log.append(("stray", (thread, tool, arguments, call, why)))

    async def closed(self, thread: str) -> None:
        self.log.append(("closed", thread))

    async def forgotten(self) -> None:
        self.preface = self.first

    def describe(self, call: str, **said: Any) -> None:
        self.log.append(("describe", (call, {key: value for key, value in said.items() if value is not None})))

    async def permission(
        self,
        call: str,
        tool: str,
        arguments: Json,
        *,
        risk: int,
        server: str | None = None,
        question: Interrupt,
        grants: Callable[[Answer], bool],
    ) -> Answer | None:
        self.log.append(("permission", (call, tool, arguments, risk, server)))
        verdict = self.verdicts.get(tool)
        if verdict == "deny":
            return Answer(outcome=Outcome.DECLINED)
        if verdict != "ask":
            return None
        self.questions.append(question)
        answer = self.answers.pop(0)
        self.granted.append(grants(answer))
        return answer

    async def act(self, tool: str, arguments: Json, *, risk: int, server: str | None = None) -> str:
        self.log.append(("act", (tool, arguments, risk)))
        if self.verdicts.get(tool) == "deny":
            raise Denied(f"{tool} is not for you")
        self.before_act()
        return f"act-{len(self.of('act'))}"

    async def acted(self, call: str, *, result: Json = None, error: Json = None) -> None:
        self.log.append(("acted", (call, result, error)))

    def of(self, what: str) -> list[Any]:
        """What was asked by that method."""
        return [said for name, said in self.log if name == what]


def _both(one: JsonObject, other: Any) -> JsonObject:
    result: JsonObject = {}
    for key, value in one.items():
        theirs = other.get(key) if isinstance(other, dict) else None
        if isinstance(value, dict):
            if inner := _both(value, theirs):
                result[key] = inner
        elif value and theirs is True:
            result[key] = True
    return result
