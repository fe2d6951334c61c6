"""The editor's half of `agent_client_client.py`: what it shows, and how it answers what an agent asks of it."""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acp import Client, RequestError
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    CancelElicitationResponse,
    CreateTerminalResponse,
    DeclineElicitationResponse,
    DeniedOutcome,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)
from pydantic import BaseModel

FAILED = RequestError(-32099, "the client was told to fail", {"told": True})


def dump(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, list):
        return [dump(item) for item in value]
    if isinstance(value, dict):
        return {key: dump(item) for key, item in value.items()}
    return value


def wired(params: dict[str, Any]) -> dict[str, Any]:
    """Handler arguments under their names on the wire; what the SDK spread from `_meta` is put back there."""
    meta = params.pop("meta", None)
    named = {key.split("_")[0] + "".join(part.title() for part in key.split("_")[1:]): params[key] for key in params}
    return {key: dump(value) for key, value in {**named, "_meta": meta or None}.items() if value is not None}


class Output:
    """Prints lines, and lets others wait for one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.looked = 0
        self.more = asyncio.Event()

    def tell(self, op: str, **said: Any) -> None:
        line = json.dumps({"op": op, **said})
        print(line, flush=True)
        self.lines.append(line)
        self.more.set()

    async def awaited(self, text: str) -> None:
        """Returns once a line that none looked at before contains the text."""
        while True:
            while self.looked < len(self.lines):
                self.looked += 1
                if text in self.lines[self.looked - 1]:
                    return
            self.more.clear()
            await self.more.wait()

    def complain(self, op: str, error: BaseException) -> None:
        code, data = getattr(error, "code", None), getattr(error, "data", None)
        self.tell(op, error={"type": type(error).__name__, "code": code, "message": str(error), "data": data})


class Editor(Client):
    """What an editor does for an agent: shows, asks, reads and writes below `root`, runs commands."""

    def __init__(self, out: Output, root: Path) -> None:
        self.out, self.root = out, root
        self.permission, self.elicitation = "allow", "decline"
        self.terminals: dict[str, asyncio.subprocess.Process] = {}
        self.printed: dict[str, str] = {}
        self.given_up = asyncio.Event()

    def give_up(self) -> None:
        """The turn is cancelled: what still waits is answered as the protocol wants, cancelled."""
        self.given_up.set()
        self.given_up = asyncio.Event()

    @contextlib.contextmanager
    def asked(self, method: str, **params: Any) -> Iterator[list[Any]]:
        """Prints the question, then what is put into the list as the answer, or the code of what is raised."""
        answer: list[Any] = []
        self.out.tell(method, asked=wired(params))
        try:
            yield answer
        except RequestError as error:
            self.out.tell(method, refused=error.code)
            raise
        except asyncio.CancelledError:
            self.out.tell(method, refused=None)
            raise
        self.out.tell(method, answered=dump(answer[0]) if answer else {})

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.out.tell("session/update", params=wired({"session_id": session_id, "update": update, "meta": kwargs}))

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **kwargs: Any
    ) -> RequestPermissionResponse:
        method, params = "session/request_permission", {"session_id": session_id, "tool_call": tool_call}
        with self.asked(method, **params, options=options, meta=kwargs) as answer:
            chosen = await self._choice(self.permission, options)
            outcome = (
                AllowedOutcome(outcome="selected", option_id=chosen)
                if chosen is not None
                else DeniedOutcome(outcome="cancelled")
            )
            answer.append(RequestPermissionResponse(outcome=outcome))
            return answer[0]

    async def _choice(self, how: str, options: Any) -> str | None:
        match how:
            case "cancelled":
                return None
            case "error":
                raise FAILED
            case "never":
                await self.given_up.wait()
                return None
            case "ignore":
                await asyncio.Event().wait()
            case "allow" | "reject":
                return next(str(one.option_id) for one in options if one.kind.startswith(how))
        return how

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> Any:
        with self.asked("elicitation/create", message=message, mode=mode, meta=kwargs) as answer:
            match self.elicitation:
                case "decline":
                    answer.append(DeclineElicitationResponse(action="decline"))
                case "cancelled":
                    answer.append(CancelElicitationResponse(action="cancel"))
                case "error":
                    raise FAILED
                case "never":
                    await self.given_up.wait()
                    answer.append(CancelElicitationResponse(action="cancel"))
                case "ignore":
                    await asyncio.Event().wait()
                case content:
                    given = json.loads(content) if hasattr(mode, "requested_schema") else None
                    answer.append(AcceptElicitationResponse(action="accept", content=given))
            return answer[0]

    async def complete_elicitation(self, elicitation_id: str, **kwargs: Any) -> None:
        self.out.tell("elicitation/complete", told=wired({"elicitation_id": elicitation_id, "meta": kwargs}))

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **kwargs: Any
    ) -> ReadTextFileResponse:
        params = {"session_id": session_id, "path": path, "line": line, "limit": limit, "meta": kwargs}
        with self.asked("fs/read_text_file", **params) as answer:
            try:
                lines = self._inside(path).read_text(encoding="utf-8").splitlines(keepends=True)
            except OSError:
                raise RequestError.resource_not_found(path) from None
            first = max((line or 1) - 1, 0)
            answer.append(ReadTextFileResponse(content="".join(lines[first : first + limit if limit else None])))
            return answer[0]

    async def write_text_file(self, session_id: str, path: str, content: str, **kwargs: Any) -> WriteTextFileResponse:
        params = {"session_id": session_id, "path": path, "content": content, "meta": kwargs}
        with self.asked("fs/write_text_file", **params):
            self._inside(path).write_text(content, encoding="utf-8")
            return WriteTextFileResponse()

    def _inside(self, path: str) -> Path:
        found = Path(path).resolve()
        if not found.is_relative_to(self.root):
            raise RequestError.invalid_params({"path": path, "reason": "outside"})
        return found

    async def create_terminal(
        self,
        *,
        session_id: str,
        command: str,
        args: Any = None,
        env: Any = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **kwargs: Any,
    ) -> CreateTerminalResponse:
        params = {"session_id": session_id, "command": command, "args": args, "env": env, "cwd": cwd}
        limit = {"output_byte_limit": output_byte_limit}
        with self.asked("terminal/create", **params, **limit, meta=kwargs) as answer:
            extra = {one.name: one.value for one in env or []}
            started = await asyncio.create_subprocess_exec(
                command,
                *(args or []),
                cwd=cwd or self.root,
                env={**os.environ, **extra},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            name = f"term_{len(self.printed) + 1}"
            self.terminals[name], self.printed[name] = started, ""
            answer.append(CreateTerminalResponse(terminal_id=name))
            return answer[0]

    def _terminal(self, name: str) -> asyncio.subprocess.Process:
        if name not in self.terminals:
            raise RequestError.resource_not_found(name)
        return self.terminals[name]

    async def _read(self, name: str) -> int:
        """Its output, to the end, is in `printed`; the exit code."""
        process = self._terminal(name)
        said, _ = await process.communicate()
        self.printed[name] += (said or b"").decode()
        return process.returncode or 0

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> WaitForTerminalExitResponse:
        with self.asked(
            "terminal/wait_for_exit", session_id=session_id, terminal_id=terminal_id, meta=kwargs
        ) as answer:
            code = await self._read(terminal_id)
            signal = None if code >= 0 else str(-code)
            answer.append(WaitForTerminalExitResponse(exit_code=code if code >= 0 else None, signal=signal))
            return answer[0]

    async def terminal_output(self, session_id: str, terminal_id: str, **kwargs: Any) -> TerminalOutputResponse:
        with self.asked("terminal/output", session_id=session_id, terminal_id=terminal_id, meta=kwargs) as answer:
            self._terminal(terminal_id)
            answer.append(TerminalOutputResponse(output=self.printed[terminal_id], truncated=False))
            return answer[0]

    async def kill_terminal(self, session_id: str, terminal_id: str, **kwargs: Any) -> None:
        with self.asked("terminal/kill", session_id=session_id, terminal_id=terminal_id, meta=kwargs):
            self.end(self._terminal(terminal_id))

    async def release_terminal(self, session_id: str, terminal_id: str, **kwargs: Any) -> None:
        with self.asked("terminal/release", session_id=session_id, terminal_id=terminal_id, meta=kwargs):
            self.end(self.terminals.pop(terminal_id, None))

    @staticmethod
    def end(process: asyncio.subprocess.Process | None) -> None:
        if process and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.out.tell(f"_{method}", asked=params)
        if method != "rig/ask":
            self.out.tell(f"_{method}", refused=-32601)
            raise RequestError.method_not_found(f"_{method}")
        answer = {"answer": 42, "params": params}
        self.out.tell(f"_{method}", answered=answer)
        return answer

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        self.out.tell(f"_{method}", told=params)
