"""Talking to storage nodes over their admin ports (docs/protocol.md, *Admin port of storage nodes*)."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from waltz_admin.copies import NodePartition
from waltz_admin.disks import NodeDisk
from waltz_admin.dry_run import DryRunStore
from waltz_admin.errors import (
    AdminError,
    OpenRefusedError,
    RefusedError,
    StorageNodeError,
    TurnedAwayError,
    UnreachableError,
    UnsafeChangeError,
    no_connection,
)
from waltz_admin.lock import AdminLock
from waltz_admin.node_state import NodeState, read_state
from waltz_admin.safety import AdminPortProbe, check_no_later, check_removal, shows_record
from waltz_admin.same_node import check_distinct
from waltz_admin.tree import admin_endpoint, parse_connect_string, read_maps
from waltz_cluster.cluster_params import read_params
from waltz_cluster.partition_metadata import StoreMetadata
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.replica_rules import why_still_needed
from waltz_cluster.serializers import StoreParams
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.storage_connection import StorageAdminConnection, StorageConnection
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.errors import RequestFailedError, WaltzProtocolError
from waltz_protocol.types import Endpoint, PartitionId, ShownCertificate


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node: its partitions, or why it could not be asked."""

    admin: Endpoint
    partitions: tuple[NodePartition, ...] = ()
    error: str | None = None
    disk: NodeDisk | None = None
    """None: it did not answer, or is of release 0.13.2."""
    refused: bool = False
    """It answered, and refused the connection (`OpenRefusedError`)."""
    turned_away: bool = False
    """It is there, and no connection could be made (`TurnedAwayError`)."""
    node: str = ""
    """Its name in ZooKeeper, of which `admin` is made; empty where the admin port alone was given."""


@dataclass(frozen=True, slots=True)
class NodeInspection:
    """A complete answer of one node. Sizes in bytes; None where the node does not report it (release 0.13.2).

    `holds_mark`: partitions whose record at the low-water mark the node produced (or whose mark is -1).
    `out_of_service`: partitions that are switched on and do not serve all the same (damage, a failed disk).
    """

    partitions: tuple[NodePartition, ...]
    holds_mark: frozenset[int]
    out_of_service: frozenset[int]
    disk_size_bytes: int | None = None
    disk_free_bytes: int | None = None
    log_bytes: Mapping[int, int] = field(default_factory=dict)
    """Partition → size of its files, as far as the node reports it."""
    certificate: ShownCertificate | None = None
    """The one that the node uses; None without TLS."""


@dataclass(slots=True)
class SyncReport:
    """What `sync_partitions` did, per connect string."""

    assigned: dict[str, tuple[PartitionId, ...]] = field(default_factory=dict)
    unassigned: dict[str, tuple[PartitionId, ...]] = field(default_factory=dict)
    surplus: dict[str, tuple[PartitionId, ...]] = field(default_factory=dict)
    """Partitions a node has beyond its assignment that were left alone, because removing was not asked for or
    their last session may still need the copy."""
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return not self.failed


_HUNG_UP = "the peer closed the connection"


async def open_admin(
    endpoint: Endpoint, params: StoreParams, tls: TlsSettings, *, reports: bool = False
) -> StorageAdminConnection:
    """A connection to an admin port, which the caller closes; UnreachableError and its kinds. `reports`:
    see `StorageAdminConnection.open`."""
    context = client_context(tls)
    try:
        return await StorageAdminConnection.open(
            endpoint,
            cluster_key=params.cluster_key,
            num_partitions=params.num_partitions,
            tls=context,
            reports=reports,
        )
    except RequestFailedError as error:
        raise OpenRefusedError(f"storage node {endpoint}: {error}") from error
    except (WaltzProtocolError, OSError) as error:
        reason = str(error).replace(f"cannot connect to {endpoint}: ", "cannot connect: ")
        if reason.endswith(_HUNG_UP):  # as a storage port does
            reason += ": is this the admin port?"
        raise no_connection(f"storage node {endpoint}: {reason}", error) from error


@asynccontextmanager
async def admin_connection(
    endpoint: Endpoint, params: StoreParams, tls: TlsSettings, *, reports: bool = False
) -> AsyncIterator[StorageAdminConnection]:
    """An open admin port; UnreachableError for everything that goes wrong with it, RefusedError where the
    node refuses a request."""
    connection = await open_admin(endpoint, params, tls, reports=reports)
    try:
        yield connection
    except RequestFailedError as error:
        raise RefusedError(f"storage node {endpoint}: {error}") from error
    except (WaltzProtocolError, OSError) as error:
        raise UnreachableError(f"storage node {endpoint}: {error}") from error
    finally:
        connection.close()


