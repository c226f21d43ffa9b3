"""Is the cluster what its records in ZooKeeper describe? (docs/operations.md, *Is all well?*)

`gather` asks everybody once, at the same time, each within the timeout; `check` is pure and turns the
answers into one result per partition and check. A question without an answer fails the checks that need it.
Against 0.13.2: the quorum is that of the partition's own replicas, a partition without replicas is a failure
and not a crash, health also needs a quorum of available nodes, and `passed` covers all checks (a tool
exits with it).

Recovery is not believed from ZooKeeper alone: every replica must be current by its node's own answer
(`waltz_cluster.replica_rules`). Our servers and those of 0.13.2 list a replica as (session, UNRESOLVED), a
late joiner too, only after its node has completed *set low-water mark* of that session. So a listed node
whose own last session is older was emptied or rolled back meanwhile. A newer one is the next session on its
way: nodes are asked after ZooKeeper.
"""

import asyncio
import enum
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

from waltz_admin.errors import AdminError, TurnedAwayError
from waltz_admin.findings.access import not_let_in
from waltz_admin.not_open import NotOpen
from waltz_admin.reports import NOT_OPEN, REPLICAS, AskReports, ServerReport, read_reports
from waltz_admin.safety import ask_copy
from waltz_admin.same_node import Identity, identity
from waltz_admin.server_admin import ServerAdminConnection
from waltz_admin.storage_admin import RECORDS_AT_ONCE, admin_connection
from waltz_admin.tree import REMOVE_SURPLUS, admin_endpoint
from waltz_admin.view import ClusterView, read_view
from waltz_cluster.errors import ClusterError
from waltz_cluster.quorum import said_once, shortage
from waltz_cluster.replica_rules import (
    Answer,
    NoAnswer,
    NotHeld,
    ReplicaAnswer,
    Standing,
    change_incomplete,
    standing_of,
    why_not_current,
)
from waltz_cluster.serializers import PartitionMetadata
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings, own_certificate_problem
from waltz_protocol.types import Endpoint, PartitionId


class Check(enum.Enum):
    """The checks, by the names of release 0.13.2."""

    ZK_VALIDITY = "PARTITION_ASSIGNMENT_ZK_VALIDITY"
    SERVER_CONSISTENCY = "PARTITION_ASSIGNMENT_ZK_SERVER_CONSISTENCY"
    STORAGE_CONNECTIVITY = "SERVER_STORAGE_CONNECTIVITY"
    STORAGE_CONSISTENCY = "PARTITION_ASSIGNMENT_ZK_STORAGE_CONSISTENCY"
    QUORUM = "PARTITION_QUORUM_STATUS"
    RECOVERY = "REPLICA_RECOVERY_STATUS"
    HEALTH = "SERVER_PARTITION_HEALTH_CHECK"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`reason` is empty when the check passed. `known`: False where nothing speaks against it but that a
    process which is there could not be asked."""

    partition_id: PartitionId
    check: Check
    reason: str = ""
    known: bool = True

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All results; `passed` only if every one did and there was at least one. `shut_out`: why nobody could be
    asked, where servers and storage nodes are there (`findings.access.not_let_in`)."""

    results: tuple[CheckResult, ...]
    shut_out: str = ""

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if not result.passed)

    @property
    def passed(self) -> bool:
        return bool(self.results) and not self.failures

    @property
    def summary(self) -> list[str]:
        """Which partitions cannot take a write, and why, each reason once; first, that nobody lets us in."""
        quorum = {
            int(r.partition_id): r.reason if r.known else "" for r in self.results if r.check is Check.QUORUM
        }
        closed = said_once({partition: why for partition, why in quorum.items() if why}, len(quorum))
        return [self.shut_out, *closed] if self.shut_out else closed


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What one server answered; None = it did not answer that question, and `problem` says why."""

    partitions: frozenset[int] | None = None
    connectivity: Mapping[str, bool] | None = None
    health: Mapping[int, bool] | None = None
    problem: str = ""
    turned_away: bool = False
    """It is there, and no connection could be made (`TurnedAwayError`)."""

    @property
    def silence(self) -> str:
        """What is said of a server of which an answer is missing."""
        return f"does not answer: {self.problem}" if self.problem else "does not answer"


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one storage node answered: which partitions are available (None = no answer, and
    `problem` says why), what it reports about its copies, and what distinguishes it from other nodes
    (`same_node.identity`). `turned_away`: as with `ServerAnswer`."""

    partitions: Mapping[int, bool] | None = None
    copies: Mapping[int, ReplicaAnswer] = field(default_factory=dict)
    identity: Identity | None = None
    problem: str = ""
    turned_away: bool = False

    def copy(self, partition_id: int) -> Answer:
        """Its answer about its copy of the partition."""
        known = self.copies.get(partition_id)
        if known is not None and self.partitions is not None:
            return known
        if self.partitions is None:
            return NoAnswer(self.problem)
        if partition_id not in self.partitions:
            return NotHeld()
        return NoAnswer("it did not report the state of its copy")


