"""The Secret with the credentials for a managed ZooKeeper, which the operator makes once; `model.login`
decides whether there are to be any. Pure, but for the randomness of new credentials."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass

from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import LABEL_INSTANCE, LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY
from waltz_operator.api.parts import ZooKeeperAuthentication
from waltz_operator.model.actions import ApplyObject
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.resources.common import keeps_data, owner
from waltz_operator.resources.login import SECRET_KEY

USER = "waltz"
PASSWORD_BYTES = 32


@dataclass(frozen=True, slots=True)
class LoginSecret:
    """The Secret with the credentials, as it is; empty when it is not there, or somebody else's. `owned`: it
    goes with the cluster."""

    value: str = ""
    version: str = ""
    owned: bool = False


def login_steps(cluster: WaltzCluster, facts: Facts, present: LoginSecret) -> tuple[ApplyObject, ...]:
    """The Secret to write now: it is made once, and outlives the cluster where the volumes do, because what
    is on them can only be read with it."""
    login = facts.login
    if login.wanted is ZooKeeperAuthentication.NONE or cluster.spec.paused or cluster.metadata.deleting:
        return ()
    if login.lost:
        return ()
    owned = not keeps_data(cluster)
    if not present.version:
        # without its owner: what an object is created with is not removed by leaving it out later
        value = f"{USER}:{secrets.token_urlsafe(PASSWORD_BYTES)}"
        return (_secret(cluster, value, "", owned=False, reason="the credentials for ZooKeeper"),)
    if present.value and present.owned != owned:
        reason = "it goes with the cluster" if owned else "it stays when the cluster is deleted"
        return (_secret(cluster, present.value, present.version, owned=owned, reason=reason),)
    return ()


def _secret(cluster: WaltzCluster, value: str, version: str, *, owned: bool, reason: str) -> ApplyObject:
    name = topology.zookeeper_secret(cluster)
    metadata: dict[str, object] = {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "resourceVersion": version,
        "labels": {
            LABEL_NAME: "waltz",
            LABEL_INSTANCE: cluster.metadata.name,
            LABEL_MANAGED_BY: MANAGED_BY,
        },
    }
    if owned:
        metadata["ownerReferences"] = [owner(cluster)]
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": metadata,
        "data": {SECRET_KEY: base64.b64encode(value.encode()).decode()},
    }
    return ApplyObject(ObjectKey("Secret", name), body, reason)
