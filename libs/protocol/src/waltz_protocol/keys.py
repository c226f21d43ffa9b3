"""Numbers for the keys of applications: where something is kept, and which lock represents it. Pure.

Every program that shares a log has to come to the same numbers, permanently: the hash is SHA-256, whatever
the language, and never changes.
"""

import hashlib


def key_hash(key: str | bytes) -> int:
    """The first 8 bytes of the SHA-256 of the key (a text in UTF-8) as a big-endian number, 0 to 2**64 - 1.

    TypeError for what is neither text nor bytes.
    """
    data = key.encode() if isinstance(key, str) else key
    try:
        digest = hashlib.sha256(data).digest()
    except TypeError:
        raise TypeError(
            f"a key is text or bytes, not {type(key).__name__}: a number is one as its text, str(number)"
        ) from None
    return int.from_bytes(digest[:8], "big")


def partition_for(key: str | bytes, num_partitions: int) -> int:
    """The partition of a key: `key_hash` modulo the number of partitions, which never changes in a cluster.

    ValueError when there are none.
    """
    if num_partitions < 1:
        raise ValueError(f"a log has at least one partition, not {num_partitions}")
    return key_hash(key) % num_partitions
