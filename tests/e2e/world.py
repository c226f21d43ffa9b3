"""What a scenario works with: the cluster under test, what it says about itself, and the load on it."""

from __future__ import annotations

from typing import Any

import yaml

from tests.e2e import kind
from tests.e2e.images import TAG
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.load import Load
from tests.e2e.shell import ROOT, CommandError

NAMESPACE = "waltz-e2e"
OPERATOR_NAMESPACE = "waltz-system"
CLUSTER = "ledger"
WAIT_SECONDS = 600.0
"""How long anything may take on a machine that is slow; how long it took is in the table."""
STORAGE = f"app.kubernetes.io/instance={CLUSTER},app.kubernetes.io/component=storage"
SERVERS = f"app.kubernetes.io/instance={CLUSTER},app.kubernetes.io/component=server"


class World:
    """One run. `first_node` is the node that is never killed: ZooKeeper and the load are there. `name`: of
    the WaltzCluster, in `namespace`."""

    def __init__(
        self,
        kubectl: Kubectl,
        first_node: str = kind.NODES[0],
        namespace: str = NAMESPACE,
        name: str = CLUSTER,
        *,
        journal: bool = False,
    ) -> None:
        self.name = name
        self.journal = journal
        self.kubectl = kubectl.in_namespace(namespace)
        self.first_node = first_node
        self.load = Load(self.kubectl, self.first_node)
        self.notes: list[str] = []

    # -- the object ------------------------------------------------------------------------------------------

    def specification(self) -> dict[str, Any]:
        """tests/e2e/cluster.yaml with the image tags of this run, and the journal if it asks for it."""
        body: dict[str, Any] = yaml.safe_load((ROOT / "tests/e2e/cluster.yaml").read_text())
        images = body["spec"]["images"]
        body["spec"]["images"] = {role: f"waltz-{role}:{TAG}" for role in images}
        managed = body["spec"]["zookeeper"]["managed"]
        managed["podTemplate"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.first_node}
        if self.journal:
            body["spec"]["storage"]["journal"] = {"size": "16Mi"}
        return body

    def change(self, **spec: Any) -> None:
        """Patch the specification."""
        self.kubectl.patch("waltzcluster", self.name, {"spec": spec})

    def cluster(self) -> dict[str, Any]:
        """The object now."""
        return self.kubectl.get("waltzcluster", self.name)

    def condition(self, kind_of: str) -> str:
        """Status of one of its conditions; empty when it has none."""
        conditions = self.cluster().get("status", {}).get("conditions", [])
        return next((str(found["status"]) for found in conditions if found["type"] == kind_of), "")

    def wait_for(self, condition: str, status: str, timeout_seconds: float) -> None:
        """Wait for a condition."""
        wait_until(
            f"condition {condition}={status}", lambda: self.condition(condition) == status, timeout_seconds
        )

    def settle(self, timeout_seconds: float = WAIT_SECONDS) -> None:
        """Wait until the operator has done all there is to do and every copy has caught up."""
        wait_until("the cluster settles", self._settled, timeout_seconds)

    def _settled(self) -> bool:
        body = self.cluster()
        status = body.get("status", {})
        conditions = {
            found["type"]: (found["status"], found["reason"]) for found in status.get("conditions", [])
        }
        # A blocked operator makes no progress either: then the reason says what it waits for.
        wanted = {
            "Available": "True",
            "Progressing": "False",
            "Degraded": "False",
            "ReplicasCaughtUp": "True",
        }
        return (
            status.get("observedGeneration") == body["metadata"]["generation"]
            and not status.get("operation")
            and all(conditions.get(name) == (value, "AsWanted") for name, value in wanted.items())
        )

    # -- its pods --------------------------------------------------------------------------------------------

    def pods(self, selector: str) -> dict[str, str]:
        """Name -> uid."""
        found = self.kubectl.list("pods", selector)
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}

    def wait_replaced(
        self, selector: str, before: dict[str, str], timeout_seconds: float, count: int | None = None
    ) -> None:
        """Wait until none of the pods of `before` is there, and as many as before (or `count`) are, all
        ready."""
        wanted = len(before) if count is None else count

        def replaced() -> bool:
            pods = self.kubectl.list("pods", selector)
            ready = [pod for pod in pods if _ready(pod) and pod["metadata"]["uid"] not in before.values()]
            return len(ready) == len(pods) == wanted

        wait_until(f"pods {', '.join(sorted(before))} are replaced", replaced, timeout_seconds)

    # -- migrations ------------------------------------------------------------------------------------------

    def migrate(self, name: str, timeout_seconds: float = WAIT_SECONDS, **what: Any) -> dict[str, Any]:
        """Make a WaltzMigration and wait for its end; its status. CommandError when it fails."""
        body = {
            "apiVersion": "waltz.dev/v1alpha1",
            "kind": "WaltzMigration",
            "metadata": {"name": name},
            "spec": {"cluster": self.name, **what},
        }
        self.kubectl.apply(body)

        def ended() -> dict[str, Any] | None:
            status: dict[str, Any] = self.kubectl.get("waltzmigration", name).get("status", {})
            return status if status.get("phase") in ("Completed", "Failed", "Cancelled") else None

        status = wait_until(f"migration {name} ends", ended, timeout_seconds)
        if status["phase"] != "Completed":
            raise CommandError(f"migration {name}: {status['phase']}: {status.get('message')}")
        return status


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)