@dataclass(frozen=True, slots=True)
class Answers:
    """By server id, and by connect string."""

    servers: Mapping[int, ServerAnswer]
    nodes: Mapping[str, NodeAnswer]
    refused: Mapping[tuple[int, str], str] = field(default_factory=dict)
    """(Partition, connect string) -> why the partition's server leaves this copy out of its session. Only of
    those that look as if somebody were about to fill them."""
    not_open: Mapping[int, NotOpen] = field(default_factory=dict)
    """Partition -> what its server reports about it, where that is not healthy."""

    @property
    def shut_out(self) -> bool:
        """As `ClusterStatus.shut_out`."""
        asked: list[ServerAnswer | NodeAnswer] = [*self.servers.values(), *self.nodes.values()]
        return any(a.turned_away for a in asked) and all(a.partitions is None for a in asked)

    def partitions(self, node: str) -> Mapping[int, bool] | None:
        """The partitions a storage node reports to have; None = no answer."""
        return self.nodes.get(node, NodeAnswer()).partitions

    def turned_away(self, node: str) -> bool:
        """Whether a storage node is there, and no connection to it could be made."""
        return self.nodes.get(node, NodeAnswer()).turned_away

    def copy(self, node: str, partition_id: int) -> Answer:
        """What a storage node reports about its copy of a partition."""
        found = self.nodes.get(node)
        return NoAnswer() if found is None else found.copy(partition_id)

    def refusal(self, node: str, partition_id: int) -> str:
        """That the partition's server refuses this copy, and why; empty where it is not known to."""
        reason = self.refused.get((partition_id, node))
        return f"its server refuses it: {reason}" if reason else ""


async def verify_cluster(
    store: ZooKeeperStore,
    root: str,
    *,
    partition: int | None = None,
    timeout_seconds: float = 10.0,
    tls: TlsSettings,
) -> VerifyReport:
    """All checks for all partitions, or for one. AdminError for an unknown partition; what ZooKeeper
    raises."""
    view = await read_view(store, root)
    if partition is not None and not 0 <= partition < view.params.num_partitions:
        raise AdminError(f"there is no partition {partition}: the cluster has {view.params.num_partitions}")
    chosen = range(view.params.num_partitions) if partition is None else [partition]
    answers = await gather(view, tls, timeout_seconds, chosen)
    results = tuple(result for p in chosen for result in check(PartitionId(p), view, answers))
    return VerifyReport(results, not_let_in(own_certificate_problem(tls)) if answers.shut_out else "")


