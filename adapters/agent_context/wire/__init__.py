"""The Agent Context Protocol's own messages, as far as the adapter reads them.

docs/schemas/agent_context.schema.json describes all of them, read and sent; the tests hold the adapter to it.

constants.py  names: methods, resources, tools, error codes, keys of `_meta`
base.py       what all models share; `read(raw, Model)`
records.py    an agent as it registers, and which schemas it may publish
messages.py   params of all methods, and arguments of the standard tools, whose definitions are in tools.json

Source: Agent Context Protocol 0.1 of 2025-02-25; what it leaves open is decided in the adapter's README. The base
protocol is in gateway/mcp/wire.py. What is read is checked strictly, and keys that are not known are kept.
"""
