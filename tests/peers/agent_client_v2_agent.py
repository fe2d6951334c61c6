"""An agent of version 2 made with the official Python SDK `agent-client-protocol` 1.0.0rc3, on stdio.

The words of a prompt choose what happens, in their order; afterwards every word comes back, one chunk each, in one
message. `agent_client_v2_agent.mjs` is the same agent made with the TypeScript SDK.

| word | the turn |
|---|---|
| `think`, `plan`, `commands`, `usage`, `title`, `mode`, `option` | sends that kind of `session/update` |
| `whole`, `rewrite`, `clear` | a message said at once; one replaced after its chunks; one emptied after its chunks |
| `picture`, `link` | an image, a resource link as a message's chunk |
| `tool` | a tool call by patches, with a diff and chunks of content; its id is always `call_1` |
| `display` | a tool call with a terminal, told by a snapshot, chunks of bytes and its exit |
| `plans` | two plans, one of which is told again |
| `strange` | an update of a kind that nobody knows, `_rig_thing` |
| `perm`, `command`, `bare` | asks permission (`ok`, `no`) for a tool call, a command, nothing in particular |
| `elicit` | asks with a form; says `elicit ANSWER` |
| `ext` | sends the request `_rig/ask` and says `ext ANSWER`, then the notification `_rig/note` |
| `wait` | says that it is blocked on the user, and goes on |
| `fs` | asks for a file, which version 2 has not |
| `blocks`, `where` | says `blocks KIND,KIND`, `where FOLDER` |
| `client` | says `client` and what initialize declared, as JSON |
| `flood N` | N chunks `0 ` to `N-1 ` |
| `slow` | a number every 0.1 s until it is cancelled; `linger` waits for that and then 0.3 s more |
| `stuck` | never ends and ignores being cancelled |
| `later` | after the turn: a tool call and a message while idle, without any state |
| `work` | after the turn: work of its own, from running to idle, with a message |
| `busy` | the same, but it works until the next prompt, which it holds until it is idle |
| `mind` | the same, and it asks permission for a command |
| `again` | after the turn: the same idle once more, when the next prompt was acknowledged |
| `refuse`, `max`, `turns` | stop reason `refusal`, `max_tokens`, `max_turn_requests` |
| `reject` | the prompt is answered with -32602 and not taken in |
| `fail` | after the acknowledgement: idle with stop reason `error`, -32603 and details `boom` |
| `exit` | says `bye` and ends the process with code 3 |
| `early` | all of the turn comes before the prompt is acknowledged |
| `quiet` | neither the user's message nor that it is running is told |

What a request is refused with is said as `WORD failed CODE`. Sessions have a mode (`ask`, `code`), a model and a
boolean `loud` (echoes capitals) as config options, and can be listed, resumed (replayed from the start), closed and
deleted; `--state FILE` keeps them beyond the process. `--auth` wants `auth/login` with the method `key` first;
`--early` sends an update before the answer to `session/new`.
"""

import argparse
import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.experimental.v2 import Agent, run_agent, schema
from agent_client_v2_words import Own, Session, Turn, background, name, plain, text


