"""An Agent Client agent that offers everything and takes any input: what fails in front of it failed in the gateway.

Standard library only, on stdin and stdout. A prompt is answered by a chunk and a permission request; every other
request gets the answer its method needs, and an unknown method an empty object.
"""

import itertools
import json
import sys
from typing import Any

CAPABILITIES = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": True, "acp": True},
    "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}, "fork": {}},
    "auth": {"logout": {}},
}
OPTIONS = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]}
CONFIG = [
    {
        "id": "model",
        "name": "Model",
        "type": "select",
        "currentValue": "small",
        "options": [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}],
    }
]
sessions = itertools.count(1)
asked: dict[str, tuple[Any, Any]] = {}
"""Our permission requests by id: the prompt's id and its session."""


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(method: str, params: Any) -> Any:
    if method == "initialize":
        info = {"name": "anything", "version": "1"}
        methods = [{"id": "key", "name": "Key"}]
        return {"protocolVersion": 1, "agentCapabilities": CAPABILITIES, "authMethods": methods, "agentInfo": info}
    if method in ("session/new", "session/fork"):
        return {"sessionId": f"its-{next(sessions)}", "modes": MODES, "configOptions": CONFIG}
    if method in ("session/load", "session/resume"):
        return {"modes": MODES, "configOptions": CONFIG}
    if method == "session/list":
        return {"sessions": []}
    if method == "session/set_config_option":
        return {"configOptions": CONFIG}
    return {}


def prompted(number: Any, session: Any) -> None:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "well"}}
    send(method="session/update", params={"sessionId": session, "update": chunk})
    call = {"toolCallId": "call", "title": "a call", "kind": "edit", "status": "pending"}
    asked[f"q{len(asked)}"] = (number, session)
    params = {"sessionId": session, "toolCall": call, "options": OPTIONS}
    send(id=f"q{len(asked) - 1}", method="session/request_permission", params=params)


def serve(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message.get("id")
    params = message.get("params")
    session = params.get("sessionId") if isinstance(params, dict) else None
    if method is None:
        prompt, _ = asked.get(str(number), (None, None))
        if prompt is not None:
            send(id=prompt, result={"stopReason": "end_turn"})
    elif number is None:
        return
    elif method == "session/prompt":
        prompted(number, session)
    else:
        send(id=number, result=answer(method, params))


for line in sys.stdin:
    serve(json.loads(line, parse_int=lambda digits: int(digits[:1000])))
