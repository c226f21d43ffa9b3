"""Giving up a replica: the explicit, lossy way out of a recovery that cannot be decided (safety rule A1).

Afterwards the majority is counted over the replicas that stay, so what only the forgotten one vouches for may
be dropped. Nobody else may stay silent while that happens: every remaining replica must answer now, else a
second lost disk would pass unnoticed. And a replica that is well is not given up: the wrong name on the
command line may be that of the last copy. If the forgotten replica is still assigned it comes back as a new
one and is refilled.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from waltz_admin.errors import AdminError, UnsafeChangeError
from waltz_admin.safety import AdminPortProbe, ReplicaProbe
from waltz_admin.tree import read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.errors import ClusterError, VersionConflictError
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.replica_rules import Answer, NoAnswer, ReplicaAnswer, why_not_intact
from waltz_cluster.serializers import PartitionMetadata
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings

_ATTEMPTS = 20


class PartlyForgottenError(AdminError):
    """It went wrong half-way; the text says in which partitions the replica is forgotten. Giving the command
    again is safe."""


class UnknownReplicaError(AdminError):
    """The replica to forget is not in the partition's metadata."""


class LastReplicaError(AdminError):
    """Forgetting the only replica would leave metadata that proves nothing."""


def _unknown_replica(connect_string: str, known: Collection[str]) -> str:
    """The message for a name that is not in the metadata."""
    return f"{connect_string} is not a replica in the metadata (known: {', '.join(sorted(known)) or 'none'})"


