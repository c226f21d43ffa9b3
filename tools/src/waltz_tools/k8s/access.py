"""A connection to Kubernetes as the person who runs the command, and what is asked of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from waltz_operator.kube import config, kinds
from waltz_operator.kube.client import Kube, KubeClient
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.kube.remote import PodExec, Remote
from waltz_tools.errors import ToolError

DEFAULT_NAMESPACE = "default"
OPERATOR_NAMESPACE = "waltz-system"


@dataclass(frozen=True, slots=True)
class Place:
    """Which cluster of which Kubernetes: the options of all sub-commands. Namespace of the WaltzCluster."""

    namespace: str = DEFAULT_NAMESPACE
    kubeconfig: str | None = None
    context: str | None = None
    operator_namespace: str = OPERATOR_NAMESPACE


@dataclass(frozen=True, slots=True)
class Session:
    """An open connection."""

    kube: Kube
    remote: Remote
    place: Place

    async def cluster(self, name: str) -> dict[str, Any]:
        """The WaltzCluster; ToolError when there is none."""
        try:
            return await self.kube.get(kinds.WALTZ_CLUSTER, self.place.namespace, name)
        except KubeNotFoundError:
            raise ToolError(f"there is no WaltzCluster {name} in namespace {self.place.namespace}") from None

    async def migrations(self, cluster: str) -> list[dict[str, Any]]:
        """Those of one cluster, the oldest first."""
        found = await self.kube.list(kinds.WALTZ_MIGRATION, self.place.namespace)
        mine = [body for body in found if body.get("spec", {}).get("cluster") == cluster]
        return sorted(mine, key=lambda body: str(body["metadata"].get("creationTimestamp", "")))


@asynccontextmanager
async def open_session(place: Place) -> AsyncIterator[Session]:
    """Connect; KubeConfigError, one line, without a usable kubeconfig."""
    configuration = await config.load(place.kubeconfig, place.context)
    kube = KubeClient(configuration)
    try:
        yield Session(kube, PodExec(configuration), place)
    finally:
        await kube.close()
