"""MCP.md (AIP-32): where the MCP servers are that a manifest gives every session of its agent (`mcp_servers`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.governance import schemas
from gateway.governance.manifests import (
    AIP44,
    GovernanceDocument,
    Manifest,
    ManifestMcpServer,
    finished,
    read_document,
    reference,
)
from gateway.yaml_document import DocumentError, Mistake


class McpDocument(GovernanceDocument, frozen=True, kw_only=True):
    """An MCP.md (AIP-32): where a server is. `command` for stdio, `url` for http and sse."""

    transport: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    url: str = ""


def load_servers(manifest: Manifest) -> tuple[McpDocument, ...]:
    """Load the documents of the manifest's servers, in order. Notes mistakes in the manifest, raises others."""
    found: list[McpDocument] = []
    mistakes: list[Mistake] = []
    for index, one in enumerate(manifest.mcp_servers):
        try:
            if (document := _server(manifest, index, one)) is not None:
                found.append(document)
        except DocumentError as error:
            mistakes += error.mistakes
    if mistakes:
        raise DocumentError(mistakes)
    return tuple(found)


def _server(manifest: Manifest, index: int, one: ManifestMcpServer) -> McpDocument | None:
    """Find the document of a server; None if the manifest is mistaken."""
    where = (*AIP44, "mcp_servers", index)
    if one.name in [each.name for each in manifest.mcp_servers[:index]]:
        manifest.page.refuse((*where, "name"), f"'{one.name}' is given twice")
    if one.ref is None:
        manifest.page.refuse((*where, "ref"), "required: the MCP.md (AIP-32) that says where the server is")
        return None
    found = load_mcp(one.ref, manifest.workspace)
    if found.transport != one.transport:
        manifest.page.refuse((*where, "transport"), f"{found.page.document.file} says {found.transport}")
    return found


def load_mcp(path: Path, workspace: Path) -> McpDocument:
    """An MCP.md. Raises DocumentError."""
    page = read_document(path, schemas.MCP)
    finished(page)
    server, transport = page.raw["server"], page.raw["transport"]
    kind, args, env = server["kind"], tuple(server.get("args", ())), dict(server.get("env", {}))
    if (kind == "remote") != (transport != "stdio"):
        page.refuse(("transport",), f"a {kind} server is not spoken to over {transport} here")
    for key, values in (("args", dict(enumerate(args))), ("env", env)):
        for name, value in values.items():
            if "${" in value:
                page.refuse(("server", key, name), "nothing is filled in here: a reference to a secret stays text")
    if kind == "remote" and not server["url"].startswith(("http://", "https://")):
        page.refuse(("server", "url"), "should be an http or https URL")
    command: tuple[str, ...] = ()
    match kind:
        case "binary":
            program: str = server["path"]
            if "/" in program and not program.startswith("/"):  # else it is on the PATH, or a place of this machine
                program = str(reference(page, ("server", "path"), workspace))
            command = (program, *args)
        case "npm":
            command = ("npx", "-y", server["package"], *args)
        case "docker":
            passed = [word for name in env for word in ("-e", name)]
            command = ("docker", "run", "-i", "--rm", *passed, server["image"], *args)
    finished(page)
    return McpDocument(page=page, transport=transport, command=command, env=env, url=server.get("url", ""))
