"""Bytes and messages of the Waltz protocols: codec, framing, handshake, channels, locks."""

__version__ = "0.1.0"
"""Of every package of Waltz: they are released together, and each takes its `__version__` from here."""
