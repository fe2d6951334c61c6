"""What governs an agent, as AIP-44 has it: documents in, answers out. Knows no protocol, and enforces nothing.

    front_matter.py   a Markdown file with YAML on top -> `Page`; GovernanceError, a line a mistake
    schemas/          the published JSON Schemas, and what they say in words
    places.py         where a reference leads: inside the workspace, or nowhere
    manifests.py      ACP.md, OPERATOR.md, SANDBOX.md, POLICY.md as typed values
    skills.py         SKILL.md: what the agent of an operator is told
    mcp_servers.py    MCP.md: the servers that a manifest gives its agent
    posture.py        what GOVERNANCE.md comes to
    merging.py        a view on top of what it extends; one-way switches
    workspace.py      GOVERNANCE.md: a chain of `extends` read and merged
    tiers.py          what a manifest promises, and what of it may be said
    matching.py       whether a policy speaks of an action
    budgets.py        how often a policy has allowed
    policy.py         `Rules.decide`: what is to become of an action
    roots.py          which paths may be worked on
    demands.py        what a posture demands of whoever keeps its audit log
    declined.py       what documents may say and is not done here
    revision.py       the revision of the Agent Client Protocol that is spoken
    binding.py        `bind(ACP.md)`: all of that for one route
    printing.py       an ACP.md for an agent
    audit/            the log of what happened

Start at `binding.bind`; docs/governance.md says what is decided where the specifications are silent.
"""
