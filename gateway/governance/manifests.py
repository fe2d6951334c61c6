"""The documents as typed values: ACP.md (AIP-44), OPERATOR.md (AIP-9), SANDBOX.md (AIP-36), MCP.md (AIP-32), POLICY.md
(AIP-7).

`load_*` reads one file, validates it against its schema and the rules that span several keys, and raises
DocumentError with all that is wrong. Nothing is lost: `page.raw` is the whole front matter. What a document refers
to is resolved to paths here and read by others (`binding.py`); GOVERNANCE.md, which is merged, is in `posture.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from gateway.core.types import JsonObject
from gateway.governance import schemas
from gateway.governance.front_matter import MarkdownPage, Misplaced, at, read, resolve, workspace_of
from gateway.yaml_document import DocumentError, Mistake, Where

AIP44: Where = ("metadata", "aip44")


class GovernanceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every document."""

    page: MarkdownPage

    @property
    def path(self) -> Path:
        return self.page.path

    @property
    def raw(self) -> JsonObject:
        return self.page.raw


class ManifestMcpServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server of tools that the runtime mounts into new sessions."""

    name: str
    transport: str
    ref: Path | None


class Manifest(GovernanceDocument, frozen=True, kw_only=True):
    """An ACP.md. References are files inside `workspace` that exist."""

    id: str
    kind: str
    """client, server or bridge."""
    transports: tuple[str, ...]
    acp_rev: str
    tier: str
    """basic, governance-aware or sandboxed."""
    workspace: Path
    capabilities: JsonObject | None
    """The explicit map, which overrides the tier's (see `tiers.py`)."""
    operator: Path | None
    governance: Path | None
    sandbox: Path | None
    audit_kind: str
    """governance (the binding's own log), external or off."""
    audit_ref: str | None
    mcp_servers: tuple[ManifestMcpServer, ...]

    @property
    def audit_folder(self) -> Path | None:
        """The folder that `audit.ref` names, where it is one of this machine."""
        return folder_of(self.audit_ref or "")


class ToolGrant(msgspec.Struct, frozen=True, kw_only=True):
    """Tools that an operator may run: one by its id, or those of an MCP server. None: without that limit."""

    tool: str | None = None
    server: str | None = None
    allow: tuple[str, ...] | None = None


