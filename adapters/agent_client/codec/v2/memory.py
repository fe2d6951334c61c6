"""Remembers what an agent of version 2 has said in a session, as far as later updates build on it.

Version 2 names messages, calls, plans and terminals for the life of a session, and anything may be said of them at any
time; version 1 has no word that adds to a call's content. One for each session, used by the decoders of its runs and by
`stray`.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import itertools
import re
from collections.abc import Callable, Container
from typing import Any, Final, NamedTuple

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.v2 import tool_calls, updates
from adapters.agent_client.codec.v2.wire import CALL, CALL_CHUNK, PLAN, PLAN_REMOVED, TERMINAL, TERMINAL_CHUNK, UPDATE
from gateway.core import delta
from gateway.core.types import JsonObject

LIMIT: Final = 64 * 1024
"""Newest bytes of a terminal that are kept; in a transcript it is said how many there were before them."""
_SEQUENCE: Final = (
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: titles, links, pictures
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"

_ELSEWHERE: Final[JsonObject] = {
    "type": "content",
    "content": {"type": "text", "text": "(Its terminal is shown with an earlier tool call.)"},
}
MOST: Final = 10_000
"""Messages, and calls, that are remembered by name."""
TERMINALS: Final = 64
"""Terminals that are remembered, with what they show."""
SMALL: Final = 2048
GROWTH: Final = 1.25
"""A call's content is told again with each piece that is added while it is small (in bytes), then when it has grown by
this factor, and in the end."""
_WORKING: Final = ("pending", "in_progress")
_FINAL: Final = ("completed", "failed")


# --- terminals of version 2 as text ---------------------------------------------------------------------------------
# They are the agent's and only shown; those of version 1 are the client's, so that none may be made of them. Version 1
# is told a transcript instead, in the tool call that shows the terminal: the command, what it printed without control
# sequences, and how it ended.


class ShownTerminal:
    """A terminal. `size`: bytes that it has said, those that are not kept, too. `call`: the call whose content it is.

    `forgotten`: whether it is not known by name any more, so that nothing else will be said of it.
    """

    __slots__ = ("_command", "_cwd", "_dropped", "_exit", "_output", "call", "forgotten", "size")

    def __init__(self) -> None:
        self.size = 0
        self.call: str | None = None
        self.forgotten = False
        self._command: str | None = None
        self._cwd: str | None = None
        self._exit: JsonObject | None = None
        self._output = bytearray()
        self._dropped = 0

    def shown_in(self, call: str) -> None:
        self.call = call

    def forget(self) -> None:
        self.forgotten = True

    @property
    def over(self) -> bool:
        """Whether what ran there has ended, or nobody will hear of its end."""
        return self._exit is not None or self.forgotten

    @property
    def cut(self) -> bool:
        return self._dropped > 0

    def learn(self, said: JsonObject) -> bool:
        """A `terminal_update` or `terminal_output_chunk`. True if something is otherwise now than by more output.

        What is left out stays, null clears. Data that is no base64 is none.
        """
        if said[UPDATE] == TERMINAL_CHUNK:
            self._append(_bytes(said.get("data")))
            return False
        before = (self._command, self._cwd, self._exit)
        if "command" in said:
            self._command = _text(said["command"])
        if "cwd" in said:
            self._cwd = _text(said["cwd"])
        if "exitStatus" in said:
            self._exit = said["exitStatus"] if isinstance(said["exitStatus"], dict) else None
        another = "output" in said and self._replace(said["output"])
        return another or before != (self._command, self._cwd, self._exit)

    def item(self, meta: Any) -> JsonObject | None:
        """The terminal as an item of a call's content, in version 1's words; None while nothing is known of it."""
        lines = []
        if self._command is not None:
            lines.append(f"{self._cwd} $ {self._command}" if self._cwd is not None else f"$ {self._command}")
        start = 0
        if self.cut:
            start = self._output.find(b"\n") + 1
            lines.append(f"[{self._dropped + start} bytes before this are left out]")
        if output := transcript(bytes(self._output[start:])):
            lines.append(output)
        if self._exit is not None:
            lines.append(_ended(self._exit))
        if not lines:
            return None
        text = event_forms.fenced("\n".join(lines), "console")
        more = {"_meta": meta} if isinstance(meta, dict) else {}
        return {"type": "content", "content": {"type": "text", "text": text}, **more}

    def _replace(self, output: Any) -> bool:
        """All of the output. False if it goes on from what was there."""
        data = _bytes(output.get("data")) if isinstance(output, dict) else b""
        if not self.cut and data.startswith(bytes(self._output)):
            self._append(data[len(self._output) :])
            return False
        self._output.clear()
        self._dropped = 0
        self._append(data)
        return True

    def _append(self, data: bytes) -> None:
        self._output += data
        self.size += len(data)
        if (more := len(self._output) - LIMIT) > 0:
            del self._output[:more]
            self._dropped += more


class Screen(NamedTuple):
    """Where a call's content shows a terminal. `mine`: whether it is that call's, and not an earlier one's."""

    terminal: ShownTerminal
    mine: bool
    meta: Any

    def item(self) -> JsonObject | None:
        return self.terminal.item(self.meta) if self.mine else _ELSEWHERE


