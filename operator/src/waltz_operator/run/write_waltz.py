"""Actions on ZooKeeper and on storage nodes, each one call of `waltz_admin` (a copy: see `small_copy`). Used
by `apply` alone."""

from __future__ import annotations

from collections.abc import Callable

from waltz_admin.assignments import change_assignments
from waltz_admin.errors import AdminError
from waltz_admin.nodes import add_storage_node, check_unused, remove_storage_node
from waltz_admin.seeding import create_exactly, delete
from waltz_admin.storage_admin import remove_replica, set_assignment, set_availability
from waltz_admin.tree import admin_endpoint
from waltz_cluster.moving import move_partitions
from waltz_cluster.store import ZooKeeperStore
from waltz_operator.model.actions import (
    AssignInZooKeeper,
    AssignOnNode,
    CopyPartition,
    CreateTree,
    DeleteTree,
    MarkZooKeeper,
    MovePartitions,
    RegisterNode,
    RemoveOnNode,
    SetAvailability,
    UnassignInZooKeeper,
    UnregisterNode,
    WaltzAction,
)
from waltz_operator.model.snapshot import TreeView, Unknown
from waltz_operator.run.observe import Observation
from waltz_operator.run.small_copy import copy_small
from waltz_operator.run.zookeeper_access import guarded, set_mark
from waltz_operator.run.zookeeper_sessions import Ensembles
from waltz_protocol.aio.tls import TlsSettings

LOCK_WAIT_SECONDS = 5.0


class WaltzWriter:
    """Owner of nothing: sessions belong to `Ensembles`."""

    def __init__(self, ensembles: Ensembles, check: Callable[[], None]) -> None:
        """`check`: LeaseLostError when nothing may be written any longer, asked between the parts of what is
        more than one write."""
        self._ensembles = ensembles
        self._check = check

    async def carry_out(self, action: WaltzAction, observation: Observation) -> None:
        """AdminError, ClusterError: refused or failed."""
        store, root = await self._session(observation)
        if isinstance(action, MarkZooKeeper):
            await set_mark(guarded(store), action.mark, root)
            return
        if isinstance(action, MovePartitions):
            await move_partitions(store, root, action.moves, cversion=action.cversion)
            return
        if isinstance(action, CreateTree | DeleteTree | RegisterNode | UnregisterNode):
            await self._tree(action, store, root)
            return
        if observation.access.tls is None:
            raise AdminError("the operator has no certificate yet")
        if isinstance(action, CopyPartition):
            tree = observation.snapshot.tree
            if not isinstance(tree, TreeView):
                raise AdminError("the cluster's key is not known")
            await copy_small(action, tree, observation.access.tls, self._check)
        elif isinstance(action, AssignInZooKeeper | UnassignInZooKeeper):
            await self._assignments(action, store, root, observation.access.tls)
        else:
            await self._node(action, store, root, observation.access.tls)

    async def _session(self, observation: Observation) -> tuple[ZooKeeperStore, str]:
        ensemble = observation.access.ensemble
        if isinstance(ensemble, Unknown):
            raise AdminError(ensemble.reason)
        metadata = observation.snapshot.cluster.metadata
        store = await self._ensembles.store((metadata.namespace, metadata.name), ensemble)
        return store, ensemble.root

    async def _tree(
        self,
        action: CreateTree | DeleteTree | RegisterNode | UnregisterNode,
        store: ZooKeeperStore,
        root: str,
    ) -> None:
        match action:
            case CreateTree():
                await create_exactly(store, root, action.name, action.num_partitions, action.cluster_key)
            case DeleteTree():
                await delete(store, root, action.name, cluster_key=action.cluster_key)
            case RegisterNode():
                await add_storage_node(
                    store,
                    root,
                    action.node,
                    action.admin_port,
                    action.group,
                    lock_wait_seconds=LOCK_WAIT_SECONDS,
                )
            case UnregisterNode():
                await remove_storage_node(store, root, action.node, lock_wait_seconds=LOCK_WAIT_SECONDS)

    async def _assignments(
        self,
        action: AssignInZooKeeper | UnassignInZooKeeper,
        store: ZooKeeperStore,
        root: str,
        tls: TlsSettings,
    ) -> None:
        await change_assignments(
            store,
            root,
            expect_version=action.expect_version,
            add=action.additions if isinstance(action, AssignInZooKeeper) else None,
            remove={action.node: (action.partition,)} if isinstance(action, UnassignInZooKeeper) else None,
            tls=tls,
            allow_pause=isinstance(action, AssignInZooKeeper) and action.allow_pause,
            lock_wait_seconds=LOCK_WAIT_SECONDS,
        )

    async def _node(
        self,
        action: AssignOnNode | SetAvailability | RemoveOnNode,
        store: ZooKeeperStore,
        root: str,
        tls: TlsSettings,
    ) -> None:
        admin = admin_endpoint(action.node, action.admin_port)
        match action:
            case AssignOnNode():
                await set_assignment(store, root, admin, action.partitions, True, tls=tls)
            case SetAvailability():
                await set_availability(store, root, admin, [action.partition], action.online, tls=tls)
            case RemoveOnNode():
                await remove_replica(
                    store,
                    root,
                    action.node,
                    action.partition,
                    tls=tls,
                    delete_files=action.delete_files,
                    admin=admin,
                    lock_wait_seconds=LOCK_WAIT_SECONDS,
                )

    async def prove_unused(self, connect_string: str, observation: Observation) -> None:
        """StorageNodeError and the like unless ZooKeeper proves, now, that nothing on this storage node is
        needed."""
        store, root = await self._session(observation)
        await check_unused(store, root, connect_string, lock_wait_seconds=LOCK_WAIT_SECONDS)
