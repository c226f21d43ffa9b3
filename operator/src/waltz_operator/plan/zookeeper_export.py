"""Copies of the cluster's records in a Secret, made at intervals: when the next one is due, and which are
kept. Pure.

The Secret is in the API server's own store, so on other disks than ZooKeeper's; it says itself when the last
copy was made, so nothing has to be remembered. A copy has the cluster key and no credentials.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import CLUSTER_UID, LABEL_INSTANCE, LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY
from waltz_operator.api.parts import ZooKeeperExport
from waltz_operator.api.topology import export_secret
from waltz_operator.model.actions import ApplyObject
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import ObjectKey, TreeView
from waltz_operator.model.times import seconds, timestamp

MAX_BYTES = 700_000
"""Of all copies together, compressed; a Secret holds 1 MiB with everything around them."""
OVERDUE_INTERVALS = 2
RETRY_SECONDS = 600.0
"""After a copy that could not be made."""
_SUFFIX = ".json.gz"


@dataclass(frozen=True, slots=True)
class Exports:
    """The Secret with the copies, as it is: key → compressed copy. Without a version it is not there, or
    somebody else's. `created`, and `failed`, when this operator last could
    not make a copy: UNIX time."""

    copies: Mapping[str, bytes] = field(default_factory=dict)
    version: str = ""
    created: float = 0.0
    failed: float | None = None

    @property
    def made(self) -> tuple[float, ...]:
        """When the copies were made, UNIX time."""
        return tuple(made for key in self.copies if (made := _made_at(key)))


def last_made(made: Iterable[float], now: float) -> float | None:
    """When the newest copy was made; None without one. One that is dated after `now` was made while the clock
    was ahead: it is not known when, so it does not count."""
    return max((at for at in made if at <= now), default=None)


def _key(now: float) -> str:
    """Keys of a Secret have no colons."""
    return timestamp(now).replace(":", "") + _SUFFIX


def _made_at(key: str) -> float:
    """0 for a key that is none of ours."""
    day, _, time = key.removesuffix(_SUFFIX).partition("T")
    return seconds(f"{day}T{time[:2]}:{time[2:4]}:{time[4:]}") if len(time) >= 6 else 0.0


def is_due(facts: Facts, wanted: ZooKeeperExport | None, present: Exports) -> bool:
    """Whether a copy is to be made now, of a tree that is known to be this cluster's."""
    if wanted is None or facts.problems or facts.desired.paused or facts.desired.deleting:
        return False
    tree, key = facts.tree, facts.memory.cluster_key
    if not isinstance(tree, TreeView) or key is None or tree.cluster_key != key:
        return False
    if present.failed is not None and 0 <= facts.now - present.failed < RETRY_SECONDS:
        return False
    last = last_made(present.made, facts.now)
    return last is None or facts.now - last >= wanted.interval_hours * 3600


def overdue(facts: Facts, wanted: ZooKeeperExport | None, made: Iterable[float], created: float = 0.0) -> str:
    """Why the last copy is too old; empty when it is not. `made`: when each was. `created`: of the Secret,
    whose first copy may be missing."""
    last = last_made(made, facts.now)
    since = last or created
    if wanted is None or not since:
        return ""
    if facts.now - since < OVERDUE_INTERVALS * wanted.interval_hours * 3600:
        return ""
    what = f"is of {timestamp(last)}" if last else "was never made"
    return (
        f"the last export of the records in ZooKeeper {what}, one is wanted every "
        f"{wanted.interval_hours} hours; the operator's log has why"
    )


def export_step(
    cluster: WaltzCluster, wanted: ZooKeeperExport, present: Exports, copy: bytes, now: float
) -> ApplyObject | None:
    """The Secret with one more copy, and without the oldest ones and, before those, without such as are dated
    after `now`; None when a copy alone is too large. The
    Secret is made empty: what it is created with could not be taken out later."""
    if not present.version:
        return _secret(cluster, present, {}, reason="for copies of the records in ZooKeeper")
    if len(copy) > MAX_BYTES:
        return None
    copies = {key: value for key, value in present.copies.items() if _made_at(key)} | {_key(now): copy}
    for key in sorted(copies, key=lambda key: (_made_at(key) <= now, _made_at(key))):
        if len(copies) <= wanted.keep and sum(map(len, copies.values())) <= MAX_BYTES:
            break
        del copies[key]
    return _secret(cluster, present, copies, reason="one more copy of the records in ZooKeeper")


def _secret(
    cluster: WaltzCluster, present: Exports, copies: Mapping[str, bytes], *, reason: str
) -> ApplyObject:
    name = export_secret(cluster)
    metadata: dict[str, object] = {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "resourceVersion": present.version,
        "annotations": {CLUSTER_UID: cluster.metadata.uid},
        "labels": {
            LABEL_NAME: "waltz",
            LABEL_INSTANCE: cluster.metadata.name,
            LABEL_MANAGED_BY: MANAGED_BY,
        },
    }
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": metadata,
        "data": {key: base64.b64encode(value).decode() for key, value in sorted(copies.items())},
    }
    return ApplyObject(ObjectKey("Secret", name), body, reason)
