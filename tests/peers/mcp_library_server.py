"""An MCP server made with the official `mcp` 1.30.0 over stdio: one tool, and prompts and resources beside it."""

from mcp.server.fastmcp import FastMCP
from mcp.types import Annotations

server = FastMCP("library")


@server.tool()
def lend(title: str) -> str:
    """Lend a book."""
    return f"{title} is yours"


@server.prompt()
def review(title: str, tone: str = "kind") -> str:
    """Ask for a review of a book."""
    return f"Write a {tone} review of {title}."


@server.resource("library://opening-hours", mime_type="text/plain", annotations=Annotations(priority=1.0))
def hours() -> str:
    """When it is open."""
    return "9 to 5"


@server.resource("library://cover", mime_type="image/png")
def cover() -> bytes:
    """A picture."""
    return b"\x89PNG"


@server.resource("library://books/{title}")
def book(title: str) -> str:
    """A book by its title."""
    return f"the text of {title}"


if __name__ == "__main__":
    server.run("stdio")
