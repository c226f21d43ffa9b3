"""Which Secrets of a cluster are to be written now, by one observation: certificates, the credentials for a
managed ZooKeeper, the token of the console, copies of the records in ZooKeeper."""

from __future__ import annotations

import gzip
import logging

from waltz_admin.errors import AdminError
from waltz_admin.tree_file import ClusterTree, encode
from waltz_cluster.errors import ClusterError
from waltz_operator.model.actions import ApplyObject, EmitEvent
from waltz_operator.model.facts import facts_of
from waltz_operator.plan.certificates import certificate_steps, renewal_steps
from waltz_operator.plan.console_token import token_step
from waltz_operator.plan.zookeeper_export import MAX_BYTES, export_step, is_due
from waltz_operator.plan.zookeeper_secret import login_steps
from waltz_operator.run.observe import Observation, Observer

_log = logging.getLogger(__name__)


def export_is_due(observation: Observation) -> bool:
    """Whether a copy of the records in ZooKeeper is to be made now."""
    snapshot = observation.snapshot
    wanted = snapshot.cluster.spec.zookeeper.export
    return is_due(facts_of(snapshot), wanted, observation.access.exports)


def secret_steps(observation: Observation, *, settled: bool) -> tuple[ApplyObject | EmitEvent, ...]:
    """The Secrets to write now: certificates, the credentials for a managed ZooKeeper, the token of the
    console; while the specification is wrong only certificates that are due. TlsMaterialError."""
    snapshot, access = observation.snapshot, observation.access
    if snapshot.problems:
        return renewal_steps(snapshot.cluster, access.secrets, snapshot.now)
    certificates = certificate_steps(snapshot.cluster, access.secrets, snapshot.now, settled=settled)
    login = login_steps(snapshot.cluster, facts_of(snapshot), access.login)
    return (*certificates, *login, *token_step(snapshot.cluster, access.console_token))


async def due_export(observer: Observer, observation: Observation) -> ApplyObject | None:
    """The Secret with one more copy of the records in ZooKeeper, when it is due. One that fails holds nothing
    up: the status says when the last one was made, and the next attempt is after a pause."""
    snapshot = observation.snapshot
    wanted, name = snapshot.cluster.spec.zookeeper.export, snapshot.cluster.metadata.name
    if wanted is None or not export_is_due(observation):
        return None
    try:
        tree = await observer.export(observation)
    except (ClusterError, AdminError, TimeoutError) as error:
        _log.warning("%s: the records in ZooKeeper are not exported: %s", name, error or "no answer")
        observer.export_failed(observation)
        return None
    copy = _compressed(tree)
    if len(copy) > MAX_BYTES:
        _log.warning(
            "%s: a copy of the records in ZooKeeper does not fit into a Secret (%d bytes): the checkpoints of named "
            "producers are left out, so after an import their logs are searched from the beginning",
            name,
            len(copy),
        )
        copy = _compressed(tree.without_checkpoints())
    step = export_step(snapshot.cluster, wanted, observation.access.exports, copy, snapshot.now)
    if step is None:
        _log.warning("%s: a copy of the records in ZooKeeper does not fit into a Secret", name)
        observer.export_failed(observation)
    return step


def _compressed(tree: ClusterTree) -> bytes:
    return gzip.compress(encode(tree), mtime=0)
