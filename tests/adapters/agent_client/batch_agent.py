"""An agent as a program, standard library only, that says what it can in arrays (JSON-RPC batches), a line each.

It speaks the version that it is started with. Each prompt is answered by one array of updates, a notification of its
own, three permission requests, one of which it gives up at once, and an entry that is no message. When their four
answers have come it says them, and ends the turn, in one array.
"""

import json
import sys
from typing import Any

VERSION = int(sys.argv[1])
OPTIONS = [{"optionId": "ok", "name": "Allow", "kind": "allow_once"}]


def send(message: Any) -> None:
    print(json.dumps(message), flush=True)


def says(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def update(session: str, kind: str, **fields: Any) -> dict[str, Any]:
    return says("session/update", sessionId=session, update={"sessionUpdate": kind, **fields})


def chunk(session: str, text: str) -> dict[str, Any]:
    named = {"messageId": "m"} if VERSION == 2 else {}
    return update(session, "agent_message_chunk", content={"type": "text", "text": text}, **named)


def state(session: str, state: str, **fields: Any) -> list[Any]:
    return [update(session, "state_update", state=state, **fields)] if VERSION == 2 else []


def answered(message: dict[str, Any], result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def asks(session: str, id: str) -> dict[str, Any]:
    call = {"toolCallId": id, "title": id}
    about = {"title": id, "subject": {"type": "tool_call", "toolCall": call}} if VERSION == 2 else {"toolCall": call}
    return {"id": id, **says("session/request_permission", sessionId=session, options=OPTIONS, **about)}


def begin(prompt: dict[str, Any]) -> None:
    session = prompt["params"]["sessionId"]
    content = prompt["params"]["prompt"]
    if VERSION == 2:
        user = update(session, "user_message", messageId="u", content=content)
        send([answered(prompt, {"messageId": "u"}), user, *state(session, "running")])
    send(
        [
            *(chunk(session, f"{number} ") for number in range(300)),
            says("_acme/note", sessionId=session, x=1),
            asks(session, "first"),
            asks(session, "second"),
            asks(session, "third"),
            says("$/cancel_request", requestId="third"),
            7,
            chunk(session, "then "),
        ]
    )


def end(prompt: dict[str, Any], answers: list[Any]) -> None:
    session = prompt["params"]["sessionId"]
    said = chunk(session, json.dumps(sorted(answers, key=lambda each: each["id"] or "")))
    if VERSION == 2:
        send([said, *state(session, "idle", stopReason="end_turn")])
    else:
        send([said, answered(prompt, {"stopReason": "end_turn"})])


def main() -> None:
    prompt: dict[str, Any] = {}
    answers: list[Any] = []
    for line in sys.stdin:
        message = json.loads(line)
        if isinstance(message, list) or "method" not in message:
            answers += message if isinstance(message, list) else [message]
            if len(answers) == 4:
                end(prompt, answers)
        elif message["method"] == "initialize":
            can = {"capabilities": {"session": {}}, "info": {"name": "b", "version": "1"}} if VERSION == 2 else {}
            send([answered(message, {"protocolVersion": VERSION, **can})])
        elif message["method"] == "session/new":
            send([answered(message, {"sessionId": "s"}), update("s", "session_info_update", title="early")])
        elif message["method"] == "session/prompt":
            prompt = message
            begin(message)


if __name__ == "__main__":
    main()
