"""An MCP server made with the official `mcp` 1.30.0 (`FastMCP`), on stdio, whose tool has several arguments.

`mcp_forecast.py FILE`: each call of `forecast(city, units, days, source)` adds its arguments to FILE, a line of JSON.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.fastmcp import FastMCP
from pydantic import Field

server = FastMCP("tests-forecast")


@server.tool()
def forecast(
    city: str,
    units: Annotated[Literal["celsius", "fahrenheit"], Field(description="Of the temperatures")],
    days: Annotated[int, Field(ge=1, le=7)],
    source: str = "dwd",
) -> str:
    """The weather of the next days."""
    said = {"city": city, "units": units, "days": days, "source": source}
    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(said) + "\n")
    return f"{days} days of sun in {city}, in {units}"


server.run()
