"""Terminals of version 2 as text (RFD: v2 terminal output).

They are the agent's and only shown; those of version 1 are the client's, so that none may be made of them. Version 1 is
told a transcript instead, in the tool call that shows the terminal: the command, what it printed without control
sequences, and how it ended.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from typing import Any, Final

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.v2.wire import TERMINAL_CHUNK, UPDATE
from gateway.core.types import JsonObject

LIMIT: Final = 64 * 1024
"""Newest bytes of a terminal that are kept; in a transcript it is said how many there were before them."""
_SEQUENCE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, the cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: titles, links, pictures
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_ELSEWHERE: Final[JsonObject] = {
    "type": "content",
    "content": {"type": "text", "text": "(Its terminal is shown with an earlier tool call.)"},
}


class ShownTerminal:
    """A terminal. `size`: bytes that it has said, those that are not kept, too. `call`: the call whose content it is.

    `unsaid`: whether something was said of it that version 1 has not been told, nor can be any more. `forgotten`:
    whether it is not known by name any more, so that nothing else will be.
    """

    __slots__ = ("_command", "_cwd", "_dropped", "_exit", "_output", "call", "forgotten", "size", "unsaid")

    def __init__(self) -> None:
        self.size = 0
        self.call: str | None = None
        self.unsaid = self.forgotten = False
        self._command: str | None = None
        self._cwd: str | None = None
        self._exit: JsonObject | None = None
        self._output = bytearray()
        self._dropped = 0

    def unshown(self) -> None:
        """Something was said of it, and no call shows it."""
        self.unsaid = True

    def counted(self) -> None:
        """That was counted as a loss."""
        self.unsaid = False

    def shown_in(self, call: str) -> None:
        """It is in the content of this call."""
        self.call, self.unsaid = call, False

    def forget(self) -> None:
        """It is not known by name any more."""
        self.forgotten = True

    @property
    def over(self) -> bool:
        """Whether what ran there has ended, or nobody will hear of its end."""
        return self._exit is not None or self.forgotten

    @property
    def cut(self) -> bool:
        """Whether bytes of it are not kept any more."""
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


class Screen:
    """Where a call's content shows a terminal. `mine`: whether it is that call's, and not an earlier one's."""

    __slots__ = ("_meta", "mine", "terminal")

    def __init__(self, terminal: ShownTerminal, call: str, meta: Any) -> None:
        if terminal.call is None:
            terminal.shown_in(call)
        self.terminal = terminal
        self.mine = terminal.call == call
        self._meta = meta

    def item(self) -> JsonObject | None:
        """It as an item of a call's content."""
        return self.terminal.item(self._meta) if self.mine else _ELSEWHERE


def transcript(data: bytes) -> str:
    """The text that a terminal shows for these bytes. A line that is written over shows its last writing."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)  # without half a character at the end
    lines = _SEQUENCE.sub("", text).rstrip("\r\n").split("\n")
    return _CONTROL.sub("", "\n".join([line.rstrip("\r").rpartition("\r")[2] for line in lines]))


def _ended(status: JsonObject) -> str:
    code, signal = status.get("exitCode"), status.get("signal")
    if isinstance(signal, str) and signal:
        return f"[ended by {signal}]"
    return f"[exit code {code}]" if isinstance(code, int) else "[ended]"


def _text(value: Any) -> str | None:
    return _CONTROL.sub("", _SEQUENCE.sub("", value)) if isinstance(value, str) and value else None


def _bytes(data: Any) -> bytes:
    try:
        return base64.b64decode(data) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        return b""
