"""An agent that joins a gateway of itself: it connects, registers, and answers what it is sent. In about sixty lines.

    python analyst.py ws://127.0.0.1:8080/agent-context/ws [its id [seconds between its heartbeats]]

Agent Context Protocol 0.1 over a WebSocket; needs nothing but `websockets`.
"""

import asyncio
import contextlib
import json
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

ID = (sys.argv[2:] or ["analyst"])[0]
HEARTBEAT = float((sys.argv[3:] or [30])[0])  # after three that are missed it gets no more work
AGENT = {
    "id": ID,
    "name": "Analyst",
    "capabilities": {"tools": [], "models": [], "specializations": ["word-count"], "protocols": ["ACP-0.1"]},
    "costMetrics": {"costPerToken": 0.0001},
}
HELLO = {"protocolVersion": "ACP-0.1", "capabilities": {"agent": {}}, "clientInfo": {"name": "analyst", "version": "1"}}


def content(kind, text):
    return {"type": kind, "payload": {"messages": [{"text": text}]}}


async def main(url):
    async with connect(url, subprotocols=["mcp"]) as socket:

        async def say(**message):
            await socket.send(json.dumps({"jsonrpc": "2.0", **message}))

        beating = set()

        async def live():
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await asyncio.sleep(HEARTBEAT)
                    await say(method="agent/heartbeat", params={"agentId": ID, "status": "active"})

        await say(id="hello", method="initialize", params=HELLO)
        await say(id="join", method="agent/register", params={"agent": AGENT})
        async for line in socket:
            message = json.loads(line)
            if message.get("id") == "join":
                print("registered" if "result" in message else message["error"]["message"], flush=True)
                beating.add(asyncio.create_task(live()))
            elif message.get("method") == "agent/message" and message["params"]["content"]["type"] == "request":
                asked, meta = message["params"], message["params"].get("_meta", {})
                words = " ".join(each["text"] for each in asked["content"]["payload"]["messages"]).split()
                for said in [f"{len(words)} ", "words"]:  # as it is found out
                    update = {"source": ID, "content": content("update", said), "_meta": meta}
                    await say(method="agent/message", params=update)
                answer = {"content": content("response", f"{len(words)} words"), "_meta": meta}
                await say(id=message["id"], result=answer)
            elif "method" in message and "id" in message:
                await say(id=message["id"], result={})  # ping


asyncio.run(main(sys.argv[1]))
