"""One namespace with a WaltzCluster, an operator that can be killed at any write, and the way to the fixed
point."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from operator_tests.apiserver.guarded import GuardedZooKeeper
from operator_tests.apiserver.installed import make_namespace
from operator_tests.apiserver.machinery import Machinery
from operator_tests.apiserver.writes import write_identity
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.store import ZooKeeperStore
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube, KubeClient, Object
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.model.actions import Action, EmitEvent
from waltz_operator.run.observe import Observation
from waltz_operator.run.process import OperatorParts
from waltz_operator.run.reconcile import PassResult
from waltz_operator.run.zookeeper_sessions import Ensembles
from waltz_operator.settings import OperatorSettings

NAME = "ledger"
_PASSES = 400
_PAUSE_SECONDS = 0.02


class Killed(BaseException):
    """The operator process is gone. Not an Exception: nothing of the operator may catch it."""


class Fate(Protocol):
    """Decides when the operator dies."""

    def strikes(self, moment: str, write: str) -> bool:
        """`moment` is before or after this write (`writes.write_identity`)."""
        ...


class Spared:
    """It never does."""

    def strikes(self, moment: str, write: str) -> bool:
        return False


@dataclass(slots=True)
class Journal:
    """What was written, by all incarnations of the operator, in order."""

    fate: Fate = field(default_factory=Spared)
    lines: list[str] = field(default_factory=list)
    kills: int = 0

    def live_or_die(self, moment: str, write: str, line: str) -> None:
        """Killed, when it is time."""
        if self.fate.strikes(moment, write):
            self.kills += 1
            self.lines.append(f"-- killed {moment} {line}")
            raise Killed(f"{moment} {line}")


class Operator:
    """One incarnation, at its write seam under the journal's control."""

    def __init__(
        self, kube: Kube, zookeeper: GuardedZooKeeper, journal: Journal, clock: Callable[[], float]
    ) -> None:
        async def connect(settings: ZooKeeperSettings) -> ZooKeeperStore:
            return await zookeeper.login(settings, 10.0, "the operator")

        self.parts = OperatorParts(
            kube,
            OperatorSettings(identity="test", operator_image="waltz-operator:test"),
            Ensembles(connect),
            check=lambda: None,
            wall_clock=clock,
        )
        really = self.parts.applier.carry_out

        async def carry_out(action: Action, observation: Observation) -> None:
            if isinstance(action, EmitEvent):
                await really(action, observation)
                return
            write = write_identity(action, observation.snapshot)
            journal.live_or_die("before", write, action.line)
            await really(action, observation)
            journal.lines.append(action.line)
            journal.live_or_die("after", write, action.line)

        self.parts.applier.carry_out = carry_out  # type: ignore[method-assign]

    async def one_pass(self, namespace: str) -> PassResult:
        return await self.parts.reconciler.reconcile(namespace, NAME)

    async def close(self) -> None:
        await self.parts.close()


class World:
    """Owner of the machinery and the present operator."""

    def __init__(
        self, admin: KubeClient, operator_kube: Kube, namespace: str, directory: Path, journal: Journal
    ) -> None:
        self.clock_offset = 0.0
        """Seconds that the operator's clock is away from the real one."""
        self.kube = admin
        self._operator_kube = operator_kube
        self.directory = directory
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """(partition, transaction id) → data of what a client was told is committed."""
        self.namespace = namespace
        self.zookeeper = GuardedZooKeeper()
        self.machinery = Machinery(admin, namespace, directory, self.zookeeper)
        self.journal = journal
        self.operator = self.new_operator()
        self.old_authority = b""
        self.errors: list[str] = []
        """What ended passes early; not that the world had moved on between a look and a write, which happens
        on a busy machine."""

    async def open(self) -> None:
        await make_namespace(self.kube, self.namespace)

    async def close(self) -> None:
        await self.operator.close()
        await self.machinery.close()

    async def restart_operator(self) -> None:
        await self.operator.close()
        self.operator = self.new_operator()

    def new_operator(self, kube: Kube | None = None) -> Operator:
        """An operator that knows nothing yet. Whoever asks for another one than the present closes it."""
        return Operator(kube or self._operator_kube, self.zookeeper, self.journal, self._now)

    def _now(self) -> float:
        return time.time() + self.clock_offset

    # ---- the person

    async def create(self, spec: dict[str, Any]) -> Object:
        body = {
            "apiVersion": "waltz.dev/v1alpha1",
            "kind": "WaltzCluster",
            "metadata": {"name": NAME, "namespace": self.namespace},
            "spec": spec,
        }
        return await self.kube.create(body)

    async def cluster(self) -> Object:
        return await self.kube.get(kinds.WALTZ_CLUSTER, self.namespace, NAME)

    async def change(self, spec: dict[str, Any]) -> Object:
        """A merge patch of the specification."""
        return await self.kube.merge_patch(kinds.WALTZ_CLUSTER, self.namespace, NAME, {"spec": spec})

    async def delete(self) -> None:
        body = await self.cluster()
        await self.kube.delete(kinds.WALTZ_CLUSTER, self.namespace, NAME, uid=body["metadata"]["uid"])

    # ---- the way to the fixed point

    async def settle(self) -> int:
        """Passes until two in a row write nothing while nothing else moves; the number of passes. Killed
        operators are started anew."""
        idle = 0
        for number in range(_PASSES):
            try:
                result = await self.operator.one_pass(self.namespace)
            except Killed:
                await self.restart_operator()
                await self.machinery.settle()
                idle = 0
                continue
            except KubeNotFoundError:
                await self.machinery.settle()
                return number
            if result.error and not result.passing:
                self.errors.append(result.error)
            before = len(self.journal.lines)
            await self.machinery.settle()
            quiet = not result.wrote and not result.error and len(self.journal.lines) == before
            idle = idle + 1 if quiet and await self.calm() else 0
            if idle >= 2:
                return number
            await asyncio.sleep(_PAUSE_SECONDS)  # servers and storage nodes go on by themselves
        body = await self.cluster()
        raise TimeoutError(f"no fixed point; status: {body.get('status')}")

    async def story(self) -> str:
        """What happened so far, for who has to find out why a test failed."""
        bodies = await self.kube.list(kinds.WALTZ_CLUSTER, self.namespace)
        bodies += await self.kube.list(kinds.WALTZ_MIGRATION, self.namespace)
        statuses = yaml.safe_dump([body.get("status") for body in bodies])
        return "\n".join(
            ["writes:", *self.journal.lines[-60:], "errors:", *self.errors[-5:], "statuses:", statuses]
        )

    async def migrate(self, name: str, **what: Any) -> None:
        """Create a WaltzMigration."""
        await self.kube.create(
            {
                "apiVersion": "waltz.dev/v1alpha1",
                "kind": "WaltzMigration",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"cluster": NAME, **what},
            }
        )

    async def migration(self, name: str) -> Object:
        return await self.kube.get(kinds.WALTZ_MIGRATION, self.namespace, name)

    async def calm(self) -> bool:
        """The status says that nothing is under way, of the cluster and of every migration."""
        body = await self.cluster()
        if body["metadata"].get("deletionTimestamp") is not None:
            return False
        status = body.get("status", {})
        if status.get("observedGeneration") != body["metadata"]["generation"]:
            return False
        migrations = await self.kube.list(kinds.WALTZ_MIGRATION, self.namespace)
        phases = [one.get("status", {}).get("phase") for one in migrations]
        if any(phase not in ("Completed", "Cancelled", "Failed", "Planned") for phase in phases):
            return False
        conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
        return conditions.get("Progressing") == "False" and conditions.get("ReplicasCaughtUp") == "True"
