"""Tells the rules of a governed run what its agent says of tool calls (see `gateway.contract.RunGovernor`).

The gate of a governed run judges the events of a call. What no event has of it is told here: the tool's name and risk
as they change, arguments that come late, whether the agent may still ask for permission; and that question itself is
put to the rules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final

from msgspec import Raw, Struct
from msgspec.structs import replace

from adapters.agent_client.codec import event_forms, questions
from adapters.agent_client.codec.questions import offered
from adapters.agent_client.wire import JsonObject, without
from gateway.contract import governing
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, Json, Outcome, ThreadUpdate
from gateway.wire import jsonrpc

REFUSED: Final = "tool_refused"
"""The loss where the agent speaks of a call that is told to no client."""
SHOWN: Final = ("title", "name", "kind", "status", "rawInput", "content", "locations", "_meta")
"""Members shown to a client that is asked about a call it was not told of."""
MOST: Final = 10_000
"""Calls of a session whose ids are remembered."""
NAMES: Final = ("title", "name")
OF_CALL: Final = "governed.call"
"""In `Custom.origin`, the call that the event goes on with, by the name that the run's events give it."""
RESULTS: Final = ("status", "rawOutput", "content")
"""Members of an update that add to a call's result."""
IDENTITY: Final = ("toolCallId", "title", "name", "kind", "_meta")
"""Members remembered of a call that is over."""
MOST_HELD: Final = 1000
"""Updates of terminals that are held until a call shows them."""
NOT_BEGUN: Final = (None, "pending", "failed", "cancelled")
"""States of a call that do not tell that it has begun."""
_CALLS: Final = (e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded)


class AgentToolCall(Struct):
    """One call as far as the agent has spoken of it. `name` is what the run's events call it."""

    name: str
    said: JsonObject = {}
    tool: str = ""
    risk: int = 0
    pending: bool = True
    over: bool = False

    def add(self, said: JsonObject) -> None:
        self.said = _whole(self.said, said)
        self.pending = self.pending and said.get("status") in NOT_BEGUN

    def judged(self, tool: str, risk: int) -> None:
        """The rules know it as a call of that tool now, and as risky as it ever was."""
        self.tool, self.risk = tool, max(self.risk, risk)

    def end(self) -> None:
        """It is over: only what tells which one it was is remembered."""
        self.over = True
        self.said = {key: value for key, value in self.said.items() if key in IDENTITY}


