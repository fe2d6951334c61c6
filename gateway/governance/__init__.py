"""The rules for an agent, as in AIP-44: reads documents, answers questions. Knows no protocol, and enforces nothing.

    front_matter.py   a Markdown file with YAML on top -> `MarkdownPage`; DocumentError, a line a mistake
    schemas/          the published JSON Schemas, and their errors in words
    references.py     resolves references to files of the workspace
    manifests.py      ACP.md, OPERATOR.md, SANDBOX.md, POLICY.md as typed values
    skills.py         SKILL.md: instructions for an operator's agent
    mcp_servers.py    MCP.md: the servers that a manifest gives its agent
    posture.py        the merged GOVERNANCE.md
    workspace.py      GOVERNANCE.md: a chain of `extends` read and merged
    tiers.py          a manifest's capabilities, and those that may be declared
    matching.py       whether a policy is about an action
    budgets.py        counts what policies have allowed
    policy.py         `PolicyRules.decide`: allow an action, deny it, or have it approved
    roots.py          the paths that may be worked on
    demands.py        a posture's demands on its audit log
    declined.py       what documents demand and the gateway does not do
    revision.py       the revision of the Agent Client Protocol
    binding.py        `bind(ACP.md)`: all of that for one route
    printing.py       an ACP.md for an agent
    audit/            the audit log

Start at `binding.bind`; docs/governance.md has the decisions where the specifications are silent.
"""