async def gather(
    view: ClusterView, tls: TlsSettings, timeout_seconds: float, chosen: Collection[int]
) -> Answers:
    """Ask every registered server and every storage node at the same time, about copies only of `chosen`
    partitions; then the servers what `with_reports` wants to know."""
    servers, nodes = list(view.servers), sorted(view.nodes.partitions)
    found = await asyncio.gather(
        asyncio.gather(
            *(
                ask_server(
                    ServerAdminConnection(server.endpoint, tls, timeout_seconds=timeout_seconds),
                    timeout_seconds,
                )
                for server in servers
            )
        ),
        asyncio.gather(*(_ask_node(view, node, tls, timeout_seconds, chosen) for node in nodes)),
    )
    answers = Answers(
        {server.server_id: answer for server, answer in zip(servers, found[0], strict=True)},
        dict(zip(nodes, found[1], strict=True)),
    )

    async def ask(servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        return await read_reports(servers, parts, tls=tls, timeout_seconds=timeout_seconds)

    return await with_reports(view, answers, chosen, ask)


_LIKE_REFUSED = frozenset({Standing.BEHIND, Standing.INCOMPLETE, Standing.SET_BACK})


async def with_reports(
    view: ClusterView, answers: Answers, chosen: Collection[int], ask: AskReports
) -> Answers:
    """With what only the servers know: why they refuse copies of `chosen` partitions, and why some of these
    are not open. A server is asked for the parts that it has a case of, and nobody while all is well: a
    server rests after a report, and one of 0.13.2 ends the connection and logs it."""
    partitions = {*chosen}
    owners: dict[tuple[int, str], int] = {}
    for node, held in view.nodes.partitions.items():
        for partition in partitions.intersection(held):
            known, copy = view.recorded(partition), answers.copy(node, partition)
            if standing_of(known, node, copy, later_session_passes=True).standing in _LIKE_REFUSED:
                owner = _answering_owner(view, answers, partition)
                if owner is not None:
                    owners[partition, node] = owner
    closed: dict[int, int] = {}
    for partition in partitions:
        owner = _answering_owner(view, answers, partition)
        if owner is not None and not (answers.servers[owner].health or {}).get(partition, False):
            closed[partition] = owner
    wanted = dict.fromkeys(owners.values(), REPLICAS)
    wanted |= {owner: wanted.get(owner, 0) | NOT_OPEN for owner in closed.values()}
    servers: dict[int, list[tuple[int, Endpoint]]] = {}
    for one in view.servers:
        if one.server_id in wanted:
            servers.setdefault(wanted[one.server_id], []).append((one.server_id, one.endpoint))
    answered = await asyncio.gather(*(ask(asked, parts) for parts, asked in servers.items()))
    reports = [report for found in answered for report in found]
    refused = {
        (one.partition, one.node): one.reason
        for report in reports
        for one in report.refused_replicas
        if owners.get((one.partition, one.node)) == report.server_id
    }
    not_open = {
        one.partition: one
        for report in reports
        for one in report.not_open
        if closed.get(one.partition) == report.server_id
    }
    return replace(answers, refused=refused, not_open=not_open)


def _answering_owner(view: ClusterView, answers: Answers, partition: int) -> int | None:
    found = view.owners(partition)
    if len(found) == 1 and answers.servers.get(found[0], ServerAnswer()).health is not None:
        return found[0]
    return None


async def ask_server(
    opening: AbstractAsyncContextManager[ServerAdminConnection], timeout_seconds: float
) -> ServerAnswer:
    """What the server at the other end of a connection answers within the timeout."""
    partitions: frozenset[int] | None = None
    connectivity: Mapping[str, bool] | None = None
    health: Mapping[int, bool] | None = None
    try:
        async with asyncio.timeout(timeout_seconds), opening as connection:
            partitions = frozenset(await connection.partitions())
            health = await connection.health()
            connectivity = await connection.storage_connectivity()  # may take long when nodes are away
    except (AdminError, TimeoutError) as error:
        problem = str(error) or f"no answer within {timeout_seconds:g} s"
        turned_away = isinstance(error, TurnedAwayError)
        return ServerAnswer(partitions, connectivity, health, problem, turned_away)
    return ServerAnswer(partitions, connectivity, health)


async def _ask_node(
    view: ClusterView, node: str, tls: TlsSettings, timeout_seconds: float, chosen: Collection[int]
) -> NodeAnswer:
    """One connection; many copies at the same time, each within the timeout, until one is not answered in
    time."""
    port = view.nodes.admin_ports.get(node)
    if port is None:
        return NodeAnswer(problem="its admin port is not in ZooKeeper")
    held: Mapping[int, bool] | None = None
    copies: dict[int, ReplicaAnswer] = {}
    own: Identity | None = None
    try:
        async with (
            asyncio.timeout(timeout_seconds) as limit,
            admin_connection(admin_endpoint(node, port), view.store, tls) as connection,
        ):
            own = identity(connection)
            held = await connection.partition_status()
            # A node of 0.13.2 closes the connection when it is asked for a partition that it does not have.
            having = sorted({*view.nodes.partitions[node]} & {*held} & {*chosen})

            async def one(partition_id: int, available: bool) -> None:
                copies[partition_id] = await ask_copy(connection, partition_id, available)

            for start in range(0, len(having), RECORDS_AT_ONCE):
                limit.reschedule(asyncio.get_running_loop().time() + timeout_seconds)
                some = having[start : start + RECORDS_AT_ONCE]
                await asyncio.gather(*(one(partition_id, held[partition_id]) for partition_id in some))
    except (AdminError, ClusterError, TimeoutError) as error:
        problem = str(error) or f"no answer within {timeout_seconds:g} s"
        return NodeAnswer(held, copies, own, problem, isinstance(error, TurnedAwayError))
    return NodeAnswer(held, copies, own)


def check(partition_id: PartitionId, view: ClusterView, answers: Answers) -> list[CheckResult]:
    """All checks of one partition. Pure."""
    replicas = sorted(node for node, held in view.nodes.partitions.items() if partition_id in held)
    owners = view.owners(partition_id)
    owner = owners[0] if len(owners) == 1 else None
    answer = answers.servers.get(owner, ServerAnswer()) if owner is not None else ServerAnswer()
    validity = _validity(view, owners)
    metadata = view.metadata.get(partition_id)
    quorum = _quorum(partition_id, replicas, metadata, answers)
    unknown = "" if quorum else _quorum_unknown(partition_id, replicas, metadata, answers)
    reasons = {
        Check.ZK_VALIDITY: validity,
        Check.SERVER_CONSISTENCY: validity or _server_consistency(partition_id, owner, answers),
        Check.STORAGE_CONNECTIVITY: _connectivity(owner, replicas, answer),
        Check.STORAGE_CONSISTENCY: _storage_consistency(partition_id, replicas, answers),
        Check.QUORUM: quorum or unknown,
        Check.RECOVERY: _recovery(partition_id, replicas, metadata, answers),
        Check.HEALTH: _health(partition_id, owner, answer, answers.not_open.get(partition_id)) or quorum,
    }
    return [
        CheckResult(partition_id, one, reason, not (unknown and one is Check.QUORUM))
        for one, reason in reasons.items()
    ]


def _validity(view: ClusterView, owners: list[int]) -> str:
    if not view.servers:
        return "no server is registered"
    if not view.assignment_current:
        return "the assignment was made for other servers than those registered"
    if len(owners) != 1:
        return f"assigned to {len(owners)} servers ({', '.join(map(str, owners)) or 'none'})"
    if owners[0] not in {server.server_id for server in view.servers}:
        return f"assigned to server {owners[0]}, which is not registered"
    return ""


def _server_consistency(partition_id: int, owner: int | None, answers: Answers) -> str:
    for server_id, answer in sorted(answers.servers.items()):
        if answer.partitions is None:
            if server_id == owner:
                return f"server {server_id} {answer.silence}"
        elif (partition_id in answer.partitions) != (server_id == owner):
            return f"server {server_id} {'lacks it' if server_id == owner else 'has it too'}"
    return "" if owner in answers.servers else "its server is not registered"


def _connectivity(owner: int | None, replicas: list[str], answer: ServerAnswer) -> str:
    if not replicas:
        return "no replica is assigned"
    if owner is None or answer.connectivity is None:
        return f"its server {answer.silence}" if owner is not None else "it has no single server"
    unreached = [node for node in replicas if not answer.connectivity.get(node, False)]
    return f"server {owner} does not reach {', '.join(unreached)}" if unreached else ""


def _storage_consistency(partition_id: int, replicas: list[str], answers: Answers) -> str:
    if not replicas:
        return "no replica is assigned"
    silent = [node for node in replicas if answers.partitions(node) is None]
    if silent:
        reasons = {node: answers.nodes.get(node, NodeAnswer()).problem for node in silent}
        return "no answer from " + ", ".join(f"{n} ({why})" if why else n for n, why in reasons.items())
    twins = _under_two_names(replicas, answers)
    if twins:
        return twins
    having = {node for node in answers.nodes if partition_id in (answers.partitions(node) or {})}
    missing, surplus = sorted(set(replicas) - having), sorted(having - set(replicas))
    if missing:
        return f"not assigned on {', '.join(missing)}"
    if surplus:
        return (
            f"assigned on {', '.join(surplus)} too, and not in ZooKeeper: `{REMOVE_SURPLUS}` removes it there"
        )
    return ""


def _under_two_names(replicas: list[str], answers: Answers) -> str:
    names: dict[Identity, str] = {}
    for node in replicas:
        own = answers.nodes.get(node, NodeAnswer()).identity
        if own is not None and names.setdefault(own, node) != node:
            return f"{names[own]} and {node} are one storage node under two names"
    return ""


def _quorum(
    partition_id: int, replicas: list[str], metadata: PartitionMetadata | str | None, answers: Answers
) -> str:
    return shortage({node: _unable(partition_id, node, metadata, answers) for node in replicas})


def _quorum_unknown(
    partition_id: int, replicas: list[str], metadata: PartitionMetadata | str | None, answers: Answers
) -> str:
    """Which nodes are there and cannot be asked, where too few of the others are left to know."""
    reasons = {
        node: "no connection to it can be made"
        if answers.turned_away(node)
        else _unable(partition_id, node, metadata, answers)
        for node in replicas
    }
    short = shortage(reasons)
    return f"it is not known: {short}" if short else ""


def _unable(partition_id: int, node: str, metadata: PartitionMetadata | str | None, answers: Answers) -> str:
    """One that was emptied within a session takes no write of it, and has no vote in the next one; one that
    the server refuses takes none either."""
    held = answers.partitions(node)
    if held is None:
        return "" if answers.turned_away(node) else "does not answer"
    if partition_id not in held:
        return "does not have it"
    if not held[partition_id]:
        return "unavailable"
    if isinstance(metadata, PartitionMetadata):
        standing, why = standing_of(metadata, node, answers.copy(node, partition_id))
        if standing is Standing.SET_BACK:
            return why
    return answers.refusal(node, partition_id)


def _recovery(
    partition_id: int, replicas: list[str], metadata: PartitionMetadata | str | None, answers: Answers
) -> str:
    if metadata is None:
        return "it has no metadata: never started, or lost"
    if isinstance(metadata, str):
        return metadata
    if not replicas:
        return "no replica is assigned"
    incomplete = change_incomplete(metadata, replicas)
    if incomplete:
        return incomplete
    reasons = {
        node: answers.refusal(node, partition_id)
        or why_not_current(metadata, node, answers.copy(node, partition_id), later_session_passes=True)
        for node in replicas
    }
    return "; ".join(f"{node}: {why}" for node, why in reasons.items() if why)


def _health(partition_id: int, owner: int | None, answer: ServerAnswer, not_open: NotOpen | None) -> str:
    if owner is None:
        return "it has no single server"
    if answer.health is None:
        return f"its server {answer.silence}"
    if answer.health.get(partition_id, False):
        return ""
    return f"server {owner} reports {not_open or 'that it is not healthy'}"