class AgentToolCalls:
    """The tool calls of one run, by the agent's own ids."""

    def __init__(self, rules: governing.RunGovernor, lost: Callable[[str], None], heard: dict[str, None]) -> None:
        """`heard`: the ids of the session's calls, of earlier runs too; those of this run are put in."""
        self._heard = heard
        self._earlier = frozenset(heard)
        self._rules = rules
        self._lost = lost
        self._calls: dict[str, AgentToolCall] = {}
        self._times: dict[str, int] = {}
        self._questions: set[str] = set()
        self._shown_by: dict[str, str] = {}  # terminal -> the call that shows it
        self._held: list[e.Custom] = []

    def described(self, found: Sequence[e.Event | ThreadUpdate], update: Raw | None) -> list[e.Event | ThreadUpdate]:
        """Tell the rules an update of the agent's before it is emitted.

        Returns it without what no rule could judge: calls without an id, and changed words of a call that is over. Left
        out, too, are calls that stand for a question of another gateway, and late updates of an earlier run's call. A
        terminal belongs to its call: its updates are held until a call shows it, and are then judged with that call.
        """
        items = [item for item in found if not self._unjudged(item)]
        if len(items) < len(found):
            self._lost(REFUSED)
        first = next((item for item in items if isinstance(item, _CALLS)), None)
        said = delta.sound(jsonrpc.unpack(update)) if first is not None and update is not None else None
        if is_terminal(said):
            known = {call.name for call in self._calls.values()}
            items = [item for item in items if not isinstance(item, _CALLS) or item.call in known]
        elif first is not None and said is not None:
            id = str(said.get("toolCallId"))
            late = id in self._earlier and id not in self._calls and goes_on(said)
            if late:
                self._lost(REFUSED)
            if event_forms.is_question(said) or id in self._questions:
                self._questions.add(id)
            if late or id in self._questions:
                return [item for item in items if not isinstance(item, _CALLS)]
            call = self._describe(first, said)
            if any(isinstance(item, e.ToolCallEnded) for item in items):
                call.end()
            self._anchored(said, call)
        placed = [each for item in items for each in (self._placed(item) if isinstance(item, e.Custom) else (item,))]
        return [*placed, *self._released()]

    def over(self) -> None:
        """The run has ended: a terminal that no call has shown is a command that nobody has judged."""
        for _ in self._held:
            self._lost(REFUSED)
        self._held.clear()

    def _placed(self, item: e.Custom) -> list[e.Custom]:
        """Assign an update that has no event of its own to its call. Then follow the updates that were held for it."""
        said = item.data
        if not isinstance(said, dict):
            return [item]
        if is_terminal(said):
            name = self._shown_by.get(str(said.get("terminalId")))
            if name is None:
                if len(self._held) < MOST_HELD:
                    self._held.append(item)
                else:
                    self._lost(REFUSED)
                return []
            return [_of(name, item)]
        if not is_call(said):
            return [item]
        call = self._calls[str(said.get("toolCallId"))]
        self._anchored(said, call)
        return [_of(call.name, item), *self._released()]

    def _anchored(self, said: JsonObject, call: AgentToolCall) -> None:
        content = said.get("content")
        for item in content if isinstance(content, list) else [content]:
            if isinstance(item, dict) and item.get("type") == "terminal":
                self._shown_by.setdefault(str(item.get("terminalId")), call.name)

    def _released(self) -> list[e.Custom]:
        if not self._held:
            return []
        held, self._held = self._held, []
        return [each for item in held for each in self._placed(item)]

    def _unjudged(self, item: e.Event | ThreadUpdate) -> bool:
        """Whether it says of a tool call what no event says, and not just more of one that is known."""
        said = item.data if isinstance(item, e.Custom | ThreadUpdate) else None
        if not isinstance(said, dict) or not is_call(said):
            return isinstance(item, ThreadUpdate) and is_terminal(said)
        call = self._calls.get(str(said.get("toolCallId")))
        if call is None or not isinstance(item, e.Custom):
            return True
        whole = _whole(call.said, said)
        if said.get("rawInput") is not None:  # of a call that is over
            return True
        return event_forms.named(whole) != call.tool or stated_risk(whole, [said.get("kind")]) > call.risk

    def _describe(
        self, event: e.ToolCallStarted | e.ToolCallUpdated | e.ToolCallEnded, said: JsonObject
    ) -> AgentToolCall:
        id = str(said.get("toolCallId"))
        call = self._calls.get(id)
        new = isinstance(event, e.ToolCallStarted)
        first = call is None or new
        if call is None or new:
            call = self._calls[id] = AgentToolCall(event.call)
            self._times[id] = self._times.get(id, 0) + 1
            heard(self._heard, id)
        call.add(said)
        tool, risk = event_forms.named(call.said), stated_risk(call.said, [said.get("kind")])
        self._rules.describe(
            call.name,
            tool=None if tool == call.tool else tool,
            server=event_forms.server_of(call.said),
            risk=risk if first or risk > call.risk else None,
            arguments=None if new else said.get("rawInput"),
            pending=call.pending,
        )
        call.judged(tool, risk)
        return call

    async def permission(
        self, interrupt: Interrupt, kinds: Collection[str], ask: Callable[[Interrupt], Awaitable[Answer]]
    ) -> JsonObject | None:
        """The answer to a `session/request_permission`; None: the route's own policy decides.

        `interrupt` is the question, `kinds` what the agent said of the call, now and before. `ask` puts it to a person:
        a question about no tool call is not for a policy to answer. What the agent said before is logged already.
        """
        asked = interrupt.payload
        if questions.is_question(asked):
            return questions.permission_result(await ask(interrupt), asked)
        said = asked["toolCall"]
        id = said["toolCallId"]
        call = self._calls.get(id)
        before = call.said if call is not None and not call.over else {}
        whole = _whole(before, said)
        question = _question(interrupt, {key: before[key] for key in SHOWN if key in before})
        answer = await self._rules.permission(
            self._name(id),
            event_forms.named(whole),
            whole.get("rawInput"),
            risk=stated_risk(whole, kinds),
            server=event_forms.server_of(whole),
            question=question,
            grants=lambda answer: grants(answer, question.payload),
        )
        return None if answer is None else questions.permission_result(answer, question.payload)

    def _name(self, id: str) -> str:
        """The call's name in the run's events, now or later: as `codec.updates_in` names calls whose ids come again."""
        call = self._calls.get(id)
        if call is not None and not call.over:
            return call.name
        times = self._times.get(id, 0) + 1
        return id if times == 1 else f"{id}#{times}"


