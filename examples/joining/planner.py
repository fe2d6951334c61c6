"""An agent that has others do its work: what it is sent it delegates to the best match by capability. In about sixty
lines.

    python planner.py ws://127.0.0.1:8080/agent-context/ws writing

Agent Context Protocol 0.1 over a WebSocket; needs nothing but `websockets`.
"""

import asyncio
import contextlib
import json
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

CAPABILITIES = {"tools": [], "models": [], "specializations": ["planning"], "protocols": ["ACP-0.1"]}
AGENT = {"id": "planner", "name": "Planner", "capabilities": CAPABILITIES}
HEARTBEAT = 30  # seconds: after three that are missed it gets no more work
HELLO = {"protocolVersion": "ACP-0.1", "capabilities": {"agent": {}}, "clientInfo": {"name": "planner", "version": "1"}}


async def main(url, *needed):
    async with connect(url, subprotocols=["mcp"]) as socket:
        waiting = {}  # what was delegated: id of the task -> the message that it is for

        async def say(**message):
            await socket.send(json.dumps({"jsonrpc": "2.0", **message}))

        beating = set()

        async def live():
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await asyncio.sleep(HEARTBEAT)
                    await say(method="agent/heartbeat", params={"agentId": "planner", "status": "active"})

        await say(id="hello", method="initialize", params=HELLO)
        await say(id="join", method="agent/register", params={"agent": AGENT})
        async for line in socket:
            message = json.loads(line)
            if message.get("id") == "join":
                print("registered" if "result" in message else message["error"]["message"], flush=True)
                beating.add(asyncio.create_task(live()))
            elif message.get("method") == "agent/message" and message["params"]["content"]["type"] == "request":
                asked = message["params"]
                task = f"task-{message['id']}"
                waiting[task] = message
                delegated = {
                    "id": task,
                    "type": "errand",
                    "requirements": {"capabilities": list(needed)},
                    "payload": {"messages": asked["content"]["payload"]["messages"]},
                }
                meta = {"correlationId": asked.get("_meta", {}).get("correlationId", task)}
                request = {"source": "planner", "task": delegated, "_meta": meta}
                await say(id=task, method="agent/delegate", params=request)
            elif message.get("id") in waiting:
                asker = waiting.pop(message["id"])
                if "error" in message:
                    await say(id=asker["id"], error=message["error"])
                else:
                    done = message["result"]["task"]
                    text = " ".join(each["text"] for each in done["result"]["messages"])
                    payload = {"messages": [{"text": f"{done['agent']} says: {text}"}]}
                    await say(id=asker["id"], result={"content": {"type": "response", "payload": payload}})
            elif "method" in message and "id" in message:
                await say(id=message["id"], result={})  # ping


asyncio.run(main(*sys.argv[1:]))
