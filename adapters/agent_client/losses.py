"""What the Agent Client Protocol v1 cannot say, by the name under which it is counted."""

LOSSES = {
    "mcp_servers": "An agent of another protocol cannot be given the MCP servers that an editor offers.",
    "rewrite": "Text that an editor was told cannot be taken back: a document that rewrites its text is told again, "
    "as a new message, before the turn ends.",
    "custom": "An event of another protocol's own has no update here.",
    "other_roles": "Messages of an agent of another protocol that are neither the assistant's nor the user's.",
    "beside_output": "A part of a message that is not in the output document: text beside data, or more data.",
    "file": "A file that another protocol described without an address.",
    "session_forgotten": "The agent was started again and has forgotten the conversation: it goes on with a new one.",
    "unreadable": "A message of the agent's was over the limit, or none at all, and was left out.",
    "file_too_large": "A file in a message of the agent's was over the limit of artifacts and was not kept.",
}
