"""What to do about what `waltz cluster status` shows. Pure: one next step for each kind of problem."""

from __future__ import annotations

from dataclasses import dataclass

from waltz_admin.status import ClusterStatus, PartitionStatus, Replica, StorageStatus
from waltz_cluster.quorum import said_once
from waltz_cluster.replica_rules import Standing

FEW_DAYS = 14
"""A disk that is full sooner is a finding: enough time to get another one."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding and the step that comes next."""

    finding: str
    next_step: str


def advise(status: ClusterStatus) -> list[Advice]:
    """Findings in the order in which they are best dealt with; empty for a healthy cluster."""
    found: list[Advice] = []
    if not status.servers:
        found.append(
            Advice("no server is registered in ZooKeeper", "start a server, and read its log if it ends")
        )
    found += _partitions(status)
    for node in status.nodes:
        if node.error:
            found.append(
                Advice(
                    f"storage node {node.node} does not answer: {node.error}",
                    "check that its machine is up and its process runs and is not suspended; restart it with its data",
                )
            )
        found += _disk(node)
    for server in status.servers:
        if server.unreached is None:
            found.append(
                Advice(
                    f"server {server.endpoint} is registered but does not answer",
                    "read its log; stop it if it hangs, the others take over",
                )
            )
        elif cut_off := status.cut_off(server):
            found.append(
                Advice(
                    f"server {server.endpoint} does not reach {', '.join(cut_off)}",
                    "check the network, certificates and host names between them "
                    "(`waltz cluster check-connectivity` shows all pairs)",
                )
            )
    return found + _replicas(status)


def _disk(node: StorageStatus) -> list[Advice]:
    disk = node.disk
    if disk is None:
        return []
    if disk.full:
        return [
            Advice(
                f"storage node {node.node}: its disk is full, its replicas take no appends",
                "enlarge the file system or delete what is not Waltz's: the node accepts appends again within seconds; "
                "or move partitions to a new node (`waltz storage replace`)",
            )
        ]
    days = disk.days_to_full
    if days is not None and days < FEW_DAYS:
        return [
            Advice(
                f"storage node {node.node}: its disk is full in {days:.1f} days if the log keeps growing at this rate",
                "add disk space now: the log is kept forever (`waltz storage usage` has the figures)",
            )
        ]
    return []


def _partitions(status: ClusterStatus) -> list[Advice]:
    """Partitions that take no appends; one finding for all with the same cause and the same next step."""
    steps: dict[str, dict[int, str]] = {}
    for partition in status.partitions:
        if partition.replicas and not partition.healthy:
            waits = f", it waits for {partition.waits_for}" if partition.waits_for else ""
            reasons = steps.setdefault(_unhealthy(partition), {})
            reasons[partition.partition_id] = f"{partition.problem}{waits}"
    total = len(status.partitions)
    found = [Advice(line, step) for step, reasons in steps.items() for line in said_once(reasons, total)]
    for partition in status.partitions:
        if not partition.replicas:
            number = partition.partition_id
            found.append(
                Advice(
                    f"partition {number} has no replica", f"`waltz zk assign-partition -p {number} -s NODE`"
                )
            )
    return found


def _replicas(status: ClusterStatus) -> list[Advice]:
    """One finding for all partitions of a node that are in the same state."""
    alike: dict[tuple[str, Standing], list[tuple[int, Replica]]] = {}
    for partition in status.partitions:
        for replica in partition.replicas:
            alike.setdefault((replica.node, replica.standing), []).append((partition.partition_id, replica))
    found = [_replica(node, standing, held) for (node, standing), held in alike.items()]
    return [advice for advice in found if advice is not None]


def _unhealthy(partition: PartitionStatus) -> str:
    if partition.ahead:
        number = partition.partition_id
        return (
            "restore ZooKeeper's data from a newer copy, or rebuild them from what the nodes hold: "
            f"`waltz zk accept-restored -p {number} --dry-run`, then without it; remove nothing from a node before"
        )
    lost = [r for r in partition.replicas if r.standing is Standing.SET_BACK]
    silent = [r for r in partition.replicas if r.standing in (Standing.UNREACHABLE, Standing.UNAVAILABLE)]
    if lost and silent:
        nodes = ", ".join(r.node for r in silent)
        return (
            f"bring {nodes} back with its data first; only if that is impossible "
            "`waltz storage forget --accept-data-loss`"
        )
    if silent:
        return f"bring back {', '.join(r.node for r in silent)}, with the data they have"
    if partition.server is None:
        return "start a server; partitions are assigned within the ZooKeeper session timeout"
    return "wait for the recovery; the server's /health page shows the reason"


def _replica(node: str, standing: Standing, held: list[tuple[int, Replica]]) -> Advice | None:
    partitions = ",".join(str(partition) for partition, _ in held)
    where = f"{node}, partitions {partitions}:"
    match standing:
        case Standing.UNASSIGNED:
            return Advice(
                f"{where} assigned in ZooKeeper and not on the node", "`waltz storage sync-partitions`"
            )
        case Standing.SET_BACK:
            return Advice(
                f"{where} the disk was lost, or is an older copy",
                "leave it running: it is filled again once the other replicas have decided",
            )
        case Standing.UNAVAILABLE:
            return Advice(
                f"{where} unavailable: taken offline by an administrator, a full disk, a failed sync or damage",
                f"see the node's /health page; then free disk space, `waltz storage availability -p {partitions} -o true`, or, "
                "if it is damaged, `waltz storage remove-partition --delete-storage-files` and `add-partition`",
            )
        case Standing.BEHIND:
            lag = max((replica.lag or 0 for _, replica in held), default=0)
            return Advice(
                f"{where} behind, by up to {lag:,} transactions: {held[0][1].reason}",
                "wait: it is being caught up",
            )
        case Standing.INCOMPLETE:
            return Advice(
                f"{where} takes part, but {held[0][1].reason}: it is not counted on, and the next recovery cannot use it",
                "see the node's log; if the record is damaged, `waltz storage remove-partition --delete-storage-files` and "
                "`add-partition`, while the others are current",
            )
        case Standing.NOT_STARTED:
            return Advice(f"{where} no store session yet", "start a server; the first session is opened then")
        case (
            Standing.CURRENT | Standing.UNREACHABLE | Standing.AHEAD
        ):  # nothing to do, or reported of the node or partition
            return None
