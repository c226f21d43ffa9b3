"""The connection sequence number of a mount: which client object, and the how-manieth of its connections.
Pure.

A server lets a newer connection of a client take the place of an older one, by the larger number
(docs/protocol.md, clients and servers). Release 0.13.2 counts from 0. Two clients that were given one
id would displace each other, and so could anybody who names a client's id; so our clients count from a random
number of their own in the upper bits. A server of ours sees by it that two connections belong to two objects;
one of 0.13.2 compares 64-bit numbers as before.
"""

COUNTER_BITS = 27
OBJECT_BITS = 36


def first_connection_number(draw: float) -> int:
    """The number of an object's first connection; `draw` is random, in [0, 1)."""
    return (1 + int(draw * ((1 << OBJECT_BITS) - 1))) << COUNTER_BITS


def object_of(connection_seq_num: int) -> int:
    """What the connections of one client object have in common; 0 for clients of release 0.13.2."""
    return connection_seq_num >> COUNTER_BITS
