"""The Agent Context Protocol's own messages, as the adapter reads them, and as they are published.

constants.py  names: methods, resources, tools, error codes, keys of `_meta`
base.py       what all models share; records.py an agent as it registers; messages.py params of the `agent/...` methods
tools.py      the standard tools: their definitions and arguments; sampling.py the params of `sampling/createMessage`
results.py    what the gateway answers and tells, as models: for the schema and for tests, nothing is made of them
documents.py  which schemas an agent may publish; reading.py `read(raw, Model)`
schema.py     all of it as one JSON Schema (docs/schemas/agent_context.schema.json)

Source: Agent Context Protocol 0.1 of 2025-02-25; what it leaves open is decided in the adapter's README. The base
protocol is in gateway/mcp/wire.py. What is read is checked strictly, and keys that are not known are kept.
"""