def _whole(before: JsonObject, said: JsonObject) -> JsonObject:
    """All that is known of a call: what is left out, or null, stays as it was, also below `_meta` and its `aip44`."""
    whole = {**before, **{key: value for key, value in said.items() if value is not None}}
    first, second = before.get("_meta"), said.get("_meta")
    if isinstance(first, dict) and isinstance(second, dict):
        whole["_meta"] = {**first, **second}
        if profile := {**event_forms.profile(before), **event_forms.profile(said)}:
            whole["_meta"]["aip44"] = profile
    return whole


def heard(ids: dict[str, None], id: str) -> None:
    ids[id] = None
    if len(ids) > MOST:
        del ids[next(iter(ids))]


def tool_call_of(event: e.Custom) -> governing.CallNews | None:
    """See `RuleKeeping.tool_call_of`. One that is not marked is of the call that its data names."""
    said = event.data if isinstance(event.data, dict) else {}
    call = None if event.origin is None else event.origin.get(OF_CALL)
    if not isinstance(call, str):
        if "toolCallId" not in said:
            return None
        call = str(said["toolCallId"])
    return governing.CallNews(call, {key: said[key] for key in RESULTS if said.get(key) is not None})


def goes_on(said: JsonObject) -> bool:
    """Whether an update adds to a call that was told before. Agents use ids again: what has its own name is new."""
    return said.get("sessionUpdate") != "tool_call" and not any(isinstance(said.get(key), str) for key in NAMES)


def is_call(data: Json) -> bool:
    return (event_forms.kind_of(data) or "").startswith("tool_call")


def is_terminal(data: Json) -> bool:
    return (event_forms.kind_of(data) or "").startswith("terminal_")


def _of(call: str, item: e.Custom) -> e.Custom:
    return replace(item, origin={**(item.origin or {}), OF_CALL: call})


def stated_risk(said: JsonObject, kinds: Iterable[Json]) -> int:
    """The risk of a call of these kinds; where the agent contradicts itself, the greatest."""
    stated = event_forms.profile(said).get("risk")
    known = [kind for kind in (*kinds, said.get("kind")) if isinstance(kind, str)]
    return max((governing.risk_of(kind, stated) for kind in known), default=governing.risk_of(None, stated))


def grants(answer: Answer, payload: Json) -> bool:
    """Whether an answer lets the agent do what it asked about: any option that is not plainly a refusal does.

    Not one whose id is that of a refusal as well: nobody knows what was chosen.
    """
    if answer.outcome is not Outcome.ANSWERED:
        return False
    wanted = answer.value.get("optionId") if isinstance(answer.value, dict) else answer.value
    chosen = [option for option in offered(payload) if option["optionId"] == wanted]
    return bool(chosen) and not any(map(questions.rejects, chosen))


def _question(interrupt: Interrupt, known: JsonObject) -> Interrupt:
    """The question with what the client was not told of the call, and without what would answer the next ones, too.

    An approval is for one call: with `allow_always` the agent would not ask again. Options that share an id are not
    offered: nobody knows what their choice means to the agent.
    """
    asked = interrupt.payload
    if questions.is_v2(asked):
        known = without(known, "content")
    ids = [option["optionId"] for option in offered(asked)]
    clear = [option for option in offered(asked) if ids.count(option["optionId"]) == 1]
    options = [option for option in clear if option.get("kind") != "allow_always"]
    if not any(option.get("kind") == "allow_once" for option in options):
        options = clear
    payload = {**asked, "toolCall": _whole(known, asked["toolCall"]), "options": options}
    subject = asked.get("subject")
    if isinstance(subject, dict) and isinstance(subject.get("toolCall"), dict):
        payload["subject"] = {**subject, "toolCall": _whole(known, subject["toolCall"])}
    return replace(questions.permission(payload, interrupt.id), message=interrupt.message, payload=payload)