async def list_nodes(
    store: ZooKeeperStore,
    root: str,
    tls: TlsSettings,
    *,
    admin: Endpoint | None = None,
    timeout_seconds: float | None = None,
) -> list[NodeStatus]:
    """The partitions of one node, or of all nodes of the cluster; a node that does not answer (within
    `timeout_seconds`; without it within the limits of a connection) has an `error`."""
    _, params = await read_params(store, root)
    if admin is not None:
        return [await _status(admin, params, tls, timeout_seconds)]
    maps = await read_maps(store, ClusterPaths(root))

    async def known(node: str, port: int) -> NodeStatus:
        try:
            endpoint = admin_endpoint(node, port)
        except StorageNodeError as error:
            return NodeStatus(Endpoint(node, port), error=str(error), node=node)
        return replace(await _status(endpoint, params, tls, timeout_seconds), node=node)

    return list(await asyncio.gather(*(known(*one) for one in sorted(maps.admin_ports.items()))))


async def _status(
    endpoint: Endpoint, params: StoreParams, tls: TlsSettings, timeout_seconds: float | None
) -> NodeStatus:
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            admin_connection(endpoint, params, tls, reports=True) as connection,
        ):
            state = await read_state(connection)
            return NodeStatus(endpoint, state.partitions, disk=state.disk)
    except AdminError as error:
        return failed_status(endpoint, error)
    except TimeoutError:
        return NodeStatus(
            endpoint, error=f"storage node {endpoint}: no answer within {timeout_seconds or 0:g} s"
        )


def failed_status(endpoint: Endpoint, error: AdminError) -> NodeStatus:
    """Of a node that could not be asked."""
    return NodeStatus(
        endpoint,
        error=str(error),
        refused=isinstance(error, OpenRefusedError),
        turned_away=isinstance(error, TurnedAwayError),
    )


RECORDS_AT_ONCE = 32
"""Requests for a record that are in flight on one connection."""


async def inspect_node(endpoint: Endpoint, params: StoreParams, tls: TlsSettings) -> NodeInspection:
    """Everything a node reports about itself, over one connection; UnreachableError or AdminError when any
    part of it is missing."""
    async with admin_connection(endpoint, params, tls, reports=True) as connection:
        state = await read_state(connection)
        certificate = connection.certificate
        holds = await _holding_mark(connection, state.partitions, state.held)
    return inspection_of(state, holds, certificate)


def inspection_of(
    state: NodeState, holds_mark: Collection[PartitionId], certificate: ShownCertificate | None
) -> NodeInspection:
    """All that a node has answered as one value. Pure."""
    broken = {
        p.partition_id for p in state.partitions if p.available and not state.held.get(p.partition_id, True)
    }
    return NodeInspection(
        state.partitions,
        frozenset(holds_mark),
        frozenset(broken),
        None if state.disk is None else state.disk.size_bytes,
        None if state.disk is None else state.disk.free_bytes,
        {int(p.partition_id): p.log_bytes for p in state.partitions if p.log_bytes is not None},
        certificate,
    )


async def _holding_mark(
    connection: StorageAdminConnection, partitions: Iterable[NodePartition], status: Mapping[int, bool]
) -> set[PartitionId]:
    """The partitions whose record at the low-water mark the node shows, or that have no mark. Many are asked
    for at the same time: a node with thousands of partitions answers within a few round trips."""
    holds = {p.partition_id for p in partitions if p.low_water_mark < 0}
    asked = [p for p in partitions if p.low_water_mark >= 0 and p.partition_id in status]
    for start in range(0, len(asked), RECORDS_AT_ONCE):
        some = asked[start : start + RECORDS_AT_ONCE]
        shown = await asyncio.gather(
            *(shows_record(connection, p.partition_id, p.low_water_mark) for p in some)
        )
        holds.update(p.partition_id for p, one in zip(some, shown, strict=True) if one)
    return holds


def chosen_ids(partitions: Iterable[int], params: StoreParams) -> list[int]:
    """Checked here, because a 0.13.2 node answers a wrong id by closing the connection."""
    chosen = sorted(set(partitions))
    for partition_id in chosen:
        if not 0 <= partition_id < params.num_partitions:
            raise AdminError(f"there is no partition {partition_id}: the cluster has {params.num_partitions}")
    return chosen


