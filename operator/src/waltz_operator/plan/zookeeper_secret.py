"""The Secret with the credentials for a managed ZooKeeper, which the operator makes once; `model.login`
decides whether there are to be any. Pure, but for the randomness of new credentials."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass

from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import CLUSTER_UID, LABEL_INSTANCE, LABEL_MANAGED_BY, LABEL_NAME, MANAGED_BY
from waltz_operator.api.parts import ZooKeeperAuthentication
from waltz_operator.model.actions import ApplyObject
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.resources.login import SECRET_KEY

USER = "waltz"
PASSWORD_BYTES = 32


@dataclass(frozen=True, slots=True)
class LoginSecret:
    """The Secret with the credentials, as it is; empty when it is not there, or somebody else's."""

    value: str = ""
    version: str = ""


def login_steps(cluster: WaltzCluster, facts: Facts, present: LoginSecret) -> tuple[ApplyObject, ...]:
    """The Secret to write now: it is made once. Nothing owns it (`kept_data`), because what is on the volumes
    can only be read with it."""
    login = facts.login
    if login.wanted is ZooKeeperAuthentication.NONE or cluster.spec.paused or cluster.metadata.deleting:
        return ()
    if login.lost or present.version:
        return ()
    value = f"{USER}:{secrets.token_urlsafe(PASSWORD_BYTES)}"
    name = topology.zookeeper_secret(cluster)
    metadata: dict[str, object] = {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "resourceVersion": "",
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
        "data": {SECRET_KEY: base64.b64encode(value.encode()).decode()},
    }
    return (ApplyObject(ObjectKey("Secret", name), body, "the credentials for ZooKeeper"),)
