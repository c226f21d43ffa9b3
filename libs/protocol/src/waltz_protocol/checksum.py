"""The CRC-32 of records, files and messages (IEEE, that of zlib and of java.util.zip).

From the instructions of the processor where the package isal is installed (extra `checksum`), otherwise
from zlib: the same numbers, in a fifth to a tenth of the time (bench/README.md). A record is summed ten times
on its way from the client to three disks.
"""

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
