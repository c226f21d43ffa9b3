"""Which server serves which partition (ZooKeeper layout, assignment policy). Pure: no clock, no network, no
random.

Given the members and the last assignment: first preferences, then whatever a server already has up to its
fair share, then the rest. A server that comes or goes moves the fewest partitions possible, and the
generation of a partition grows by one exactly when its owner changes (the first owner gets generation 1).

Invariants of the result (checked before it is returned)
  1. every partition 0..P-1 belongs to exactly one server; every member is listed, also with nothing, and
     nobody else, except for (4);
  2. a partition whose owner stayed keeps its generation; any other has its old generation + 1;
  3. a preferred partition is with a server that prefers it (the lowest id of those that do);
  4. a partition in its last generation stays with the server that it has, member or not: there is no number
     for another owner, and others are not to wait for one. (No cluster comes so far: the number is damaged.)

Mended against 0.13.2: an extra slot counts as used only when a server's count *exceeds* the fair share, so
that preferences with a remainder never leave partitions over; servers are visited in ascending order of their
ids.
"""

from collections.abc import Callable, Iterable, Mapping

from waltz_cluster.errors import ClusterError, InsufficientPartitionsError
from waltz_cluster.serializers import PartitionAssignment, ServerDescriptor
from waltz_protocol.types import Generation, PartitionId

LAST_GENERATION = Generation(2**31 - 1)
Shuffle = Callable[[list[tuple[PartitionId, Generation]]], None]


class _Distribution:
    """One run of the policy."""

    def __init__(
        self,
        generations: Mapping[PartitionId, Generation],
        owners: Mapping[PartitionId, int],
        servers: Iterable[int],
    ) -> None:
        self._generations = generations
        self._owners = owners
        self.given: dict[int, list[tuple[PartitionId, Generation]]] = {server_id: [] for server_id in servers}
        self.absent: dict[int, list[tuple[PartitionId, Generation]]] = {}
        self.open = dict.fromkeys(generations)
        self.share, self.extra = divmod(len(generations), len(self.given))

    def keep(self, server_id: int, partition_id: PartitionId) -> None:
        """What cannot change its owner, who need not be a member."""
        if server_id in self.given:
            self.give(server_id, partition_id)
        else:
            del self.open[partition_id]
            self.absent.setdefault(server_id, []).append((partition_id, self._generations[partition_id]))

    def give(self, server_id: int, partition_id: PartitionId) -> None:
        generation = self._generations[partition_id]
        if self._owners.get(partition_id) != server_id:
            generation = Generation(generation + 1)
        del self.open[partition_id]
        given = self.given[server_id]
        given.append((partition_id, generation))
        if len(given) > self.share:
            self.extra -= 1

    def has_room(self, server_id: int) -> bool:
        return len(self.given[server_id]) < self.share + (1 if self.extra > 0 else 0)


def assign(
    cversion: int,
    old: PartitionAssignment,
    num_partitions: int,
    members: Mapping[int, ServerDescriptor],
    shuffle: Shuffle,
) -> PartitionAssignment:
    """The assignment for child version `cversion`.

    `shuffle` reorders one server's list in place, so that later moves do not always hit the same
    partitions. Raises InsufficientPartitionsError when there are fewer partitions than before, ClusterError
    without members.
    """
    if num_partitions < old.num_partitions:
        raise InsufficientPartitionsError(
            f"the old assignment has {old.num_partitions} partitions, the cluster only {num_partitions}"
        )
    if not members:
        raise ClusterError("partitions cannot be assigned without servers")
    generations = {PartitionId(p): Generation(0) for p in range(num_partitions)}
    owners: dict[PartitionId, int] = {}
    for server_id, partitions in old.servers.items():
        for partition_id, generation in partitions:
            if partition_id in generations and (
                partition_id not in owners or generation > generations[partition_id]
            ):
                generations[partition_id] = generation
                owners[partition_id] = server_id
    work = _Distribution(generations, owners, sorted(members))
    for partition_id, server_id in owners.items():
        if generations[partition_id] == LAST_GENERATION:
            work.keep(server_id, partition_id)
    _prefer(work, members)
    _keep(work, owners)
    _fill(work)
    if work.open:
        raise ClusterError(f"no server was found for partitions {sorted(work.open)}")
    for given in work.given.values():
        shuffle(given)
    servers = {s: tuple(given) for s, given in (work.given | work.absent).items()}
    return PartitionAssignment(cversion, num_partitions, servers)


def at_their_last(assignment: PartitionAssignment) -> dict[PartitionId, int]:
    """The partitions in their last generation, and whose they are."""
    return {
        partition_id: server_id
        for server_id, given in assignment.servers.items()
        for partition_id, generation in given
        if generation == LAST_GENERATION
    }


def _prefer(work: _Distribution, members: Mapping[int, ServerDescriptor]) -> None:
    for server_id in work.given:
        for partition_id in members[server_id].preferred:
            if partition_id in work.open:
                work.give(server_id, partition_id)


def _keep(work: _Distribution, owners: Mapping[PartitionId, int]) -> None:
    for server_id in work.given:
        for partition_id in [p for p in work.open if owners.get(p) == server_id]:
            if not work.has_room(server_id):
                break
            work.give(server_id, partition_id)


def _fill(work: _Distribution) -> None:
    for server_id in work.given:
        while work.open and work.has_room(server_id):
            work.give(server_id, next(iter(work.open)))


def same_owners(left: PartitionAssignment, right: PartitionAssignment) -> bool:
    """Whether two assignments say the same, apart from order and child version."""
    return left.num_partitions == right.num_partitions and {
        server_id: dict(partitions) for server_id, partitions in left.servers.items()
    } == {server_id: dict(partitions) for server_id, partitions in right.servers.items()}


def with_generations(
    old: PartitionAssignment, floor: Mapping[PartitionId, Generation]
) -> PartitionAssignment:
    """`old` extended by generations known from elsewhere for partitions it does not list.

    They are put under server id 0, which no server has (ids start at 1), so they count as owned by nobody
    present.
    """
    listed = {partition_id for partitions in old.servers.values() for partition_id, _ in partitions}
    missing = tuple((p, g) for p, g in sorted(floor.items()) if p not in listed and g > 0)
    if not missing:
        return old
    return PartitionAssignment(
        old.cversion, old.num_partitions, {**old.servers, 0: (*old.servers.get(0, ()), *missing)}
    )
