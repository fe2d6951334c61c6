"""Version 2 of the protocol: see version.py, and `codec.version` for the interface."""
