"""Moved to `waltz_protocol.backoff`."""

from waltz_protocol.backoff import Backoff, Random

__all__ = ["Backoff", "Random"]