class Rig(Agent):
    """One connection's agent."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.known = args, not args.auth
        kept = json.loads(args.state.read_text()) if args.state and args.state.exists() else []
        self.sessions = {each["id"]: Session(**each) for each in kept}
        self.turns, self.own, self.repeat = dict[str, Turn](), dict[str, Own](), dict[str, Any]()
        self.declared: dict[str, Any] = {}
        self.client: Any = None

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    def keep(self) -> None:
        if self.args.state:
            self.args.state.write_text(json.dumps([vars(each) for each in self.sessions.values()]))

    def find(self, session: str) -> Session:
        if not self.known:
            raise RequestError.auth_required({"method": "key"})
        if session not in self.sessions:
            raise RequestError.resource_not_found(session)
        return self.sessions[session]

    async def initialize(self, protocol_version: int, info: Any, capabilities: Any = None, **_: Any) -> Any:
        self.declared = {"capabilities": plain(capabilities) if capabilities else None, "info": plain(info)}
        prompt = {"image": {}, "audio": {}, "embeddedContext": {}}
        session = {"prompt": prompt, "mcp": {"stdio": {}, "http": {}}, "delete": {}, "additionalDirectories": {}}
        methods = [{"type": "agent", "methodId": "key", "name": "Key"}] if self.args.auth else []
        said = {"protocolVersion": 2, "info": {"name": "rig-v2-py", "title": "Rig", "version": "0.2"}}
        return schema.InitializeResponse.model_validate(
            {**said, "capabilities": {"session": session, "_meta": {"rig": 1}}, "authMethods": methods}
        )

    async def login(self, method_id: str, **_: Any) -> Any:
        self.known = self.known or method_id == "key"
        return schema.LoginAuthResponse()

    async def logout(self, **_: Any) -> Any:
        self.known = not self.args.auth
        return schema.LogoutAuthResponse()

    async def new_session(self, cwd: str, **_: Any) -> Any:
        if not self.known:
            raise RequestError.auth_required({"method": "key"})
        session = Session(cwd)
        self.sessions[session.id] = session
        self.keep()
        if self.args.early:
            await Turn(self, session, [], "").send("session_info_update", title="early")
        return schema.NewSessionResponse.model_validate({"sessionId": session.id, "configOptions": session.options()})

    async def resume_session(self, session_id: str, cwd: str, replay_from: Any = None, **_: Any) -> Any:
        session = self.find(session_id)
        session.cwd = cwd
        turn = self.turns.get(session_id) or Turn(self, session, [], "")
        for kind, message, said in session.history if replay_from is not None else []:
            await turn.send(kind, messageId=message, content=[text(said)])
        await turn.state("running" if session_id in self.turns else "idle")
        return schema.ResumeSessionResponse.model_validate({"configOptions": session.options()})

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> Any:
        found = [{"sessionId": one.id, "cwd": one.cwd} for one in self.sessions.values() if cwd in (None, one.cwd)]
        return schema.ListSessionsResponse.model_validate({"sessions": found})

    async def close_session(self, session_id: str, **_: Any) -> Any:
        self.find(session_id)
        await self.cancel_session(session_id)
        return schema.CloseSessionResponse()

    async def delete_session(self, session_id: str, **_: Any) -> Any:
        await self.close_session(session_id)
        del self.sessions[session_id]
        self.keep()
        return schema.DeleteSessionResponse()

    async def set_config_option(self, config_id: str, session_id: str, value: Any, **_: Any) -> Any:
        session = self.find(session_id)
        if not session.choose(config_id, value):
            raise RequestError.invalid_params({"configId": config_id, "value": value})
        self.keep()
        return schema.SetSessionConfigOptionResponse.model_validate({"configOptions": session.options()})

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> Any:
        session = self.find(session_id)
        if session_id in self.turns:
            raise RequestError.invalid_request({"sessionId": session_id, "reason": "busy"})
        turn = Turn(self, session, prompt, name("user"))
        if "reject" in turn.words:
            raise RequestError.invalid_params({"reason": "not this one"})
        self.turns[session_id] = turn
        repeated = self.repeat.pop(session_id, None)
        if repeated is not None:
            await turn.state("idle", **repeated)
        if own := self.own.get(session_id):
            own.wanted.set()
            await own.done.wait()
        if "early" in turn.words:
            await turn.run()
        else:
            background(turn.run())
        return schema.PromptResponse(message_id=turn.message)

    async def cancel_session(self, session_id: str, **_: Any) -> None:
        if session_id in self.turns:
            self.turns[session_id].cancelled.set()

    async def handle_extension_request(self, method: str, params: Any) -> Any:
        if method != "_rig/echo":
            raise RequestError.method_not_found(method)
        return {"echo": params}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", type=Path)
    for flag in ("--auth", "--early"):
        parser.add_argument(flag, action="store_true")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    asyncio.run(run_agent(Rig(parser.parse_args())))


if __name__ == "__main__":
    main()
