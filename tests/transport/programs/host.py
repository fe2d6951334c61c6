"""A stand-in for the gateway: starts the command it is given, says so once it has heard `argv[1]` lines, and waits."""

import asyncio
import sys

from gateway.transport.stdio import Grace, spawn


async def main() -> None:
    pipe = await spawn(sys.argv[2:], name="agent", grace=Grace(eof=0.3, term=0.3))
    heard = 0
    while heard < int(sys.argv[1]):
        heard += len(await pipe.receive())
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
