"""The storage node: keeps the records of its partitions on disk and answers servers and tools."""

__version__ = "0.1.0"