class OperatorMemory(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's memory. `kind`: none, thread, operator-context, external."""

    kind: str
    share_with: tuple[str, ...]
    uri: str | None

    @property
    def lasting(self) -> bool:
        """Whether closing a session persists it: AIP-44's "not ephemeral"."""
        return self.kind != "none"


class Operator(GovernanceDocument, frozen=True, kw_only=True):
    """An OPERATOR.md."""

    id: str
    tools: tuple[ToolGrant, ...]
    skills: tuple[str, ...]
    memory: OperatorMemory
    policies: tuple[str, ...]
    """Policies that must be consulted, without their `policy:`."""
    audit_log: str | None
    """The channel, without its `audit:`. None: the operator has no governance of its own."""
    autonomy: str
    """autonomous, supervised or gated."""

    @property
    def ref(self) -> str:
        """The name that other documents refer to it by."""
        return f"ws://operators/{self.id}"


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A file system inside a sandbox."""

    at: str
    writable: bool


class Sandbox(GovernanceDocument, frozen=True, kw_only=True):
    """A SANDBOX.md."""

    provider: str
    mounts: tuple[Mount, ...]
    read_only: bool

    @property
    def local(self) -> bool:
        """Whether paths inside are paths of this machine."""
        return self.provider in ("local", "node-permission")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a policy's permissions. None: no limit."""

    per_hour: int | None = None
    per_day: int | None = None
    amount: bool = False
    """Whether what is paid is limited as well. No call says what it costs."""


class Signer(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An approver: a person by id, or anyone in a role."""

    role: str = ""
    user: str = ""


class Policy(GovernanceDocument, frozen=True, kw_only=True):
    """A POLICY.md."""

    slug: str
    action: str
    subject: str | None
    risk_min: int
    decision: str
    """allow, deny, require-approval or escalate."""
    signers: tuple[Signer, ...]
    quorum: int
    autonomy: int
    """The greatest autonomy at which it stays permissive."""
    budget: Budget | None


def load_manifest(path: Path, workspace: Path | None = None) -> Manifest:
    """An ACP.md. `workspace` is what its references may lead into (see `front_matter.py`). Raises DocumentError."""
    page = read_document(path, schemas.MANIFEST)
    raw, root = page.raw, workspace or workspace_of(path)
    bound = raw.get("metadata", {}).get("aip44", {}) if isinstance(raw.get("metadata"), dict) else {}
    bound = bound if isinstance(bound, dict) else {}
    if isinstance(name := raw.get("name"), str) and name != page.folder.name:
        page.refuse(("name",), f"'{name}' is not the folder's name, '{page.folder.name}'")
    if raw.get("kind") == "server" and "operator" not in bound:
        page.refuse((*AIP44, "operator"), "required: a server exposes an operator")
    files = {key: reference(page, (*AIP44, key), root) for key in ("operator", "governance", "sandbox")}
    servers = bound.get("mcp_servers")
    refs = [
        reference(page, (*AIP44, "mcp_servers", index, "ref"), root)
        for index in range(len(servers) if isinstance(servers, list) else 0)
    ]
    finished(page)
    transport, audit = raw["transport"], bound.get("audit", {})
    return Manifest(
        page=page,
        workspace=root,
        id=raw["id"],
        kind=raw["kind"],
        transports=(transport,) if isinstance(transport, str) else tuple(transport),
        acp_rev=bound["acp_rev"],
        tier=bound["tier"],
        capabilities=bound.get("capabilities"),
        audit_kind=audit.get("kind", "governance"),
        audit_ref=audit.get("ref"),
        mcp_servers=tuple(
            ManifestMcpServer(name=server["name"], transport=server["transport"], ref=ref)
            for server, ref in zip(servers or (), refs, strict=True)
        ),
        **files,
    )


def load_operator(path: Path) -> Operator:
    """An OPERATOR.md. Raises DocumentError."""
    page = read_document(path, schemas.OPERATOR)
    finished(page)
    raw = page.raw
    governance, memory = raw.get("governance", {}), raw.get("memory", {})
    skills = raw.get("skills", ())
    brought = [skill for skill in skills if isinstance(skill, dict) and "allow" in skill]
    return Operator(
        page=page,
        id=raw["id"],
        tools=(
            *(_grant(tool) for tool in raw.get("tools", ())),
            *(ToolGrant(tool=tool) for skill in brought for tool in skill["allow"]),
        ),
        skills=tuple(skill if isinstance(skill, str) else skill["id"] for skill in skills),
        memory=OperatorMemory(
            kind=memory.get("kind", "thread"),
            share_with=tuple(memory.get("share_with", ())),
            uri=memory.get("external", {}).get("uri"),
        ),
        policies=tuple(ref.removeprefix("policy:") for ref in governance.get("policies", ())),
        audit_log=governance["audit_log"].removeprefix("audit:") if governance else None,
        autonomy=governance.get("autonomy", "supervised"),
    )


def _grant(tool: Any) -> ToolGrant:
    if isinstance(tool, str):
        return ToolGrant(tool=tool)
    if "server" in tool:  # no list is not the same as none of them
        return ToolGrant(server=tool["server"], allow=tuple(tool["allow"]) if "allow" in tool else None)
    return ToolGrant(tool=tool["id"])


def load_sandbox(path: Path, workspace: Path) -> Sandbox:
    """A SANDBOX.md. Raises DocumentError."""
    page = read_document(path, schemas.SANDBOX)
    raw = page.raw
    mounts = raw.get("mounts")
    for index, mount in enumerate(mounts if isinstance(mounts, list) else ()):
        reference(page, ("mounts", index, "source", "file"), workspace)
        at = mount.get("at") if isinstance(mount, dict) else None
        if isinstance(at, str) and ".." in at.split("/"):
            page.refuse(("mounts", index, "at"), "should be an absolute path without '..'")
    finished(page)
    return Sandbox(
        page=page,
        provider=raw["provider"],
        mounts=tuple(
            Mount(at=mount["at"], writable=mount.get("mode", "read-write") == "read-write") for mount in mounts or ()
        ),
        read_only=raw.get("read_only", False),
    )


def load_policy(path: Path) -> Policy:
    """A POLICY.md. Raises DocumentError."""
    page = read_document(path, schemas.GOVERNANCE, "policy", "schema.invalid")
    finished(page)
    raw = page.raw
    signers = raw.get("signers", ())
    if raw["decision"] == "allow" and raw.get("autonomy") == 0:
        page.refuse(("autonomy",), "0 would never let it allow what it allows")
    users = {signer.get("userId") for signer in signers}
    if signers and None not in users and raw.get("quorum", 1) > len(users):
        page.refuse(("quorum",), f"can never be met: {len(users)} may sign")
    finished(page)
    match, budget = raw["match"], raw.get("budget")
    return Policy(
        page=page,
        slug=raw["slug"],
        action=match["action"],
        subject=match.get("subject"),
        risk_min=match.get("risk_level_min", 0),
        decision=raw["decision"],
        signers=tuple(Signer(role=signer.get("role", ""), user=signer.get("userId", "")) for signer in signers),
        quorum=raw.get("quorum", 1),
        autonomy=raw.get("autonomy", 2),
        budget=budget
        and Budget(
            per_hour=budget.get("max_per_hour"), per_day=budget.get("max_per_day"), amount="max_amount_cents" in budget
        ),
    )


def reference(page: MarkdownPage, where: Where, workspace: Path) -> Path | None:
    """The file that the key refers to; None where it refers to none, or to one that it may not (which is noted)."""
    given = at(page.raw, where)
    if not isinstance(given, str):
        return None  # there is none, or the schema says that it is no text
    try:
        return resolve(given, of=page.path, workspace=workspace)
    except Misplaced as error:
        page.refuse(where, str(error))
        return None


def folder_of(uri: str) -> Path | None:
    """The folder of this machine that a `file:` URI names; None for anything else."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    local = parts.scheme == "file" and parts.hostname in (None, "localhost") and parts.path
    return Path(unquote(parts.path)) if local else None


def read_document(path: Path, schema: str, part: str = "", code: str = "") -> MarkdownPage:
    """A file, validated against its schema; `finished` raises what is wrong."""
    page = read(path)
    if page.raw or not page.document.mistakes:
        schemas.validate(page.document, page.raw, schema, part, code)
    return page


def finished(page: MarkdownPage) -> None:
    """Raises DocumentError with the mistakes that the page has by now."""
    if page.document.mistakes:
        raise DocumentError(page.document.mistakes)


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