async def check_partitions(store: ZooKeeperStore, root: str, partitions: Iterable[int]) -> None:
    """AdminError unless the cluster has these partitions."""
    _, params = await read_params(store, root)
    chosen_ids(partitions, params)


async def set_assignment(
    store: ZooKeeperStore,
    root: str,
    admin: Endpoint,
    partitions: Iterable[int],
    assigned: bool,
    *,
    tls: TlsSettings,
    delete_files: bool = False,
) -> None:
    """Assign these partitions to a node, or remove them from it. Un-assigning resets their marks;
    `delete_files` deletes the data too, whoever needs them (`delete_copies` asks first), also what a
    deletion left that did not come to its end. Without it partitions that the node does not have are skipped
    when un-assigning."""
    _, params = await read_params(store, root)
    chosen = chosen_ids(partitions, params)
    async with admin_connection(admin, params, tls) as connection:
        if not assigned and not delete_files:
            held = await connection.partition_status()
            chosen = [partition_id for partition_id in chosen if partition_id in held]
        if chosen:
            await connection.assign(chosen, assigned, delete_files=delete_files)


async def set_availability(
    store: ZooKeeperStore,
    root: str,
    admin: Endpoint,
    partitions: Iterable[int],
    available: bool,
    *,
    tls: TlsSettings,
) -> None:
    """Switch the available flag of these partitions on a node."""
    _, params = await read_params(store, root)
    chosen = chosen_ids(partitions, params)
    async with admin_connection(admin, params, tls) as connection:
        await connection.set_available(chosen, available)


async def remove_replica(
    store: ZooKeeperStore,
    root: str,
    connect_string: str,
    partition_id: int,
    *,
    tls: TlsSettings,
    delete_files: bool,
    admin: Endpoint | None = None,
    lock_wait_seconds: float = 60.0,
    dry_run: bool = False,
) -> bool:
    """Take a partition off a node of which it is proven, now, that its copy is not needed
    (`safety.check_removal`), and that itself knows no later session than ZooKeeper (rule A8). False: the node
    does not have it. UnsafeChangeError without the proof, and where the node is one of those that the
    partition is assigned to, under another name.

    `admin`: where the node is, if it is no longer registered. The admin lock is held, so nobody assigns
    meanwhile; taking it is a write, so what is read after it is not older than that. `dry_run`: the same
    answer, and neither ZooKeeper nor the node is changed.
    """
    _, params = await read_params(store, root)
    chosen_ids([partition_id], params)
    paths = ClusterPaths(root)
    if dry_run:
        store = DryRunStore(store)
    async with AdminLock(store, paths, wait_seconds=lock_wait_seconds) as lock:
        maps = await read_maps(store, paths)
        probe = AdminPortProbe(dict(maps.admin_ports), params.cluster_key, params.num_partitions, tls)
        holders = [node for node, held in maps.partitions.items() if partition_id in held]
        metadata = StoreMetadata(store, root)
        if admin is None:
            if connect_string not in maps.admin_ports:
                raise AdminError(f"the admin port of {connect_string} is not known")
            admin = admin_endpoint(connect_string, maps.admin_ports[connect_string])
        async with admin_connection(admin, params, tls) as connection:
            probe.distinguish(connect_string, connection)
            session_id = await check_removal(metadata, probe, partition_id, connect_string, holders)
            if partition_id not in await connection.partition_status():
                return False
            await check_no_later(connection, connect_string, partition_id, session_id)
            lock.check()
            if not dry_run:
                await connection.assign([partition_id], False, delete_files=delete_files)
            return True