def transcript(data: bytes) -> str:
    """The text that a terminal shows for these bytes. A line that is written over shows its last writing."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)  # without half a character at the end
    lines = re.sub(_SEQUENCE, "", text).rstrip("\r\n").split("\n")
    return re.sub(_CONTROL, "", "\n".join([line.rstrip("\r").rpartition("\r")[2] for line in lines]))


def _ended(status: JsonObject) -> str:
    code, signal = status.get("exitCode"), status.get("signal")
    if isinstance(signal, str) and signal:
        return f"[ended by {signal}]"
    return f"[exit code {code}]" if isinstance(code, int) else "[ended]"


def _text(value: Any) -> str | None:
    return re.sub(_CONTROL, "", re.sub(_SEQUENCE, "", value)) if isinstance(value, str) and value else None


def _bytes(data: Any) -> bytes:
    try:
        return base64.b64decode(data) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return b""


# --- what an agent has said in a session ----------------------------------------------------------------------------


class SessionCall:
    """A call: its title and kind, whether it is over, and its content in version 1's words, that pieces are added to.

    owed: whether content is still to be told.
    """

    __slots__ = ("_size", "_told", "items", "kind", "over", "owed", "title")

    def __init__(self) -> None:
        self.title: str | None = None
        self.kind: str | None = None
        self.items: list[JsonObject | Screen] = []
        self.over = self.owed = False
        self._size = self._told = 0

    def learn(self, v1: JsonObject) -> None:
        """An update in version 1's words says this of it, which is about to be told."""
        title, kind = v1.get("title"), v1.get("kind")
        self.title = title if isinstance(title, str) else self.title
        self.kind = kind if isinstance(kind, str) else self.kind
        self.over = self.over or v1.get("status") in _FINAL
        if "content" in v1:
            self.items[:], self.owed = v1["content"], True
            self._size = sum(map(_size, self.items))

    def works_again(self) -> None:
        self.over = False
        self.empty()

    def unsaid(self, said: JsonObject) -> JsonObject:
        """The title and kind that an update leaves as they are."""
        known = {"title": self.title, "kind": self.kind}
        return {key: value for key, value in known.items() if value is not None and said.get(key) is None}

    def empty(self) -> None:
        """Forget its content."""
        self.items.clear()
        self._size = self._told = 0
        self.owed = False

    def add(self, item: JsonObject | Screen) -> bool:
        """One item more. True if all of it is to be told now."""
        self.items.append(item)
        return self.grow(_size(item))

    def grow(self, size: int) -> bool:
        """Its content is that much larger. True if all of it is to be told now."""
        self._size += size
        self.owed = self._size > SMALL and self._size < GROWTH * self._told
        if not self.owed:
            self._told = self._size
        return not self.owed

    def shows(self, terminal: ShownTerminal) -> bool:
        return any(isinstance(item, Screen) and item.mine and item.terminal is terminal for item in self.items)

    def settle(self) -> None:
        """A run has ended: forget the content of a call that is over, unless what runs in a terminal of it is not."""
        if self.over and not any(
            isinstance(item, Screen) and item.mine and not item.terminal.over for item in self.items
        ):
            self.empty()

    def take(self) -> list[JsonObject]:
        self.owed, self._told = False, self._size
        found = [item.item() if isinstance(item, Screen) else item for item in self.items]
        return [item for item in found if item is not None]


