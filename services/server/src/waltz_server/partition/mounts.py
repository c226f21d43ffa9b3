"""Which connections may append and feed under a client id: the fence against stale connections, and against
strangers.

Pure. Client-server protocol, connection registry and validity. One `MountRegistry` per partition; its only
writer is the partition.

A client id may be in use by several living client objects: ids can be given out twice (a ZooKeeper tree put
back, or copied), and anybody can name one. The connection number of a mount says which object a connection
belongs to (`waltz_protocol.connection_number`); clients of release 0.13.2 are all object 0.

Invariants
* At most one connection per client id and object is recorded; only that very connection is valid (the
  reference compares sequence numbers, so that two connections with equal numbers both passed).
* A newer mount of the same object (generation, then connection sequence number) replaces an older one, never
  the other way round. The one exception is a connection that proves to be alive after it was replaced
  (`_may_replace`): then the two are different objects after all, and who was here first has the place, for as
  long as it lives.
* From the moment the flush of a newer mount has passed the append queue, the mounts it replaced are *fenced*:
  an append that was validated under one of them is dropped when it is processed (weakness 13.9).
* A named producer's mount (ADR 38) of a newer epoch takes the place of all mounts of its client id that are
  of an older one, or of none, and fences them; from then on a mount of an older epoch is refused (E8).
* Objects under one id have their places side by side, at most `MAX_OBJECTS`. A later one may not append under
  the request ids that an earlier one is using (`Mount.may_use`): its commits would be taken for the earlier
  one's (safety D10).
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz_protocol.connection_number import object_of
from waltz_server.partition.client import Client

MAX_OBJECTS = 4
PROOFS_OF_LIFE = 3
"""Mounts that a replaced connection sends, each in answer to NOT_READY, before it is believed to be alive."""
PROOF_SECONDS = 1.0
MAX_EPOCHS = 10_000
"""Named producers of a partition whose newest epoch is remembered; the one that mounted longest ago is
forgotten first. The epochs of living mounts count beside these."""

_SEQ_NUM_OFFSET = 12
_SEQ_NUMS = 1 << 32
_BEHIND = 1 << 20
_AHEAD = 1 << 29


def seq_num_of(req_id: bytes) -> int:
    """Sequence number of a ReqId as an unsigned number."""
    return int.from_bytes(req_id[_SEQ_NUM_OFFSET:], "big")


@dataclass(slots=True, eq=False)
class Mount:
    """The right of one connection to append; `replaced` links the mounts it took over from until its
    flush."""

    client: Client
    generation: int
    connection_seq_num: int
    seq_num: int = 0
    """Sequence number of the latest mount request: what the client sends then counts on from here."""
    fenced: bool = False
    replaced: Mount | None = None
    elders: tuple[Mount, ...] = ()
    """Other objects under this client id that were here before."""
    epoch: int = 0
    """Of the instance of a named producer; 0 for other clients."""
    comes_back: bool = True
    """Whether the client, after it had lost a lock, used the turn that was kept for it (`lock_lines`)."""
    lost_at: float = float("-inf")

    def takes_over(self, older: Mount | None) -> None:
        """Fence these, too, when the time has come."""
        last = self
        while last.replaced is not None:
            last = last.replaced
        last.replaced = older

    def fence_replaced(self) -> None:
        """The flush of this mount has passed the queue: nothing validated under older mounts may follow."""
        older = self.replaced
        while older is not None:
            older.fenced = True
            older = older.replaced
        self.replaced = None

    def may_use(self, req_id: bytes) -> bool:
        """False for a request id out of the range that an elder counts through (2^29 from its mount on). The
        numbers of a named producer are the application's, the same ones for each instance: they are looked
        for in the log."""
        if self.epoch:
            return True
        seq_num = seq_num_of(req_id)
        return all(
            (seq_num - elder.seq_num + _BEHIND) % _SEQ_NUMS >= _BEHIND + _AHEAD for elder in self.elders
        )


@dataclass(slots=True, eq=False)
class _Place:
    mount: Mount
    displaced: Client | None = None
    """The connection that had the place before, while it lives."""
    displaced_at: float = 0.0
    proofs: int = 0
    kept: bool = False
    """The holder proved that it is another object than the one that had taken its place."""


class MountRegistry:
    """Client id and object -> mount of one partition. Times are seconds of the caller's clock."""

    def __init__(self, partition_id: int = -1) -> None:
        self._partition_id = partition_id
        self._mounts: dict[Client, Mount] = {}
        self._places: dict[int, dict[int, _Place]] = {}
        self._epochs: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._mounts)

    def is_fenced(self, client: Client, epoch: int) -> bool:
        """Whether a newer instance of this named producer has been here; `epoch` is 0 for other clients."""
        return 0 < epoch < self._newest_epoch(client.client_id)

    def _newest_epoch(self, client_id: int) -> int:
        living = (place.mount.epoch for place in self._places.get(client_id, {}).values())
        return max(self._epochs.get(client_id, 0), *living, 0)

    def offer(
        self, client: Client, generation: int, seq_num: int = 0, now: float = 0.0, epoch: int = 0
    ) -> Mount | None:
        """Record the mount request of `client` (with its ReqId's sequence number) if it is newer; None when
        another connection holds the place, or a newer instance of the producer has been here.

        The loser gets NOT_READY from the caller (weakness 13.10: the reference says nothing at all, and a
        restarted client, which counts from 0 again, would wait forever).
        """
        if self.is_fenced(client, epoch):
            return None
        older = self._supersede(client.client_id, epoch) if epoch else None
        mount = self._offer(client, generation, seq_num, now)
        if mount is None:
            return None
        mount.epoch = epoch
        mount.takes_over(older)
        return mount

    def _supersede(self, client_id: int, epoch: int) -> Mount | None:
        """Take the place of older instances of a named producer: their mounts, linked by `replaced`."""
        self._epochs.pop(client_id, None)
        self._epochs[client_id] = epoch  # the last one now, and none is newer: see `offer`
        if len(self._epochs) > MAX_EPOCHS:
            del self._epochs[next(iter(self._epochs))]
        places = self._places.get(client_id, {})
        older: Mount | None = None
        for key, place in list(places.items()):
            mount = place.mount
            if mount.epoch >= epoch:
                continue
            del places[key]
            self._mounts.pop(mount.client, None)
            mount.takes_over(older)
            mount.client.withdraw_mount(self._partition_id)
            older = mount
        return older

    def _offer(self, client: Client, generation: int, seq_num: int, now: float) -> Mount | None:
        places = self._places.setdefault(client.client_id, {})
        key = object_of(client.connection_seq_num)
        place = places.get(key)
        if place is None:
            if len(places) >= MAX_OBJECTS:
                client.misbehaved(f"refused, {MAX_OBJECTS} other clients use this client id")
                return None
            if places:
                client.misbehaved("another living client has the same client id")
            mount = Mount(client, generation, client.connection_seq_num, seq_num)
            places[key] = _Place(mount)
        elif place.mount.client is client:
            mount = place.mount
            mount.generation, mount.seq_num = max(mount.generation, generation), seq_num
            return mount
        elif not self._may_replace(place, client, generation, now):
            return None
        else:
            mount = Mount(client, generation, client.connection_seq_num, seq_num, replaced=place.mount)
            self._mounts.pop(place.mount.client, None)
            place.mount.client.withdraw_mount(self._partition_id)
            place.mount = mount
        self._mounts[client] = mount
        self._rank(places)
        return mount

    def _may_replace(self, place: _Place, client: Client, generation: int, now: float) -> bool:
        """Whether `client` is a newer connection of the object, or a replaced one that is alive.

        A replaced connection that mounts again is another object: its own client would not use it, it has
        left it for the newer one. Each NOT_READY that it answers says so; what a network may still deliver of
        a dead connection comes at once, and without answers.
        """
        holder = place.mount
        if place.displaced is client:
            place.proofs += 1
            if place.proofs < PROOFS_OF_LIFE or now - place.displaced_at < PROOF_SECONDS:
                return False
            holder.client.misbehaved("had taken the client id of a living connection, which has it back")
            place.displaced, place.kept = None, True
            return True
        newer = (generation, client.connection_seq_num) > (holder.generation, holder.connection_seq_num)
        if newer and not place.kept:
            place.displaced, place.displaced_at, place.proofs = holder.client, now, 0
        return newer and not place.kept

    def _rank(self, places: dict[int, _Place]) -> None:
        elders: tuple[Mount, ...] = ()
        for place in places.values():
            place.mount.elders = elders
            elders = (*elders, place.mount)

    def valid(self, client: Client) -> Mount | None:
        """The mount of this very connection, or None."""
        return self._mounts.get(client)

    def remove(self, client: Client) -> None:
        """The connection has gone; its entry goes with it, but only if it is still its own."""
        places = self._places.get(client.client_id, {})
        key = object_of(client.connection_seq_num)
        place = places.get(key)
        if place is not None and place.mount.client is client:
            del self._mounts[client], places[key]
            self._rank(places)
        elif place is not None and place.displaced is client:
            place.displaced = None
        if not places:
            self._places.pop(client.client_id, None)

    def clear(self) -> None:
        self._mounts.clear()
        self._places.clear()
