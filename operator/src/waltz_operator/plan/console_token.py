"""The Secret with the token of the console, which the operator makes once. Pure, but for the randomness of a
new token."""

from __future__ import annotations

import base64
import secrets

from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.model.actions import ApplyObject
from waltz_operator.model.snapshot import ObjectKey
from waltz_operator.resources.common import CONSOLE, labels, owner
from waltz_operator.resources.console import TOKEN_KEY

TOKEN_BYTES = 32


def token_step(cluster: WaltzCluster, present: bool) -> tuple[ApplyObject, ...]:
    """The Secret to write now: it is made once, and goes with the cluster. `present`: one of this cluster has
    a token."""
    if not cluster.spec.console.enabled or cluster.spec.paused or cluster.metadata.deleting or present:
        return ()
    name = topology.console_secret(cluster)
    token = secrets.token_urlsafe(TOKEN_BYTES).encode()
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "namespace": cluster.metadata.namespace,
            "labels": labels(cluster, CONSOLE),
            "ownerReferences": [owner(cluster)],
        },
        "data": {TOKEN_KEY: base64.b64encode(token).decode()},
    }
    return (ApplyObject(ObjectKey("Secret", name), body, "the token of the console"),)