async def sync_partitions(
    store: ZooKeeperStore,
    root: str,
    *,
    tls: TlsSettings,
    remove_surplus: bool = False,
    dry_run: bool = False,
) -> SyncReport:
    """Make every node have the partitions `store/assignment` gives it; continues when a node cannot be
    reached.

    What a node has beyond that is only reported, unless `remove_surplus`; and also then it is kept while
    the last store session of the partition may still need that copy. Files always stay. Running it again
    completes it. `dry_run`: the same report, and no node is changed. StorageNodeError where something would
    be removed and two names are those of one node: it would lose under one what it has under the other.
    """
    _, params = await read_params(store, root)
    maps = await read_maps(store, ClusterPaths(root))
    if remove_surplus:
        await check_distinct(maps, params, tls)
    metadata = StoreMetadata(store, root)
    report = SyncReport()

    def holders(partition_id: int) -> list[str]:
        return [node for node, held in maps.partitions.items() if partition_id in held]

    async def one(node: str, wanted: tuple[PartitionId, ...]) -> None:
        port = maps.admin_ports.get(node)
        if port is None:
            report.failed[node] = "its admin port is not known"
            return
        try:
            async with admin_connection(admin_endpoint(node, port), params, tls) as connection:
                held = await connection.partition_status()
                missing = tuple(p for p in wanted if p not in held)
                if missing:
                    if not dry_run:
                        await connection.assign(list(missing), True)
                    report.assigned[node] = missing
                surplus = tuple(PartitionId(p) for p in sorted(held) if p not in wanted)
                removable = tuple(
                    [
                        p
                        for p in surplus
                        if remove_surplus and await _not_needed(metadata, p, node, holders(p), connection)
                    ]
                )
                if removable:
                    if not dry_run:
                        await connection.assign(list(removable), False)
                    report.unassigned[node] = removable
                if kept := tuple(p for p in surplus if p not in removable):
                    report.surplus[node] = kept
        except AdminError as error:
            report.failed[node] = str(error)

    await asyncio.gather(*(one(node, wanted) for node, wanted in sorted(maps.partitions.items())))
    return report


async def _not_needed(
    metadata: StoreMetadata,
    partition_id: int,
    node: str,
    assigned: Collection[str],
    connection: StorageAdminConnection,
) -> bool:
    """Whether ZooKeeper needs the copy on this node no longer (or knows that no session of the partition ever
    ran), and the node itself knows no later one: then ZooKeeper is an older copy (rule A8), and this may be
    the replica that reports it."""
    session_id = -1
    if not await metadata.never_started(partition_id):
        state, _ = await metadata.read_partition(partition_id)
        if state is None or why_still_needed(state, node, assigned) is not None:
            return False
        session_id = state.session_id
    try:
        await check_no_later(connection, node, partition_id, session_id)
    except UnsafeChangeError:
        return False
    return True


async def validate(store: ZooKeeperStore, root: str, *, tls: TlsSettings) -> dict[str, str | None]:
    """Open the storage port and the admin port of every node; what went wrong per port, None = fine. A name
    that is no host:port is in the place of its ports."""
    _, params = await read_params(store, root)
    maps = await read_maps(store, ClusterPaths(root))
    context = client_context(tls)

    async def storage(endpoint: Endpoint) -> str | None:
        try:
            connection = await StorageConnection.open(
                endpoint, cluster_key=params.cluster_key, num_partitions=params.num_partitions, tls=context
            )
        except (WaltzProtocolError, OSError) as error:
            return str(error)
        connection.close()
        return None

    async def admin(endpoint: Endpoint) -> str | None:
        try:
            async with admin_connection(endpoint, params, tls):
                return None
        except UnreachableError as error:
            return str(error)

    found: dict[str, str | None] = {}
    storage_ports: list[Endpoint] = []
    admin_ports: list[Endpoint] = []
    for node in maps.names:
        try:
            own = admin_endpoint(node, maps.admin_ports.get(node, 0))
        except StorageNodeError as error:
            found[node] = str(error)
            continue
        storage_ports += [parse_connect_string(node)] if node in maps.groups else []
        admin_ports += [own] if own.port else []
    answers = await asyncio.gather(*map(storage, storage_ports), *map(admin, admin_ports))
    return found | dict(zip(map(str, [*storage_ports, *admin_ports]), answers, strict=True))


async def max_transaction_id(
    store: ZooKeeperStore,
    root: str,
    admin: Endpoint,
    storage_port: int,
    partition_id: int,
    *,
    tls: TlsSettings,
    offline: bool = False,
) -> int:
    """The highest transaction id a node holds (uncommitted ones included), asked with its own persisted
    session.

    `offline` is needed when the partition is unavailable there, and forbidden when it is available.
    """
    _, params = await read_params(store, root)
    chosen_ids([partition_id], params)
    async with admin_connection(admin, params, tls) as admin_port:
        info = await admin_port.last_session_info(partition_id)
        data = await StorageConnection.open(
            Endpoint(admin.host, storage_port),
            cluster_key=params.cluster_key,
            num_partitions=params.num_partitions,
            tls=client_context(tls),
        )
        try:
            return await data.max_transaction_id(info.session_id, partition_id, offline=offline)
        finally:
            data.close()
