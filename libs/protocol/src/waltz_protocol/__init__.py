"""Bytes and messages of the Waltz protocols: codec, framing, handshake, channels, locks."""
