"""Replacing a storage node by another one, as one action that can be run again after any interruption.

Nothing is remembered between runs: what has been done is seen in ZooKeeper and on the nodes, and what is left
is done in the order of the procedure, a few partitions at a time:

1. the new node becomes known, in the group of the old one, and is informed of its partitions;
2. what the others hold up to their local low-water mark is copied to it past the servers (`offline_copy`);
3. the new node is added to the replicas, and everything waits until every replica, the new one included,
   takes part in the present store session of each partition;
4. the old node is taken away from the replicas, and the same is waited for; the old node is informed;
5. what the old node still has is removed from it, one partition after the other and each after the proof
   that nobody needs the copy (`remove_replica`), also what was not assigned to it before; when it has no
   partitions left it is forgotten. What has no proof is kept, and the node with it.

Where the old node does not answer, or its replica does not take part, 3 and 4 are one change: waiting for it
would never end. Before every change the proof of safety rule A6 is made anew, for every partition
(`assignments`); without it the action ends with UnsafeChangeError and everything done so far is good and
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from waltz_admin import assignments, nodes
from waltz_admin.errors import (
    AssignmentError,
    OfflineCopyError,
    RefusedError,
    StorageNodeError,
    UnreachableError,
    UnsafeChangeError,
)
from waltz_admin.offline_copy import DEFAULT_BATCH_SIZE, recover_partition
from waltz_admin.safety import AdminPortProbe, ReplicaProbe, check_change
from waltz_admin.same_node import check_new_node
from waltz_admin.storage_admin import admin_connection, remove_replica, set_assignment, set_availability
from waltz_admin.tree import NodeMaps, admin_endpoint, parse_connect_string, read_maps
from waltz_admin.waiting import wait_complete
from waltz_cluster.cluster_params import read_params
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.replica_rules import why_not_current, why_not_listed
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings


class ReplaceOptions(NamedTuple):
    """How it is done. `group` None = that of the old node; `timeout_seconds` bounds every single wait.

    `drop_group_copy`: also where the new node holds a copy for another group already, so that each of these
    partitions has one replica less afterwards.
    """

    group: int | None = None
    at_once: int = 16
    copy: bool = True
    batch_size: int = DEFAULT_BATCH_SIZE
    allow_pause: bool = False
    delete_files: bool = False
    drop_group_copy: bool = False
    timeout_seconds: float = 3600.0


class ReplaceEvent(NamedTuple):
    """What is in progress: `done` of `total` partitions have moved, and `text` is under way."""

    text: str
    done: int
    total: int


class ReplaceResult(NamedTuple):
    """Partitions moved by this run, records copied past the servers, and what was left undone on the old
    node.

    `left`: why the old node was not asked to remove its partitions. `kept`: the partitions that it keeps, and
    why; then it is still a storage node of the cluster, and another run completes it.
    """

    moved: tuple[int, ...]
    copied: int
    left: str | None
    kept: Mapping[int, str] = MappingProxyType({})


Report = Callable[[ReplaceEvent], None]


def _silent(event: ReplaceEvent) -> None:
    """The default: reports nothing."""


class NodeReplacement:
    """One run. See the module for the order."""

    def __init__(
        self,
        store: ZooKeeperStore,
        root: str,
        old: str,
        new: str,
        new_admin_port: int,
        *,
        tls: TlsSettings,
        options: ReplaceOptions = ReplaceOptions(),  # noqa: B008 - immutable
        report: Report = _silent,
    ) -> None:
        self._store, self._root, self._old, self._new = store, root, old, new
        self._new_admin = admin_endpoint(new, new_admin_port)
        self._tls, self._options, self._report = tls, options, report
        self._metadata = StoreMetadata(store, root)
        self._done: list[int] = []
        self._total = 0
        self._copied = 0
        self.old_is_known = True
        """False once a plan or a run found that the old node is no storage node of the cluster: an earlier
        run has replaced it, or the name is wrong."""

    async def plan(self) -> list[str]:
        """What a run would do now, one line per step; the refusals of a run as errors. It changes nothing."""
        params, maps = await self._start()
        absent, off = await self._left_undone(params, maps)
        lines = [f"add partitions {','.join(map(str, absent))} to {self._new} again"] if absent else []
        if off:
            lines.append(f"put partitions {','.join(map(str, off))} of {self._new} into service")
        if self._old not in maps.partitions:
            return lines
        moving = maps.partitions[self._old]
        if self._new not in maps.partitions:
            lines.append(f"add {self._new} to group {self._group(maps)}")
        for chunk in self._chunks(moving):
            names = ",".join(map(str, chunk))
            missing = [p for p in chunk if p not in maps.partitions.get(self._new, ())]
            if missing and self._options.copy:
                lines.append(f"copy partitions {','.join(map(str, missing))} to {self._new}")
            alive = await self._old_takes_part(params, maps, chunk)
            for partition in chunk:
                replicas = assignments.replicas(maps.partitions, partition)
                added = (*replicas, self._new) if self._new not in replicas else replicas
                final = tuple(node for node in added if node != self._old)
                await check_change(
                    self._metadata,
                    self._probe(params, maps),
                    partition,
                    replicas,
                    added if alive else final,
                    allow_pause=self._options.allow_pause,
                )
            if alive:
                to_add = [p for p in chunk if self._new not in assignments.replicas(maps.partitions, p)]
                if to_add:
                    new_names = ",".join(map(str, to_add))
                    lines.append(f"add {self._new} to the replicas of {new_names}, wait until it takes part")
                lines.append(
                    f"remove {self._old} from the replicas of {names}, wait until it is no longer one of them"
                )
            else:
                lines.append(
                    f"replace {self._old}, which takes no part, with {self._new} in the replicas of {names}"
                )
        return [*lines, *await self._plan_cleaning(params, maps)]

    async def _plan_cleaning(self, params: StoreParams, maps: NodeMaps) -> list[str]:
        """The steps on the old node, with the partitions that it has and ZooKeeper does not assign to it."""
        files = "and delete their files" if self._options.delete_files else "their files are kept"
        lines = [f"remove the partitions from {self._old}, {files}"]
        held = await self._held_or_why_not(params, maps)
        others = [] if isinstance(held, str) else [p for p in held if p not in maps.partitions[self._old]]
        kept = await self._remove_all(others, dry_run=True)
        if surplus := [partition for partition in others if partition not in kept]:
            names = ",".join(map(str, surplus))
            lines.append(
                f"remove partitions {names}, which are not assigned to it, from {self._old}, {files}"
            )
        lines += [f"keep partition {p} on {self._old}: {why}" for p, why in kept.items()]
        if kept:
            return [*lines, f"keep {self._old} as a storage node, because of what it keeps"]
        return [*lines, f"forget {self._old}"]

    async def run(self) -> ReplaceResult:
        """Do it, or what is left of it. AdminError: what has been done so far is good, run it again."""
        params, maps = await self._start()
        absent, off = await self._left_undone(params, maps)
        if absent:
            await set_assignment(self._store, self._root, self._new_admin, absent, True, tls=self._tls)
        await self._bring_up(params, maps, off, in_service=False)
        if self._old not in maps.partitions:
            return ReplaceResult((), self._copied, None)  # an earlier run has finished
        await nodes.add_storage_node(
            self._store, self._root, self._new, self._new_admin.port, self._group(maps)
        )
        self._total = len(maps.partitions[self._old])
        while left := (maps := await self._maps()).partitions.get(self._old, ()):
            chunk = left[: self._options.at_once]
            await self._fill(params, maps, chunk)
            await self._exchange(params, chunk)
            self._done += chunk
        if self._old not in maps.partitions:
            return ReplaceResult(tuple(self._done), self._copied, None)  # another administrator has finished
        undone, kept = await self._clean(params, maps)
        if kept:
            return ReplaceResult(tuple(self._done), self._copied, undone, kept)
        self._say(f"forgetting {self._old}")
        await nodes.remove_storage_node(self._store, self._root, self._old)
        return ReplaceResult(tuple(self._done), self._copied, undone)

    # -- steps -----------------------------------------------------------------------------------------------

    async def _start(self) -> tuple[StoreParams, NodeMaps]:
        if self._old == self._new:
            raise StorageNodeError(f"{self._old} cannot be replaced with itself")
        parse_connect_string(self._old)
        _, params = await read_params(self._store, self._root)
        maps = await self._maps()
        if self._old not in maps.partitions and self._new not in maps.partitions:
            raise StorageNodeError(f"{self._old} is not a storage node of the cluster at {self._root}")
        self.old_is_known = self._old in maps.partitions
        group = self._group(maps) if self.old_is_known else maps.groups.get(self._new, 0)
        nodes.check_entry(maps, self._new, self._new_admin.port, group)
        self._check_drops_no_copy(maps)
        await check_new_node(self._store, self._root, self._tls, self._new, self._new_admin.port)
        async with admin_connection(self._new_admin, params, self._tls):
            return params, maps

    def _check_drops_no_copy(self, maps: NodeMaps) -> None:
        """AssignmentError where the partitions would have one replica less. Within one group both nodes may
        hold a partition: an interrupted run leaves it so."""
        held = maps.partitions.get(self._new, ())
        shared = [p for p in maps.partitions.get(self._old, ()) if p in held]
        old_group, new_group = maps.groups.get(self._old), maps.groups.get(self._new)
        if shared and old_group != new_group and not self._options.drop_group_copy:
            raise AssignmentError(
                f"{self._new} of group {new_group} holds partitions {','.join(map(str, shared))} already, of which "
                f"{self._old} has the copy of group {old_group}: they would have one replica less. Pass another "
                "node, or --drop-group-copy (in the library drop_group_copy=True) if that is meant, or if an "
                "interrupted run of this command has put them there"
            )

    async def _left_undone(self, params: StoreParams, maps: NodeMaps) -> tuple[list[int], list[int]]:
        """What is assigned to the new node, so no longer missing, and takes no part.

        It does not have the first ones: between its filling and their assignment somebody else's
        `sync-partitions` took them away. It has the others out of service: an interrupted run was copying
        while another administrator's run assigned them.
        """
        async with admin_connection(self._new_admin, params, self._tls) as connection:
            status = await connection.partition_status()
        assigned = maps.partitions.get(self._new, ())
        return [p for p in assigned if p not in status], [p for p in assigned if status.get(p) is False]

    async def _fill(self, params: StoreParams, maps: NodeMaps, chunk: Sequence[int]) -> None:
        """The new node has the partitions and, if they are to be copied, what the others have of them."""
        missing = [p for p in chunk if p not in maps.partitions.get(self._new, ())]
        if not missing:
            return
        await set_assignment(self._store, self._root, self._new_admin, missing, True, tls=self._tls)
        await self._bring_up(params, maps, missing, in_service=True)

    async def _bring_up(
        self, params: StoreParams, maps: NodeMaps, partitions: Sequence[int], *, in_service: bool
    ) -> None:
        """Copied if they are to be, each switched on as soon as it is. `in_service`: they are, and nobody
        needs them yet; others that are meanwhile refuse the copy and stay so."""
        for partition in partitions:
            if self._options.copy and not await self._metadata.never_started(partition):
                if in_service:
                    await self._switch(partition, False)
                await self._copy(params, maps, partition)
            await self._switch(partition, True)

    async def _switch(self, partition: int, available: bool) -> None:
        await set_availability(
            self._store, self._root, self._new_admin, [partition], available, tls=self._tls
        )

    async def _copy(self, params: StoreParams, maps: NodeMaps, partition: int) -> None:
        """From the first replica that can; where none can, the servers catch the new one up."""
        sources = [n for n in assignments.replicas(maps.partitions, partition) if n != self._new]
        for source in sorted(sources, key=lambda node: (node == self._old, node)):
            if source not in maps.admin_ports:
                continue
            try:
                copied = await recover_partition(
                    self._store,
                    self._root,
                    source_admin=admin_endpoint(source, maps.admin_ports[source]),
                    destination_admin=self._new_admin,
                    destination_storage_port=parse_connect_string(self._new).port,
                    partition_id=partition,
                    batch_size=self._options.batch_size,
                    source_tls=self._tls,
                    destination_tls=self._tls,
                    progress=lambda p: self._say(
                        f"copying partition {partition}: {p.current + 1:,} of {p.target + 1:,}"
                    ),
                )
            except (UnreachableError, OfflineCopyError) as error:
                self._say(f"partition {partition} cannot be copied from {source}: {error}")
                continue
            self._copied += copied.copied
            break

    async def _exchange(self, params: StoreParams, chunk: Sequence[int]) -> None:
        names = ",".join(map(str, chunk))
        maps = await self._maps()
        if await self._old_takes_part(params, maps, chunk):
            self._say(f"adding {self._new} to the replicas of {names}")
            await assignments.assign(
                self._store,
                self._root,
                chunk,
                self._new,
                tls=self._tls,
                allow_pause=self._options.allow_pause,
            )
            await self._complete(chunk)
            self._say(f"removing {self._old} from the replicas of {names}")
            await assignments.unassign(
                self._store, self._root, chunk, self._old, tls=self._tls, keep_group_copy=False
            )
        else:
            self._say(
                f"replacing {self._old}, which takes no part, with {self._new} in the replicas of {names}"
            )
            await assignments.change_assignments(
                self._store,
                self._root,
                expect_version=maps.versions[1],
                add={self._new: chunk},
                remove={self._old: chunk},
                tls=self._tls,
                allow_pause=self._options.allow_pause,
            )
        await self._complete(chunk)

    async def _complete(self, chunk: Sequence[int]) -> None:
        """Wait until every replica of these partitions takes part."""
        await wait_complete(
            self._store,
            self._root,
            chunk,
            tls=self._tls,
            timeout_seconds=self._options.timeout_seconds,
            report=self._say,
        )

    async def _clean(self, params: StoreParams, maps: NodeMaps) -> tuple[str | None, dict[int, str]]:
        """Remove from the old node what nobody needs; why not, when it cannot be reached, and what it keeps,
        each with the reason. RefusedError: it is there, and does not list its partitions."""
        held = await self._held_or_why_not(params, maps)
        if isinstance(held, str):
            return held, {}
        return None, await self._remove_all(held)

    async def _remove_all(self, partitions: Sequence[int], *, dry_run: bool = False) -> dict[int, str]:
        """Remove these from the old node, which has them; what it keeps, each with the reason."""
        kept: dict[int, str] = {}
        for number, partition in enumerate(partitions):
            if not dry_run:
                self._say(f"removing partition {partition} from {self._old}")
            try:
                why = await self._remove(partition, dry_run=dry_run)
            except RefusedError as error:
                why = str(error)
            except UnreachableError as error:  # it was there: what it may still have is not forgotten
                return kept | dict.fromkeys(partitions[number:], str(error))
            if why is not None:
                kept[partition] = why
        return kept

    async def _remove(self, partition: int, *, dry_run: bool) -> str | None:
        """Remove it from the old node, if it is proven that nobody needs the copy; else why not."""
        try:
            await remove_replica(
                self._store,
                self._root,
                self._old,
                partition,
                tls=self._tls,
                delete_files=self._options.delete_files,
                dry_run=dry_run,
            )
        except UnsafeChangeError as error:
            return str(error).removeprefix(f"partition {partition}: ")
        return None

    async def _held_or_why_not(self, params: StoreParams, maps: NodeMaps) -> list[int] | str:
        """The partitions that the old node has, whoever they are assigned to, or why it cannot be asked;
        RefusedError when it is there and does not list them."""
        if self._old not in maps.admin_ports:
            return "its admin port is not known"
        admin = admin_endpoint(self._old, maps.admin_ports[self._old])
        try:
            async with admin_connection(admin, params, self._tls) as connection:
                return sorted(await connection.partition_status())
        except RefusedError:
            raise
        except UnreachableError as error:
            return str(error)

    # -- questions -------------------------------------------------------------------------------------------

    async def _old_takes_part(self, params: StoreParams, maps: NodeMaps, chunk: Sequence[int]) -> bool:
        """Whether the old node is current in each of these partitions, so that it may stay while the new one
        is added."""
        probe = self._probe(params, maps)
        for partition in chunk:
            if await self._metadata.never_started(partition):
                continue
            state, _ = await self._metadata.read_partition(partition)
            if state is None or why_not_listed(state, self._old):
                return False
            if why_not_current(state, self._old, await probe.ask(self._old, partition)):
                return False
        return True

    def _probe(self, params: StoreParams, maps: NodeMaps) -> ReplicaProbe:
        return AdminPortProbe(dict(maps.admin_ports), params.cluster_key, params.num_partitions, self._tls)

    def _group(self, maps: NodeMaps) -> int:
        if self._options.group is not None:
            return self._options.group
        if self._old not in maps.groups:
            raise StorageNodeError(f"the group of {self._old} is not known: pass the group of the new node")
        return maps.groups[self._old]

    def _chunks(self, partitions: Sequence[int]) -> list[Sequence[int]]:
        size = self._options.at_once
        return [partitions[at : at + size] for at in range(0, len(partitions), size)]

    async def _maps(self) -> NodeMaps:
        return await read_maps(self._store, ClusterPaths(self._root))

    def _say(self, text: str) -> None:
        self._report(ReplaceEvent(text, len(self._done), self._total))
