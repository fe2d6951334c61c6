"""The Model Context Protocol as far as protocols that extend it share it: versions, both ends, its transports.

versions.py  which revisions there are, how one is agreed on, what each can say
options.py   McpServeOptions, McpTarget: what routes.yaml may say of either end
wire.py      the base protocol's own messages: initialize, discovery, progress, errors
forms.py     elicitation: a question as a form, a form's result as an answer
server/      serving clients: contract.py says what an adapter brings and what it gets
client/      calling servers: contract.py likewise
runs/        one run for one call of a client: followed, asked about, answered
proxy.py     both ends: a server reached by an ask and a tell, for clients of any revision

What is said over it (agents, runs, directories) is the adapters'. Sources: modelcontextprotocol.io/specification.
"""
