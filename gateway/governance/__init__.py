"""The rules for an agent, as in AIP-44: reads documents, answers questions. Knows no protocol, and enforces nothing.

    front_matter.py   a Markdown file with YAML on top -> `MarkdownPage`; references to files of the workspace
    schemas/          the published JSON Schemas, and their errors in words
    manifests.py      ACP.md, OPERATOR.md, SANDBOX.md, MCP.md, POLICY.md as typed values
    skills.py         SKILL.md: instructions for an operator's agent
    posture.py        GOVERNANCE.md: a chain of `extends` read and merged, and what it demands of its audit log
    tiers.py          a manifest's capabilities, those that may be declared, and the revision that it pins
    matching.py       whether a policy is about an action
    budgets.py        counts what policies have allowed
    policy.py         `PolicyRules.decide`: allow an action, deny it, or have it approved
    declined.py       what documents demand and the gateway does not do
    binding.py        `bind(ACP.md)`: all of that for one route, and the paths that its agent may work on
    printing.py       an ACP.md for an agent
    audit/            the audit log

Start at `binding.bind`; docs/governance.md has the decisions where the specifications are silent.
"""
