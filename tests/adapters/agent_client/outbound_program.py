"""An agent as a program, standard library only: what it does is in its prompt. Run with a word for how it starts badly.

`say TEXT`, `flood N`, `big N`, `ask` (permission), `exit N`, `crash`, `noise`, `print`, `pid`, `stuck`; started with
`mute` it never answers, with `nameless` it answers an error without an id, with `die` it leaves at once, with
`logs-received`, `logs-before` or `logs-after` it prints what it gets, or what it sends, beside the messages.
"""

import json
import os
import sys
import threading

HOW = sys.argv[1] if len(sys.argv) > 1 else ""
WRITE = threading.Lock()
ANSWERS: dict[str, object] = {}
ANSWERED = threading.Condition()


def send(*messages: dict[str, object]) -> None:
    with WRITE:
        for message in messages:
            said = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
            before, after = (f"sending {said}" if when == HOW else "" for when in ("logs-before", "logs-after"))
            sys.stdout.write(before + said + after)
        sys.stdout.flush()


def chunk(session: str, text: str) -> dict[str, object]:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"method": "session/update", "params": {"sessionId": session, "update": update}}


def prompt(message: dict[str, object]) -> None:
    params: dict = message["params"]  # type: ignore[assignment, type-arg]
    session = params["sessionId"]
    word, _, rest = params["prompt"][0]["text"].partition(" ")
    if word == "say":
        send(chunk(session, rest))
    elif word == "pid":
        send(chunk(session, str(os.getpid())))
    elif word == "flood":
        for at in range(0, int(rest), 100):
            send(*(chunk(session, f"{number} ") for number in range(at, min(at + 100, int(rest)))))
    elif word == "big":
        send(chunk(session, "x" * int(rest)), chunk(session, "after"))
    elif word == "noise":
        print("a line that is no message", flush=True)
        print('{"jsonrpc": "2.0", "method": ', flush=True)
        send(chunk(session, "fine"))
    elif word == "print":  # without a line end
        print("thinking about {it} ... ", end="", flush=True)
        send(chunk(session, "said"))
        print("done ", end="", flush=True)
    elif word == "ask":
        options = [
            {"optionId": "ok", "name": "Allow", "kind": "allow_once"},
            {"optionId": "no", "name": "Reject", "kind": "reject_once"},
        ]
        asked = {"sessionId": session, "toolCall": {"toolCallId": "c"}, "options": options}
        name = f"ask-{session}"
        send({"id": name, "method": "session/request_permission", "params": asked})
        with ANSWERED:
            ANSWERED.wait_for(lambda: name in ANSWERS)
        send(chunk(session, json.dumps(ANSWERS.pop(name))))
    elif word == "exit":
        print("something about a token", "the last thing it said", sep="\n", file=sys.stderr, flush=True)
        os._exit(int(rest))
    elif word == "stuck":
        return
    send({"id": message["id"], "result": {"stopReason": "end_turn"}})


def main() -> None:
    if HOW == "die":
        print("no configuration found", file=sys.stderr)
        sys.exit(2)
    made = 0
    for line in sys.stdin:
        if HOW == "logs-received":
            print("received", line.strip(), flush=True)
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize" and HOW == "nameless":
            send({"id": None, "error": {"code": -32700, "message": "not today"}})
        elif method == "initialize" and HOW != "mute":
            send({"id": message["id"], "result": {"protocolVersion": 1, "agentCapabilities": {}}})
        elif method == "session/new":
            made += 1
            send({"id": message["id"], "result": {"sessionId": f"s{made}"}})
        elif method == "session/prompt":
            threading.Thread(target=prompt, args=(message,), daemon=True).start()
        elif method is None:
            if not str(message["id"]).startswith("ask-"):  # that it never asked
                os._exit(9)
            with ANSWERED:
                ANSWERS[message["id"]] = message.get("result", message.get("error"))
                ANSWERED.notify_all()


if __name__ == "__main__":
    main()