class SessionMemory:
    """Made with a session. Nothing of it needs to outlive the process: what is forgotten is heard of anew."""

    def __init__(self) -> None:
        self._calls: dict[str, SessionCall] = {}
        self._messages: dict[str, None] = {}
        self._terminals: dict[str, ShownTerminal] = {}
        self._unsaid: set[str] = set()  # those of which something was said that no call shows
        self._plans: dict[str, list[Any]] = {}  # entries of those that are lists, by id

    def told(
        self, said: JsonObject, open: Callable[[str], bool] = lambda call: True
    ) -> tuple[JsonObject | None, list[str]]:
        """An update of a call, a terminal or a plan in version 1's words, and the names of what they leave out.

        None for any other, and for one that version 1 has no words for, or is told of later. `open`: whether the run
        knows a call.
        """
        kind, call = said[UPDATE], said.get("toolCallId")
        if kind in (CALL, CALL_CHUNK) and isinstance(call, str):
            return (self._called if kind == CALL else self._added)(said, call, open(call))
        if kind in (TERMINAL, TERMINAL_CHUNK):
            return self._shown(said)
        return self._planned(said) if kind in (PLAN, PLAN_REMOVED) else (None, [])

    # --- messages ------------------------------------------------------------------------------------------------

    def message(self, id: str) -> None:
        self._messages[id] = None
        _trim(self._messages)

    def heard(self, id: str) -> bool:
        return id in self._messages

    def another(self, id: str) -> str:
        """An id for version 1, where the message of this one is said anew."""
        name = another(id, self._messages)
        self.message(name)
        return name

    # --- tool calls ----------------------------------------------------------------------------------------------

    def _called(self, said: JsonObject, id: str, open: bool) -> tuple[JsonObject, list[str]]:
        """A `tool_call_update`, with the content that is owed.

        One that has ended and works again is a call anew. A run that does not know the call is told what it is called.
        """
        call, first = self._hear(id)

        def shown(item: JsonObject) -> Screen | None:
            return self._screen(id, item)

        v1, lost = tool_calls.to_v1(said, first=first, shown=shown)
        if call.over and v1.get("status") in _WORKING:
            v1, lost = tool_calls.to_v1({**said, **call.unsaid(said)}, first=True, shown=shown)
            call.works_again()
        elif not (open or first):
            v1 = {**v1, **call.unsaid(said)}
        call.learn(v1)
        if call.owed:
            v1["content"] = call.take()
        return v1, lost

    def _added(self, said: JsonObject, id: str, open: bool) -> tuple[JsonObject | None, list[str]]:
        """A `tool_call_content_chunk`: the content with it."""
        call, first = self._hear(id)
        item, name = tool_calls.item_to_v1(said.get("content"), lambda item: self._screen(id, item))
        lost = [] if name is None else [name]
        if (item is None or not call.add(item)) and not first:
            return None, lost
        v1: JsonObject = {"sessionUpdate": "tool_call" if first else "tool_call_update", "toolCallId": id}
        v1 |= {"title": id} if first else {} if open else call.unsaid({})
        return ({**v1, "content": call.take()} if call.items else v1), lost

    def owed(self) -> list[JsonObject]:
        """Updates of calls still owed before a run ends, in version 1's words."""
        return [
            {"sessionUpdate": "tool_call_update", "toolCallId": id, "content": call.take()}
            for id, call in self._calls.items()
            if call.owed
        ]

    def settle(self) -> None:
        for call in self._calls.values():
            call.settle()

    # --- terminals -----------------------------------------------------------------------------------------------

    def _shown(self, said: JsonObject) -> tuple[JsonObject | None, list[str]]:
        """A `terminal_update` or `terminal_output_chunk`: the call that shows it, with the content as it is now."""
        id = said.get("terminalId")
        if not isinstance(id, str):
            return None, [tool_calls.TERMINAL]
        terminal = self._terminal(id)
        size, cut = terminal.size, terminal.cut
        now = terminal.learn(said)
        lost = [tool_calls.TERMINAL] if terminal.cut and not cut else []
        shown = None if terminal.call is None else self._calls.get(terminal.call)
        if shown is None or not shown.shows(terminal):
            self._unsaid.add(id)
            return None, lost
        if not shown.grow(terminal.size - size) and not now:
            return None, lost
        return {"sessionUpdate": "tool_call_update", "toolCallId": terminal.call, "content": shown.take()}, lost

    def _planned(self, said: JsonObject) -> tuple[JsonObject | None, list[str]]:
        """A `plan_update` or `plan_removed`: all plans there are, as version 1's one."""
        removed, plan = said[UPDATE] == PLAN_REMOVED, said.get("plan")
        id = said.get("planId") if removed else plan.get("planId") if isinstance(plan, dict) else None
        if not isinstance(id, str):
            return None, []
        entries = None if removed else updates.as_list(plan)
        if entries is not None:
            self._plans[id] = entries
        elif self._plans.pop(id, None) is None:
            return None, []
        found, unknown = updates.plan_to_v1(self._plans.values())
        return found, [tool_calls.WORD] * unknown

    def unsaid(self) -> int:
        """How many terminals there are of which something was said that no call shows: before a run ends."""
        count = len(self._unsaid)
        self._unsaid.clear()
        return count

    def _screen(self, call: str, item: JsonObject) -> Screen | None:
        id = item.get("terminalId")
        if not isinstance(id, str):
            return None
        terminal = self._terminal(id)
        if terminal.call is None:
            terminal.shown_in(call)
            self._unsaid.discard(id)
        return Screen(terminal, terminal.call == call, item.get("_meta"))

    def _terminal(self, id: str) -> ShownTerminal:
        terminal = self._terminals.get(id)
        if terminal is None:
            terminal = self._terminals[id] = ShownTerminal()
            if len(self._terminals) > TERMINALS:
                oldest = next(iter(self._terminals))
                self._terminals.pop(oldest).forget()
                self._unsaid.discard(oldest)
        return terminal

    # --- inside --------------------------------------------------------------------------------------------------

    def _hear(self, id: str) -> tuple[SessionCall, bool]:
        """The call of that id, and whether it was not heard of before."""
        call = self._calls.get(id)
        if call is not None:
            return call, False
        call = self._calls[id] = SessionCall()
        _trim(self._calls)
        return call, True


def another(id: str, taken: Container[str]) -> str:
    """An id that is not taken, for what stands in the place of a message."""
    return next(name for count in itertools.count(2) if (name := f"{id}#{count}") not in taken)


def _size(item: JsonObject | Screen) -> int:
    return item.terminal.size if isinstance(item, Screen) else len(delta.encode(item))


def _trim(names: dict[str, Any]) -> None:
    if len(names) > MOST:
        del names[next(iter(names))]
