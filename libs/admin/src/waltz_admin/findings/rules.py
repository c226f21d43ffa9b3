"""The rules: what can be wrong with a cluster, and the next step for each. Each is defined here, in `access`,
in `disk` or in `fault`, and nowhere else. Pure.

`find` applies all of them to one state of a cluster. A fact that many partitions share is one finding: a dead
node under a thousand partitions is two lines, not two thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from waltz_admin.cluster_status import DISK_IS_FULL, ClusterStatus, PartitionStatus, Replica, StorageStatus
from waltz_admin.errors import StorageNodeError
from waltz_admin.findings.access import (
    ASSIGNMENT_STALE,
    NOT_LET_IN,
    STEP_OF_TURNED_AWAY,
    access,
    stale_assignment,
)
from waltz_admin.findings.disk import DISK_FILLS, DISK_FULL, disk
from waltz_admin.findings.fault import (
    FAULT,
    STEP_OF_METADATA,
    STEP_OF_OLDER,
    ZOOKEEPER_OLDER,
    case_of_fault,
    lost_metadata,
    step_of_not_open,
)
from waltz_admin.findings.finding import Finding, Rule, Severity, limited
from waltz_admin.findings.refused import STEP_OF_TOO_MANY, step_of_refused
from waltz_admin.findings.undecided import IDS, is_short, is_undecided, way_out
from waltz_admin.tree import HOW_TO_REMOVE, REMOVE_SURPLUS, parse_connect_string
from waltz_cluster.quorum import id_ranges, said_once
from waltz_cluster.replica_rules import Standing

NO_SERVER = Rule(
    "no-server", Severity.STOPPED, "No server is registered in ZooKeeper.", alerts=("WaltzPartitionUnowned",)
)
UNDECIDABLE = Rule(
    "undecidable",
    Severity.STOPPED,
    "A disk is lost, and the replicas that are left are too few to know what it held.",
    health="undecidable",
    alerts=("WaltzPartitionUnavailable", "WaltzNoQuorum"),
)
NO_QUORUM = Rule(
    "no-quorum",
    Severity.STOPPED,
    "Replicas are away, and the partition takes no writes.",
    health="no_quorum",
    alerts=("WaltzPartitionUnavailable", "WaltzNoQuorum"),
)
NO_OWNER = Rule(
    "no-owner", Severity.STOPPED, "No server has the partition.", alerts=("WaltzPartitionUnowned",)
)
NOT_OPEN = Rule(
    "not-open",
    Severity.STOPPED,
    "Enough replicas answer, and the server has not opened a store session.",
    health="recovering",
    alerts=("WaltzPartitionUnavailable",),
)
NO_REPLICA = Rule(
    "no-replica",
    Severity.STOPPED,
    "No storage node is assigned to the partition.",
    alerts=("WaltzPartitionUnavailable",),
)
NODE_SILENT = Rule(
    "node-silent",
    Severity.REDUCED,
    "A storage node does not answer, or refuses the cluster's key.",
    alerts=("WaltzProcessDown", "WaltzReplicaNotVoting", "WaltzNodeUnreachable"),
)
SERVER_SILENT = Rule(
    "server-silent",
    Severity.REDUCED,
    "A registered server does not answer.",
    alerts=("WaltzProcessDown", "WaltzNodeUnreachable"),
)
SERVER_CUT_OFF = Rule(
    "server-cut-off",
    Severity.REDUCED,
    "A server does not reach a storage node that answers us.",
    alerts=("WaltzReplicaNotVoting", "WaltzReplicaBehind", "WaltzReplicaLagging"),
)
REPLICA_CHANGE = Rule(
    "replica-change",
    Severity.REDUCED,
    "A change of a partition's replicas is not complete.",
    no_alert="somebody is at it; what stays behind is WaltzReplicaNotVoting",
)
REPLICA_UNASSIGNED = Rule(
    "replica-unassigned",
    Severity.REDUCED,
    "A node lacks a partition that ZooKeeper assigns to it.",
    alerts=("WaltzReplicaNotVoting", "WaltzReplicaBehind"),
)
REPLICA_SET_BACK = Rule(
    "replica-set-back",
    Severity.REDUCED,
    "The disk of a replica was lost, or is an older copy.",
    alerts=("WaltzReplicaNotVoting", "WaltzReplicaBehind"),
)
REPLICA_UNAVAILABLE = Rule(
    "replica-unavailable",
    Severity.REDUCED,
    "A replica is out of service.",
    alerts=("WaltzStoragePartitionOutOfService", "WaltzReplicaNotVoting", "WaltzReplicaBehind"),
)
REPLICA_REFUSED = Rule(
    "replica-refused",
    Severity.REDUCED,
    "A server leaves a replica out whose log or session contradicts that of the others.",
    alerts=("WaltzReplicaNotVoting", "WaltzReplicaBehind"),
)
REPLICA_BEHIND = Rule(
    "replica-behind",
    Severity.REDUCED,
    "A replica dropped out of the session, or joins it.",
    alerts=("WaltzReplicaNotVoting", "WaltzReplicaBehind", "WaltzReplicaLagging"),
)
REPLICA_INCOMPLETE = Rule(
    "replica-incomplete",
    Severity.REDUCED,
    "A replica takes part and does not show its record at the low-water mark.",
    alerts=("WaltzReplicaBehind",),
)
REPLICA_SURPLUS = Rule(
    "replica-surplus",
    Severity.SOON,
    "A node has a copy of a partition that ZooKeeper does not assign to it.",
    no_alert="no replica is missing; it takes disk space, and `waltz cluster verify` does not pass",
)
NOT_STARTED = Rule(
    "not-started",
    Severity.STOPPED,
    "The partition never had a store session.",
    alerts=("WaltzPartitionUnavailable", "WaltzPartitionUnowned"),
)

RULES = (
    NOT_LET_IN, NO_SERVER, ASSIGNMENT_STALE, ZOOKEEPER_OLDER, FAULT, UNDECIDABLE, NO_QUORUM, NO_OWNER, NOT_OPEN,
    NO_REPLICA, NODE_SILENT, DISK_FULL, DISK_FILLS, SERVER_SILENT, SERVER_CUT_OFF, REPLICA_CHANGE,
    REPLICA_UNASSIGNED, REPLICA_SET_BACK, REPLICA_UNAVAILABLE, REPLICA_REFUSED, REPLICA_BEHIND, REPLICA_INCOMPLETE, REPLICA_SURPLUS, NOT_STARTED,
)  # fmt: skip
"""All of them, in the order in which they are best dealt with."""


def find(status: ClusterStatus) -> list[Finding]:
    """What is wrong, in the order in which it is best dealt with; empty for a healthy cluster."""
    asked: tuple[Callable[[ClusterStatus], Iterable[Finding]], ...] = (
        access, _no_server, stale_assignment, _closed_partitions, lost_metadata, _without_replicas, _nodes, _servers, _changes,
        _replicas,
    )  # fmt: skip
    return [finding for ask in asked for finding in ask(status)]


def problems(findings: Iterable[Finding]) -> list[str]:
    """What is wrong now, one line each: without what is only to be expected."""
    return [one.finding for one in findings if one.rule.severity is not Severity.SOON]


def _no_server(status: ClusterStatus) -> Iterable[Finding]:
    if not status.servers:
        yield Finding(
            NO_SERVER,
            "no server is registered in ZooKeeper",
            "start a server, and read its log if it ends",
            ("the list of servers in ZooKeeper is empty",),
            tuple(p.partition_id for p in status.partitions),
        )


# ---- partitions that take no writes


def _closed_partitions(status: ClusterStatus) -> Iterable[Finding]:
    """One finding for all that share the rule, the next step and the reason."""
    groups: dict[tuple[str, str], list[PartitionStatus]] = {}
    rules: dict[str, Rule] = {}
    for partition in status.partitions:
        if partition.replicas and partition.closed:
            rule, step = _why_closed(partition)
            rules[rule.name] = rule
            groups.setdefault((rule.name, step), []).append(partition)
    total = len(status.partitions)
    for (name, step), partitions in groups.items():
        by_reason: dict[str, list[PartitionStatus]] = {}
        for partition in partitions:
            by_reason.setdefault(_reason(partition), []).append(partition)
        lines = said_once({p.partition_id: _reason(p) for p in partitions}, total)
        for line, alike in zip(lines, by_reason.values(), strict=True):
            ids = tuple(p.partition_id for p in alike)
            nodes = tuple(dict.fromkeys(r.node for p in alike for r in p.replicas))
            servers = tuple(dict.fromkeys(str(p.server) for p in alike if p.server is not None))
            next_step = step.replace(IDS, id_ranges(ids))
            yield Finding(rules[name], line, next_step, _evidence_of_closed(alike), ids, nodes, servers)


def _reason(partition: PartitionStatus) -> str:
    waits = f", it waits for {partition.waits_for}" if partition.waits_for else ""
    return f"{partition.problem}{waits}"


def _why_closed(partition: PartitionStatus) -> tuple[Rule, str]:
    """The rule that a partition without writes is a case of, and the next step."""
    if partition.ahead:
        return ZOOKEEPER_OLDER, STEP_OF_OLDER
    if partition.too_many_refused:
        return NOT_OPEN, STEP_OF_TOO_MANY
    if partition.fault:
        return case_of_fault(partition.fault)
    if partition.metadata_lost:
        return FAULT, STEP_OF_METADATA
    silent = [r for r in partition.replicas if r.standing in (Standing.UNREACHABLE, Standing.UNAVAILABLE)]
    lacking = [r.node for r in partition.replicas if r.standing is Standing.UNASSIGNED]
    if lacking and not silent and is_short(partition.replicas):
        return (
            NOT_OPEN,
            f"`waltz storage sync-partitions`: it is assigned to {', '.join(lacking)} and not there",
        )
    if is_undecided(partition):
        return UNDECIDABLE, way_out(partition)
    if silent:
        return NO_QUORUM, f"bring back {', '.join(r.node for r in silent)}, with the data they have"
    unasked = [r.node for r in partition.replicas if r.standing is Standing.UNKNOWN]
    if unasked:
        return (
            NOT_OPEN,
            f"see to it that {', '.join(unasked)} let this command in: what they hold is not known",
        )
    if partition.server is None:
        return NO_OWNER, "start a server; partitions are assigned within the ZooKeeper session timeout"
    return NOT_OPEN, step_of_not_open(partition.not_open)


def _evidence_of_closed(alike: Sequence[PartitionStatus]) -> tuple[str, ...]:
    """The facts about the first partition of those that are alike."""
    partition = alike[0]
    number = f"{'for example ' if len(alike) > 1 else ''}partition {partition.partition_id}"
    owner = "no server has it" if partition.server is None else f"server {partition.server} has it"
    session = "no store session" if partition.session_id is None else f"store session {partition.session_id}"
    lines = [f"{number}: {owner}, {session} in ZooKeeper"]
    for replica in partition.replicas:
        why = f": {replica.reason}" if replica.reason else ""
        lines.append(f"{replica.node} is {replica.standing.value}{why}")
    return limited(lines)


def _without_replicas(status: ClusterStatus) -> Iterable[Finding]:
    for partition in status.partitions:
        if not partition.replicas:
            number = partition.partition_id
            yield Finding(
                NO_REPLICA,
                f"partition {number} has no replica",
                f"`waltz zk assign-partition -p {number} -s NODE`",
                (f"no storage node is assigned to partition {number} in ZooKeeper",),
                (number,),
            )


# ---- storage nodes and servers


def _nodes(status: ClusterStatus) -> Iterable[Finding]:
    for node in status.nodes:
        if node.error and not (node.turned_away and status.shut_out):
            reason = node.error
            if reason.startswith("storage node "):  # of its admin port: the node itself is named before it
                reason = f"admin port {reason.removeprefix('storage node ')}"
            yield Finding(
                NODE_SILENT,
                f"storage node {node.node} {_how_silent(node)}: {reason}",
                _step_of_silent(node),
                (reason, f"it holds {_counted(node.partitions)}"),
                node.partitions,
                (node.node,),
            )
        if node.surplus:
            yield Finding(
                REPLICA_SURPLUS,
                f"storage node {node.node} has {_counted(node.surplus)}, and is not assigned to have it",
                f"if no change of replicas is in progress: `{REMOVE_SURPLUS}`; it keeps what the last session may "
                "still need, and the files",
                (f"ZooKeeper assigns it {_counted(node.partitions)}",),
                node.surplus,
                (node.node,),
            )
        yield from disk(node)


STEP_OF_REFUSING = (
    "it is the storage node of another cluster, or the tree in ZooKeeper is not that of its data: compare "
    "`waltz zk show-cluster-key` with the key that `waltz disk check DIR` prints; if this cluster was created anew after a "
    "loss, put the old tree back (`waltz zk import`, `waltz zk rebuild`)"
)


def _how_silent(node: StorageStatus) -> str:
    if node.turned_away:
        return "cannot be asked"
    return "refuses this cluster" if node.refused else "does not answer"


def _step_of_silent(node: StorageStatus) -> str:
    if node.turned_away:
        return STEP_OF_TURNED_AWAY
    if node.refused:
        return STEP_OF_REFUSING
    try:
        parse_connect_string(node.node)
    except StorageNodeError:
        return HOW_TO_REMOVE
    return "check that its machine is up and its process runs and is not suspended; restart it with its data"


def _servers(status: ClusterStatus) -> Iterable[Finding]:
    for server in status.servers:
        name = str(server.endpoint)
        if server.unreached is None and not (server.turned_away and status.shut_out):
            reason = server.error.removeprefix(f"server {name}: ")
            why = f": {reason}" if reason else ""
            yield Finding(
                SERVER_SILENT,
                f"server {name} is registered but {'cannot be asked' if server.turned_away else 'does not answer'}{why}",
                STEP_OF_TURNED_AWAY
                if server.turned_away
                else "read its log; stop it if it hangs, the others take over",
                (
                    f"it is registered in ZooKeeper as server {server.server_id}, and has {_counted(server.partitions)}",
                ),
                server.partitions,
                (),
                (name,),
            )
        elif cut_off := status.cut_off(server):
            yield Finding(
                SERVER_CUT_OFF,
                f"server {name} does not reach {', '.join(cut_off)}",
                "check the network, certificates and host names between them "
                "(`waltz cluster check-connectivity` shows all pairs)",
                tuple(f"{node} answers here, and not the server" for node in cut_off),
                server.partitions,
                tuple(cut_off),
                (name,),
            )


def _counted(partitions: Sequence[int]) -> str:
    if not partitions:
        return "no partition"
    return f"{'partition' if len(partitions) == 1 else 'partitions'} {id_ranges(partitions)}"


# ---- replicas


def _changes(status: ClusterStatus) -> Iterable[Finding]:
    """Only where the partition is well: elsewhere the rules above say what comes first."""
    changing: dict[str, list[int]] = {}
    for partition in status.partitions:
        if partition.healthy and partition.changing:
            changing.setdefault(partition.changing, []).append(partition.partition_id)
    for reason, ids in changing.items():
        yield Finding(
            REPLICA_CHANGE,
            f"{_counted(ids)}: a change of its replicas is not complete",
            "wait: the server takes the new replicas in (`waltz cluster verify --wait 600`); "
            "change no other replica before",
            (reason,),
            tuple(ids),
        )


def _replicas(status: ClusterStatus) -> Iterable[Finding]:
    """One finding for all partitions of a node that are in the same state."""
    alike: dict[tuple[str, Standing, bool, str], list[tuple[int, Replica]]] = {}
    for partition in status.partitions:
        undecided = bool(partition.fault) or (
            not partition.healthy and _why_closed(partition)[0] is UNDECIDABLE
        )
        for replica in partition.replicas:
            refused = replica.standing is Standing.REFUSED
            waits = undecided and replica.standing in (Standing.SET_BACK, Standing.BEHIND)
            key = (
                replica.node,
                replica.standing,
                waits or (refused and partition.closed),
                replica.reason if refused else "",
            )
            alike.setdefault(key, []).append((partition.partition_id, replica))
    for (node, standing, waits, _), held in alike.items():
        found = _replica(node, standing, held)
        if found is not None:
            rule, text, step = found
            if waits:
                step = "it is not filled before the partition is open again: see there"
            ids = tuple(partition for partition, _ in held)
            yield Finding(
                rule, f"{node}, partitions {_ids(held)}: {text}", step, _evidence_of(held), ids, (node,)
            )


def _ids(held: Sequence[tuple[int, Replica]]) -> str:
    return id_ranges(partition for partition, _ in held)


def _evidence_of(held: Sequence[tuple[int, Replica]]) -> tuple[str, ...]:
    lines = []
    for partition, replica in held:
        last = "" if replica.last_transaction is None else f", last transaction {replica.last_transaction:,}"
        listed = replica.listed
        recorded = "" if listed is None else f", ZooKeeper lists it in session {listed.session_id}"
        why = replica.reason or replica.standing.value
        lines.append(f"partition {partition}: {why}{last}{recorded}")
    return limited(lines)


def _replica(
    node: str, standing: Standing, held: Sequence[tuple[int, Replica]]
) -> tuple[Rule, str, str] | None:
    """The rule, what is the case, and the next step."""
    match standing:
        case Standing.UNASSIGNED:
            return (
                REPLICA_UNASSIGNED,
                "assigned in ZooKeeper and not on the node",
                "`waltz storage sync-partitions`",
            )
        case Standing.SET_BACK:
            return (
                REPLICA_SET_BACK,
                "the disk was lost, or is an older copy",
                "leave it running: it is filled again once the other replicas have decided",
            )
        case Standing.UNAVAILABLE if held[0][1].reason != DISK_IS_FULL:
            return (
                REPLICA_UNAVAILABLE,
                "unavailable: taken offline by an administrator, a full disk, a failed sync or damage",
                (
                    f"see the node's /health page; then free disk space, `waltz storage availability -p {_ids(held)} -o true`, or, "
                    "if it is damaged, `waltz storage remove-partition --delete-storage-files` and `add-partition`"
                ),
            )
        case Standing.REFUSED:
            reason = held[0][1].reason
            return REPLICA_REFUSED, f"the server refuses it: {reason}", step_of_refused(reason, _ids(held))
        case Standing.BEHIND:
            lag = max((replica.lag or 0 for _, replica in held), default=0)
            return (
                REPLICA_BEHIND,
                f"behind, by up to {lag:,} transactions: {held[0][1].reason}",
                "wait: it is being caught up",
            )
        case Standing.INCOMPLETE:
            return (
                REPLICA_INCOMPLETE,
                f"takes part, but {held[0][1].reason}: it is not counted on, and the next recovery cannot use it",
                (
                    "see the node's log; if the record is damaged, `waltz storage remove-partition --delete-storage-files` and "
                    "`add-partition`, while the others are current"
                ),
            )
        case Standing.NOT_STARTED:
            return (
                NOT_STARTED,
                "no store session yet",
                "start a server; the first session is opened then",
            )
        case (
            Standing.CURRENT | Standing.UNAVAILABLE | Standing.UNREACHABLE | Standing.UNKNOWN | Standing.AHEAD
        ):  # nothing to do, or reported of the node or partition
            return None
