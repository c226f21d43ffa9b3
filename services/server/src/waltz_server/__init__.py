"""The server: locks, numbering, replication, feed."""

from waltz_protocol import __version__ as __version__
