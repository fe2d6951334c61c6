"""Version 1 of the protocol: see version.py, and `codec.version` for the interface."""
