"""Fakes, fault proxy, faulty disk, checkers, workloads. Never shipped."""

from waltz_protocol import __version__ as __version__
