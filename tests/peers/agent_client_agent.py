"""An agent made with the official Python SDK `agent-client-protocol` 0.12.1, on stdio or as a server.

With `--http PORT` it answers Streamable HTTP and WebSocket on every path, and is ready when the port answers. The words
of a prompt choose what happens, in their order; afterwards every word comes back, one chunk each.
`agent_client_agent.mjs` is the same agent made with the TypeScript SDK.

| word | the turn |
|---|---|
| `think`, `plan`, `commands`, `usage`, `title`, `mode`, `option`, `mirror` | sends that kind of `session/update` |
| `tool` | a tool call with content, a diff and locations; its id is always `call_1` |
| `perm` | asks permission for it (`ok` allow_once, `no` reject_once); says `permission OUTCOME` |
| `vague` | as Kimi Code asks: the call has the tool's name, and its content says what is to be done |
| `edit` | asks for `call_e`, whose diff was told before |
| `late` | as Qwen Code: the call `call_l` begins without its input, which an update tells, with a title that names it |
| `twoperm` | asks for `call_2` and `call_3` at once; says `permissions OUTCOME OUTCOME` |
| `fs` | reads the file `x` of the session's folder and says `read CONTENT`, writes `y` |
| `term`, `termkill` | runs `echo hi` and says `term CODE OUTPUT`; starts a long `sleep` and kills it |
| `elicit` | asks with a form; says `elicit ANSWER` |
| `ext` | sends the request `_rig/ask` and says `ext ANSWER`, then the notification `_rig/note` |
| `blocks` | says `blocks KIND,KIND` of what it was prompted with |
| `picture`, `link`, `embed` | an image, a resource link, an embedded resource as message chunks |
| `meta` | a chunk with `_meta` at all three levels |
| `where`, `client` | says `where FOLDER`, or `client` and what initialize declared, as JSON |
| `flood N`, `big N` | N chunks `0 ` to `N-1 `; one chunk of N letters |
| `slow` | a number every 0.1 s until it is cancelled |
| `stuck` | never answers and ignores being cancelled |
| `noise` | prints a line that is no JSON (stdio) |
| `refuse`, `max`, `turns` | stop reason `refusal`, `max_tokens`, `max_turn_requests` |
| `fail`, `locked` | an error: -32603 with details `boom`, -32000 |
| `exit` | says `bye` and ends the process with code 3 |

What a request is refused with is said as `WORD failed CODE`. A cancelled turn ends with `cancelled`. A second prompt in
a busy session is -32600, an unknown session -32602.

Sessions have two modes (`ask`, `code`), a select option `model` and a boolean option `loud` (echoes capitals), and can
be listed, loaded (replayed), resumed, closed and deleted; all connections of a server share them, and `--state FILE`
keeps them beyond the process. `--without` takes names among `load list resume close delete modes options logout` and
`image audio embeddedContext`; `--auth` wants `authenticate` with the method `key` first; `--early` sends an update
before the answer to `session/new`; `--banner` prints a plain line first; `--wire FILE` keeps each message, as the
client's option does (stdio).

What the SDK does of its own accord: it dispatches no delete and no logout although it has their models, and its HTTP
server gives no way to switch on close and resume; all are added here. The server insists on `application/json`, has 501
for a batch, 400 without a connection's id or, on a prompt, cancel, close, set_mode or set_config_option, without a
session's; 404 for a connection it does not know, and for any request with a session's id that no result on that
connection has named, so the id on a `session/load` is 404, and so is all that follows the load unless its result names
the session (as it does here). DELETE is 202. It reads no cookie and sets none.
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, Agent, RequestError, run_agent
from acp.schema import (
    AuthMethodAgent,
    DeleteSessionRequest,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    LogoutRequest,
    NewSessionResponse,
    PromptResponse,
    ResumeSessionResponse,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from agent_client_client import recorder
from agent_client_words import Session, Turn, update

MODES = [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]
MODELS = [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]


class Sessions:
    """All sessions by id, kept in a file where one is named."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        kept = json.loads(file.read_text(encoding="utf-8")) if file and file.exists() else {}
        self.by_id = {name: Session(**fields) for name, fields in kept.items()}

    def keep(self) -> None:
        if self.file:
            kept = {name: one.fields() for name, one in self.by_id.items()}
            self.file.write_text(json.dumps(kept), encoding="utf-8")

    def find(self, name: str) -> Session:
        if name not in self.by_id:
            raise RequestError.invalid_params({"sessionId": name, "reason": "unknown session"})
        return self.by_id[name]


