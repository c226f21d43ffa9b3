"""Request ids of one partition of one client object. Pure.

Invariants (safety E2, E5): one counter per partition, shared by the stream and the RPC side, kept for the
whole life of the client id, across reconnects, moves and deactivations: no number is given out twice. It
starts at a random number, so that two client objects that were given the same client id (the counter in
ZooKeeper went back) do not make the same request ids. The generation only ever grows.
"""

from __future__ import annotations

from collections import deque

from waltz_protocol.backoff import Random
from waltz_protocol.types import ReqId, pack_req_id

NEAR = 2**29
"""Another client's numbers are too close within this distance; a server keeps as many for the earlier of two
clients."""

_NUMBERS = 2**32
_LAST_I32 = 2**31 - 1
_MAX_EARLIER = 64
_DRAWS = 256


def follows(later: int, earlier: int) -> bool:
    """Whether a number was given out after another one: the counter wraps around."""
    return 0 < (later - earlier) % _NUMBERS < _NUMBERS // 2


def _distance(one: int, other: int) -> int:
    return min((one - other) % _NUMBERS, (other - one) % _NUMBERS)


class ReqIdSource:
    """Counter and generation of one partition."""

    __slots__ = ("_before", "_earlier", "_random", "_seq_num", "client_id", "generation", "partition_id")

    def __init__(self, client_id: int, partition_id: int, random: Random) -> None:
        self.client_id = client_id
        self.partition_id = partition_id
        self.generation = -1
        self._random = random
        self._seq_num = self._before = self._draw()
        self._earlier: deque[tuple[int, int]] = deque(maxlen=_MAX_EARLIER)
        """Numbers given out before the counter moved: after the first of each pair, up to the second."""

    def raise_generation(self, generation: int) -> bool:
        """Adopt a larger generation; False (unchanged) for the same or a smaller one."""
        if generation <= self.generation:
            return False
        self.generation = generation
        return True

    def next_seq_num(self) -> int:
        """A number never given before; wraps as a signed 32-bit integer."""
        seq_num = self._seq_num + 1 if self._seq_num != _LAST_I32 else -(2**31)
        self._seq_num = seq_num
        return seq_num

    def next_req_id(self) -> ReqId:
        """A fresh request id in the current generation."""
        return ReqId(self.client_id, self.generation, self.partition_id, self.next_seq_num())

    def pack(self, generation: int, seq_num: int) -> bytes:
        """The 16 bytes of one of this partition's request ids."""
        return pack_req_id(self.client_id, generation, self.partition_id, seq_num)

    # -- when somebody else has the same client id -----------------------------------------------------------

    def gave_out(self, seq_num: int) -> bool:
        """Whether a number is one of this object's."""
        return any(
            0 < (seq_num - before) % _NUMBERS <= (last - before) % _NUMBERS
            for before, last in ((self._before, self._seq_num), *self._earlier)
        )

    def is_near(self, seq_num: int) -> bool:
        """Whether somebody who counts on from there may come to the numbers given out next, or be
        overtaken."""
        return _distance(seq_num, self._seq_num) < NEAR

    def move(self, away_from: int) -> None:
        """Count on from a random place, far from the present one and from `away_from`."""
        self._earlier.append((self._before, self._seq_num))
        present = self._seq_num
        for _ in range(_DRAWS):
            place = self._draw()
            if min(_distance(place, away_from), _distance(place, present)) >= NEAR and not self.gave_out(
                place
            ):
                break
        self._seq_num = self._before = place

    def _draw(self) -> int:
        return int(self._random.random() * _NUMBERS) - _NUMBERS // 2


class ReqIdSources:
    """The sources of one client. Invariant: one per partition for the life of the client."""

    def __init__(self, client_id: int, random: Random) -> None:
        self._client_id = client_id
        self._random = random
        self._sources: dict[int, ReqIdSource] = {}

    def of(self, partition_id: int) -> ReqIdSource:
        """The one source of request ids of a partition."""
        source = self._sources.get(partition_id)
        if source is None:
            source = self._sources[partition_id] = ReqIdSource(self._client_id, partition_id, self._random)
        return source