def without_replica(metadata: PartitionMetadata, connect_string: str) -> PartitionMetadata:
    """The metadata with one replica less in the old quorum. Pure. UnknownReplicaError, LastReplicaError."""
    if connect_string not in metadata.replicas:
        raise UnknownReplicaError(_unknown_replica(connect_string, metadata.replicas))
    if len(metadata.replicas) == 1:
        raise LastReplicaError(
            f"{connect_string} is the last replica in the metadata; it cannot be forgotten. If no other copy is better, one is "
            "taken as it is by `waltz storage forget --keep`"
        )
    left = {name: state for name, state in metadata.replicas.items() if name != connect_string}
    return PartitionMetadata(metadata.generation, metadata.session_id, left)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Partitions in which the replica was given up, those in which it is well and was kept, those whose
    metadata does not name it (or no longer), and other replicas that answer but are not well in a partition
    it was given up in."""

    forgotten: tuple[int, ...]
    well: tuple[int, ...]
    unknown: tuple[int, ...]
    others: tuple[str, ...] = ()


async def forget_replica(
    store: ZooKeeperStore,
    root: str,
    connect_string: str,
    partitions: Sequence[int],
    *,
    tls: TlsSettings | None = None,
    probe: ReplicaProbe | None = None,
) -> Forgotten:
    """Remove a node from the old quorum of partitions whose recovery is undecidable.

    All partitions are checked before the first is written, each under its version. If the node is
    unreachable, it is not waited for in each of them, but once more at the end: when it is back, all are
    checked again. A server that tries to recover meanwhile begins new sessions, which are writes too: its
    partition is then checked and written again. A partition in which the replica is well, or unknown, is left
    as it is, so that the command may be given again.

    AdminError for an unknown partition or one without metadata, UnsafeChangeError when a remaining replica
    does not answer or the one to forget is well wherever it is known, UnknownReplicaError when no partition
    knows it, LastReplicaError; nothing was changed then. PartlyForgottenError when something was.
    """
    _, params = await read_params(store, root)
    wrong = [partition for partition in partitions if not 0 <= partition < params.num_partitions]
    if wrong:
        raise AdminError(f"there is no partition {wrong[0]}: the cluster has {params.num_partitions}")
    maps = await read_maps(store, ClusterPaths(root))
    asker = probe or AdminPortProbe(
        dict(maps.admin_ports), params.cluster_key, params.num_partitions, tls or TlsSettings()
    )
    forgetting = _Forgetting(StoreMetadata(store, root), asker, connect_string)
    await forgetting.check_all(partitions)
    forgetting.raise_if_in_vain()
    try:
        for partition in sorted(forgetting.changes):
            await forgetting.carry_out(partition)
    except (AdminError, ClusterError) as error:
        if not forgetting.done:
            raise
        raise PartlyForgottenError(
            f"{error} ({connect_string} is forgotten in partitions {_listed(forgetting.done)} already)"
        ) from error
    forgetting.raise_if_in_vain()
    return forgetting.result()


class _Forgetting:
    """One run of `forget_replica`: what was found in each partition, and what must be written under which
    version."""

    def __init__(self, metadata: StoreMetadata, asker: ReplicaProbe, connect_string: str) -> None:
        self.changes: dict[int, tuple[PartitionMetadata, int]] = {}
        self.done: list[int] = []
        self.well: list[int] = []
        self.unknown: list[int] = []
        self._known = set[str]()
        self._others = set[str]()
        self._metadata = metadata
        self._asker = asker
        self._node = connect_string
        self._unreachable: NoAnswer | None = None

    async def check_all(self, partitions: Sequence[int]) -> None:
        """Check each one, for a node that is unreachable without a time limit of its own."""
        await self._check_once(partitions, remember=True)
        if self._unreachable is not None and len(partitions) > 1:
            self._unreachable = None
            if not _is_unreachable(await self._asker.ask(self._node, partitions[-1])):
                await self._check_once(partitions, remember=False)
        self._unreachable = None

    async def _check_once(self, partitions: Sequence[int], *, remember: bool) -> None:
        for found in (self.changes, self.well, self.unknown, self._known, self._others):
            found.clear()
        for partition in partitions:
            await self.check(partition, remember=remember)

    async def check(self, partition: int, *, remember: bool = False) -> None:
        """Read, ask everybody, and note what must be done; `remember` that the node is unreachable."""
        current, version = await self._metadata.read_partition(partition)
        if current is None:
            raise AdminError(f"partition {partition} has no metadata: nothing can be forgotten")
        if self._node not in current.replicas:
            self._known |= set(current.replicas)
            self.unknown.append(partition)
            return
        changed = without_replica(current, self._node)
        answer = self._unreachable or await self._asker.ask(self._node, partition)
        if remember and _is_unreachable(answer):
            self._unreachable = answer
        if not why_not_intact(current.replicas[self._node], answer):
            self.well.append(partition)
            return
        answers = {name: await self._asker.ask(name, partition) for name in changed.replicas}
        silent = sorted(
            name
            for name, answer in answers.items()
            if not isinstance(answer, ReplicaAnswer) or answer.holds_low_water_mark is None
        )
        if silent:
            raise UnsafeChangeError(
                f"partition {partition}: {', '.join(silent)} does not answer; bring it back before "
                f"{self._node} is given up, or more may be lost than that (if its disk is lost too, start it on an empty one "
                "and run `waltz storage sync-partitions`)"
            )
        self._others |= {
            name for name, state in changed.replicas.items() if why_not_intact(state, answers[name])
        }
        self.changes[partition] = changed, version

    def raise_if_in_vain(self) -> None:
        """UnsafeChangeError, UnknownReplicaError when there was and is nothing to be written."""
        if self.changes or self.done:
            return
        if self.well:
            raise UnsafeChangeError(
                f"{self._node} answers and holds what it should in partitions {_listed(self.well)}: there is no reason "
                "to give it up; `waltz doctor` reports what is wrong, and a node that must be given up all the same has to be stopped first"
            )
        if self.unknown:
            raise UnknownReplicaError(_unknown_replica(self._node, self._known))

    async def carry_out(self, partition: int) -> None:
        """Write; when the metadata was changed meanwhile, check and write again."""
        for attempt in range(_ATTEMPTS):
            if partition not in self.changes:  # well or unknown by now
                return
            changed, version = self.changes.pop(partition)
            try:
                await self._metadata.write_partition(partition, changed, version)
            except VersionConflictError as error:
                if attempt + 1 == _ATTEMPTS:
                    raise AdminError(
                        f"partition {partition}: its server writes the metadata faster than it can be checked; try again"
                    ) from error
                await self.check(partition)
            else:
                self.done.append(partition)
                return

    def result(self) -> Forgotten:
        """What came of it."""
        return Forgotten(tuple(self.done), tuple(self.well), tuple(self.unknown), tuple(sorted(self._others)))


def _is_unreachable(answer: Answer) -> TypeGuard[NoAnswer]:
    return isinstance(answer, NoAnswer) and answer.unreachable


def _listed(partitions: Sequence[int]) -> str:
    return ",".join(map(str, partitions))