class Rig(Agent):
    """One connection's agent."""

    def __init__(self, args: argparse.Namespace, sessions: Sessions) -> None:
        self.args, self.sessions = args, sessions
        self.known = not args.auth
        self.declared: dict[str, Any] = {}
        self.turns: dict[str, Turn] = {}
        self.client: Any = None

    def on_connect(self, conn: Any) -> None:
        self.client = conn
        router = conn._conn._handler
        for route in router._requests.values():
            route.warn_unstable = False
        if self.has("delete"):
            router.route_request("session/delete", DeleteSessionRequest, self, "delete_session")
        if self.has("logout"):
            router.route_request("logout", LogoutRequest, self, "logout")
        for name in ("fork", "load", "list", "resume", "close"):
            if name == "fork" or not self.has(name):
                del router._requests[f"session/{name}"]

    def has(self, feature: str) -> bool:
        return feature not in self.args.without

    def check(self) -> None:
        if not self.known:
            raise RequestError.auth_required({"method": "key"})

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, client_info: Any = None, **kwargs: Any
    ) -> InitializeResponse:
        self.declared = {
            "protocolVersion": protocol_version,
            "capabilities": client_capabilities.model_dump(by_alias=True, exclude_none=True),
            "info": client_info.model_dump(by_alias=True, exclude_none=True) if client_info else None,
        }
        kinds = [name for name in ("list", "resume", "close", "delete") if self.has(name)]
        capabilities: dict[str, Any] = {
            "loadSession": self.has("load"),
            "promptCapabilities": {name: self.has(name) for name in ("image", "audio", "embeddedContext")},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": {name: {} for name in kinds},
            "auth": {"logout": {}} if self.has("logout") else {},
        }
        info = {"name": "rig-py-agent", "title": "Rig", "version": "0.1"}
        methods = [AuthMethodAgent(id="key", name="Key", description="any will do")] if self.args.auth else []
        return InitializeResponse.model_validate(
            {
                "protocolVersion": min(protocol_version, PROTOCOL_VERSION) or PROTOCOL_VERSION,
                "agentCapabilities": capabilities,
                "agentInfo": info,
                "authMethods": methods,
            }
        )

    async def authenticate(self, method_id: str, **kwargs: Any) -> None:
        if method_id != "key":
            raise RequestError.invalid_params({"methodId": method_id})
        self.known = True

    async def logout(self, **kwargs: Any) -> dict[str, Any]:
        self.known = not self.args.auth
        return {}

    def settings(self, session: Session) -> dict[str, Any]:
        """What an answer says of a session's modes and options."""
        said: dict[str, Any] = {}
        if self.has("modes"):
            said["modes"] = {"currentModeId": session.mode, "availableModes": MODES}
        if self.has("options"):
            said["configOptions"] = session.config_options(MODELS)
        return said

    async def new_session(
        self, cwd: str, additional_directories: Any = None, mcp_servers: Any = None, **kwargs: Any
    ) -> NewSessionResponse:
        self.check()
        session = Session(cwd=cwd)
        self.sessions.by_id[session.id] = session
        self.sessions.keep()
        if self.args.early:
            commands = [{"name": "early", "description": "sent before the session's answer"}]
            await self.client.session_update(
                session.id, update("available_commands_update", availableCommands=commands)
            )
        return NewSessionResponse.model_validate({"sessionId": session.id, **self.settings(session)})

    async def load_session(self, cwd: str, session_id: str, **kwargs: Any) -> Any:
        self.check()
        session = self.sessions.find(session_id)
        session.cwd = cwd
        for kind, text in session.history:
            await self.client.session_update(session_id, update(kind, content={"type": "text", "text": text}))
        loaded = LoadSessionResponse.model_validate(self.settings(session))
        said = loaded.model_dump(mode="json", by_alias=True, exclude_none=True)
        # the SDK's HTTP server, and its client, learn of the session's stream by this
        return {"sessionId": session_id, **said} if self.args.http else said

    async def resume_session(self, session_id: str, cwd: str, **kwargs: Any) -> Any:
        self.check()
        session = self.sessions.find(session_id)
        session.cwd = cwd
        resumed = ResumeSessionResponse.model_validate(self.settings(session))
        said = resumed.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {"sessionId": session_id, **said} if self.args.http else said

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any) -> Any:
        self.check()
        found = [one for one in self.sessions.by_id.values() if cwd is None or one.cwd == cwd]
        first = int(cursor or 0)
        following = {"nextCursor": str(first + 2)} if first + 2 < len(found) else {}
        page = [one.listed() for one in found[first : first + 2]]
        return ListSessionsResponse.model_validate({"sessions": page, **following})

    async def close_session(self, session_id: str, **kwargs: Any) -> None:
        self.sessions.find(session_id)
        await self.cancel(session_id)

    async def delete_session(self, session_id: str, **kwargs: Any) -> dict[str, Any]:
        self.sessions.find(session_id)
        await self.cancel(session_id)
        del self.sessions.by_id[session_id]
        self.sessions.keep()
        return {}

    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        session = self.sessions.find(session_id)
        if mode_id not in [mode["id"] for mode in MODES]:
            raise RequestError.invalid_params({"modeId": mode_id})
        session.mode = mode_id
        self.sessions.keep()
        await self.client.session_update(session_id, update("current_mode_update", currentModeId=mode_id))
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> SetSessionConfigOptionResponse:
        session = self.sessions.find(session_id)
        if config_id == "loud" and isinstance(value, bool):
            session.loud = value
        elif config_id == "model" and value in [model["value"] for model in MODELS]:
            session.model = str(value)
        else:
            raise RequestError.invalid_params({"configId": config_id, "value": value})
        self.sessions.keep()
        return SetSessionConfigOptionResponse.model_validate({"configOptions": session.config_options(MODELS)})

    async def prompt(self, session_id: str, prompt: Any, **kwargs: Any) -> PromptResponse:
        self.check()
        session = self.sessions.find(session_id)
        if session_id in self.turns:
            raise RequestError.invalid_request({"sessionId": session_id, "reason": "busy"})
        turn = self.turns[session_id] = Turn(self.client, session, prompt, self.declared, MODELS)
        try:
            return PromptResponse(stop_reason=await turn.run())
        finally:
            del self.turns[session_id]
            self.sessions.keep()

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        if session_id in self.turns:
            self.turns[session_id].cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method != "rig/echo":
            raise RequestError.method_not_found(f"_{method}")
        return {"echo": params}

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        await self.client.ext_notification("rig/heard", {"method": f"_{method}", "params": params})


def serve(port: int, make: Callable[[Any], Rig]) -> None:
    import uvicorn
    from acp.http.asgi import create_asgi_app

    app: Any = create_asgi_app(make)
    uvicorn.run(
        app, host="127.0.0.1", port=port, log_level="warning", ws="websockets-sansio", timeout_graceful_shutdown=1
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int, metavar="PORT")
    parser.add_argument("--without", default="", help="features, with commas")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--wire")
    for name in ("--auth", "--early", "--banner"):
        parser.add_argument(name, action="store_true")
    args = parser.parse_args()
    args.without = args.without.split(",")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    sessions = Sessions(args.state)
    if args.http:
        serve(args.http, lambda _: Rig(args, sessions))
        return
    if args.banner:
        print("Welcome to the agent!", flush=True)
    wire = recorder(args.wire, outgoing="client", incoming="agent")
    asyncio.run(run_agent(Rig(args, sessions), use_unstable_protocol=True, observers=[wire]))


if __name__ == "__main__":
    main()
