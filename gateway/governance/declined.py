"""Reports what documents demand and the gateway does not do, with file and line, so that no promise is silently broken.

`declined` is asked when routes.yaml is read. What may be meant otherwise than it is done is a caution instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from gateway.governance.manifests import AIP44, GovernanceDocument
from gateway.yaml_document import Mistake, Where

if TYPE_CHECKING:
    from gateway.governance.binding import Binding

PROVIDERS: Final = ("local", "mastra-e2b", "mastra-modal", "mastra-daytona", "mastra-blaxel", "node-permission")
"""AIP-36's; "unknown providers MUST be rejected"."""
OF_THE_PROVIDER: Final = ("config", "env", "identity", "lifecycle", "limits", "network", "policy")
"""Keys of a SANDBOX.md that are for whoever runs the sandbox. The gateway keeps its `mounts` and `read_only`."""
NO_NETWORK: Final = "sandbox_network_open"
LEFT_TO_PROVIDER: Final = "sandbox_left_to_provider"


class Driven(msgspec.Struct, frozen=True, kw_only=True):
    """A route's way to its agent. `native`: the Agent Client Protocol. `url`: "" for an agent started here.

    `near`: whether the agent is on this machine. `served`: whether that protocol is served at the port.
    """

    native: bool
    url: str
    near: bool
    served: bool

    @property
    def transport(self) -> str | None:
        """The transport in AIP-44's terms; None if it has none."""
        if not self.url:
            return "stdio"
        return "websocket" if urlsplit(self.url).scheme in ("ws", "wss") else None


def declined(binding: Binding, driven: Driven) -> Iterator[Mistake]:
    """List what the documents of a route demand and the gateway does not do."""
    yield from _audit(binding)
    yield from _memory(binding)
    yield from _reached(binding, driven)
    yield from _sandbox(binding, driven)
    yield from _servers(binding, driven)
    manifest = binding.manifest
    client = (manifest.capabilities or {}).get("client")
    if client and not driven.native:
        message = "an agent of another protocol asks for no files and commands: leave it out"
        yield _at(manifest, (*AIP44, "capabilities", "client"), message)


def cautions(binding: Binding, driven: Driven) -> Iterator[Mistake]:
    """List what a sandbox demands and the gateway neither does nor can know to be done."""
    sandbox = binding.sandbox
    if sandbox is None:
        return
    if driven.url:
        keys = ", ".join(["provider", *(key for key in OF_THE_PROVIDER if sandbox.raw.get(key))])
        message = f"{keys}: left to who runs the agent at {urlsplit(driven.url).hostname}; the gateway keeps its mounts"
        yield _at(sandbox, ("provider",), message, LEFT_TO_PROVIDER)
    else:
        message = "the gateway starts the agent with this machine's network, which no `network` means none of"
        yield _at(sandbox, ("provider",), message, NO_NETWORK)


def _audit(binding: Binding) -> Iterator[Mistake]:
    manifest = binding.manifest
    kind, ref, where = manifest.audit_kind, manifest.audit_ref, (*AIP44, "audit")
    if kind == "external":
        if not binding.governed:
            yield _at(manifest, (*where, "kind"), "nothing governs this agent, so that nothing is audited: write off")
        elif manifest.audit_folder is None:
            message = "an external audit log is a folder of this machine: write a ref of file:///FOLDER"
            yield _at(manifest, (*where, "ref"), message)
    elif ref is not None:
        yield _at(manifest, (*where, "ref"), f"is for kind external, and not for {kind}")


def _memory(binding: Binding) -> Iterator[Mistake]:
    operator = binding.operator
    if operator is None:
        return
    if operator.memory.kind == "external" or operator.memory.uri is not None:
        message = "sessions are kept in the gateway's own store and nowhere else: write thread or none"
        yield _at(operator, ("memory", "kind" if operator.memory.kind == "external" else "external"), message)
    if operator.memory.share_with:
        message = "no operator is shown another's memory here: leave it out"
        yield _at(operator, ("memory", "share_with"), message)


def _reached(binding: Binding, driven: Driven) -> Iterator[Mistake]:
    """A client drives its agent by one of the manifest's transports; a server or bridge is reached by all of them."""
    manifest = binding.manifest
    if manifest.kind == "client":
        if not driven.native:
            message = "a client drives an agent of the Agent Client Protocol; the target speaks another: write bridge"
            yield _at(manifest, ("kind",), message)
        elif driven.transport not in manifest.transports:
            how = driven.transport or f"{urlsplit(driven.url).scheme}, which AIP-44 has no word for"
            yield _at(manifest, ("transport",), f"the target is driven by {how}")
    elif "websocket" in manifest.transports and not driven.served:
        message = "promises websocket, and `inbound` does not serve the Agent Client Protocol"
        yield _at(manifest, ("transport",), message)


def _servers(binding: Binding, driven: Driven) -> Iterator[Mistake]:
    """MCP servers are given to a session (`session/new`), and a program is started by the agent."""
    manifest = binding.manifest
    for index, one in enumerate(manifest.mcp_servers):
        where = (*AIP44, "mcp_servers", index)
        if not driven.native:
            yield _at(manifest, where, "an agent of another protocol is given no MCP servers: leave it out")
        elif not driven.near and one.transport == "stdio":
            message = f"the agent at {urlsplit(driven.url).hostname} starts no program from here: write http or sse"
            yield _at(manifest, (*where, "transport"), message)


def _sandbox(binding: Binding, driven: Driven) -> Iterator[Mistake]:
    sandbox = binding.sandbox
    if sandbox is None:
        return
    if sandbox.provider not in PROVIDERS:
        yield _at(sandbox, ("provider",), f"'{sandbox.provider}' is unknown: have {', '.join(PROVIDERS)}")
    if driven.url:
        return
    started = "the gateway starts the agent as a program of this machine"
    if sandbox.provider != "local":
        yield _at(sandbox, ("provider",), f"{started}: write local, or name the url of the agent in its sandbox")
    for key in OF_THE_PROVIDER:
        if sandbox.raw.get(key):
            yield _at(sandbox, (key,), f"is not kept where {started}: leave it out")


def _at(paper: GovernanceDocument, where: Where, message: str, code: str = "") -> Mistake:
    return paper.page.mistake(where, message, code)
