"""The storage node: keeps the records of its partitions on disk and answers servers and tools."""

from waltz_protocol import __version__ as __version__
