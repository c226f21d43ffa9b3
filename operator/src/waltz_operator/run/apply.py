"""Carrying out a plan, in order: the only code of the operator that writes anywhere.

An object that the API server does not take as it is (`Outcome.rejected`) ends no pass: who asked plans
again without it. Any other call that it refuses for good (`Outcome.refused`) ends the plan that it is of.

Before each write `check` is asked (the Lease). Each write has its preconditions (uid, resource version,
data version, the proofs of `waltz_admin`): when the world has moved on it is refused, the pass ends there,
and the next one plans again. So at most one thing is in doubt after a crash, and looking again shows what
became of it. Before the first destructive step of a pass the world is looked at a second time, and each such
step must be proven right by that look too (`plan.preconditions`): the first one may have been an old
answer. For a change of the copies that look is at what its proof depends on: the specification, ZooKeeper and
the storage nodes. After a copy was switched on or made it is looked at once more, for what is done with it.

What each action does to Kubernetes is in `write_kubernetes`, to ZooKeeper and to storage nodes in
`write_waltz`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from waltz_admin.errors import AdminError, AdminLockBusyError, AdminLockLostError, UnsafeChangeError
from waltz_cluster.errors import ClusterError, VersionConflictError
from waltz_operator.api import topology
from waltz_operator.api.errors import ResourceError
from waltz_operator.kube.errors import KubeConflictError, KubeError, KubeForbiddenError, KubeNotFoundError
from waltz_operator.kube.kinds import EXTENSIONS
from waltz_operator.model.actions import (
    Action,
    ApplyObject,
    CopyPartition,
    DeleteObject,
    DeletePVC,
    EmitEvent,
    KubernetesAction,
    SetAvailability,
    SetFinalizer,
    SetStatus,
)
from waltz_operator.model.snapshot import KubeView, ObjectKey
from waltz_operator.model.texts import first_texts
from waltz_operator.plan.preconditions import OF_COPIES, prove
from waltz_operator.plan.safety_gates import Allowed
from waltz_operator.plan.status.unreadable import UnreadableError
from waltz_operator.run.lease import LeaseLostError
from waltz_operator.run.migrations_left import to_release, without_cluster
from waltz_operator.run.observe import Observation, one_line
from waltz_operator.run.write_kubernetes import KubernetesWriter
from waltz_operator.run.write_waltz import WaltzWriter
from waltz_protocol.errors import WaltzProtocolError

_log = logging.getLogger(__name__)

_QUIET = (SetStatus, EmitEvent)
_PASSING = (
    KubeConflictError,
    VersionConflictError,
    UnsafeChangeError,
    AdminLockBusyError,
    AdminLockLostError,
)
"""Nothing was written: somebody else was at work, or the precondition no longer held."""

Look = Callable[[str, str], Awaitable[Observation]]
LookAtCopies = Callable[[Observation], Awaitable[Observation]]

NOT_INSTALLED = "KindNotInstalled"
MAX_TEXT = 600
"""Characters of an error that are reported: the API server may print whole objects."""
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done` actions were carried out; `failed` is the one that came next and was not, with `error`, or
    None. `passing`: the world has moved on since the look, which the next one settles."""

    done: tuple[Action, ...]
    failed: Action | None = None
    error: str = ""
    retriable: bool = True
    passing: bool = False

    @property
    def rejected(self) -> ApplyObject | DeleteObject | None:
        """The object that the API server rejects, however often it is asked; whatever does not depend on
        it may continue."""
        return None if self.retriable else self._object

    @property
    def unsure(self) -> ApplyObject | DeleteObject | None:
        """The object whose write failed and may succeed later; what became of it is not known."""
        return self._object if self.retriable and not self.passing else None

    @property
    def refused(self) -> KubernetesAction | None:
        """The call of the API server that it refuses for good: nothing was written. No record (a status, the
        finalizer), since everything else depends on those, and nothing in ZooKeeper or on a node, which is
        more than one write."""
        if self.retriable or isinstance(self.failed, SetStatus | SetFinalizer):
            return None
        return self.failed if isinstance(self.failed, KubernetesAction) else None

    @property
    def _object(self) -> ApplyObject | DeleteObject | None:
        return self.failed if isinstance(self.failed, ApplyObject | DeleteObject) else None


class Applier:
    """The one writer; see the module. `check` raises LeaseLostError when nothing may be written any
    longer."""

    def __init__(
        self,
        kube: KubernetesWriter,
        waltz: WaltzWriter,
        look: Look,
        look_at_copies: LookAtCopies,
        check: Callable[[], None],
    ) -> None:
        """`look`: observe the cluster of that namespace and name. `look_at_copies`: observe anew what the
        proofs about copies depend on, with the rest of that observation."""
        self._look = look
        self._look_at_copies = look_at_copies
        self._kube = kube
        self._waltz = waltz
        self._check = check

    async def apply(self, actions: Iterable[Action], observation: Observation) -> Outcome:
        """Carry out the actions until one fails. LeaseLostError ends it at once and passes; cancellation does
        when the write under way has ended, so that whoever waits for the end may give the Lease away."""
        done: list[Action] = []
        second: Observation | None = None
        copies: Observation | None = None
        metadata = observation.snapshot.cluster.metadata
        for action in actions:
            self._check()
            try:
                if action.destructive:
                    if isinstance(action, OF_COPIES):
                        seen = copies = second or copies or await self._look_at_copies(observation)
                    else:
                        seen = second = second or await self._look(metadata.namespace, metadata.name)
                    answer = prove(observation.snapshot, seen.snapshot, action)
                    if not isinstance(answer, Allowed):
                        text = f"the precondition no longer holds: {answer.blocked.text}"
                        _log.warning("%s: %s: %s", metadata.name, action.line, text)
                        return Outcome(tuple(done), action, text, passing=True)
                    self._check()
                await _to_its_end(self.carry_out(action, observation))
            except LeaseLostError:
                raise
            except (KubeError, ResourceError, AdminError, ClusterError, WaltzProtocolError, OSError) as error:
                if _not_installed(action, error):
                    await self._tell_not_installed(action, observation)
                    continue
                text = _steady(one_line(error))
                _log.warning("%s: %s: refused or failed: %s", metadata.name, action.line, text)
                retriable = bool(getattr(error, "retriable", True))
                return Outcome(tuple(done), action, text, retriable, isinstance(error, _PASSING))
            level = logging.DEBUG if isinstance(action, _QUIET) else logging.INFO
            _log.log(level, "%s: done: %s", metadata.name, action.line)
            done.append(action)
            if isinstance(action, CopyPartition | SetAvailability):
                second = copies = None  # they do not show what comes next depends on
        return Outcome(tuple(done))

    async def tell_unreadable(self, error: UnreadableError) -> str:
        """Say in the status of an object that it cannot be read. What went wrong with that, empty when
        nothing did; LeaseLostError."""
        self._check()
        try:
            await _to_its_end(self._kube.tell_unreadable(error))
        except KubeConflictError:
            return ""  # it is being edited: the next pass reads it anew
        except KubeError as failure:
            return one_line(failure)
        return ""

    async def see_to_migrations(self, namespace: str, cluster: str, now: float) -> str:
        """Of a cluster that does not exist: let the deleted ones go, and say to those that wait for it that
        they do. What went wrong with that, empty when nothing did; LeaseLostError."""
        try:
            bodies = await self._kube.migrations_of(namespace, cluster)
        except KubeError as failure:
            return one_line(failure)
        problems: list[str] = []
        for body in bodies:
            status = without_cluster(body, now)
            try:
                if to_release(body):
                    self._check()
                    await _to_its_end(self._kube.release_migration(body))
                elif status is not None:
                    self._check()
                    await _to_its_end(self._kube.report_no_cluster(body, status))
            except KubeNotFoundError:
                continue  # it has gone meanwhile
            except KubeError as failure:
                problems.append(f"WaltzMigration {body['metadata']['name']}: {one_line(failure)}")
        return first_texts(problems)

    async def _tell_not_installed(self, action: Action, observation: Observation) -> None:
        """Somebody asked for an object of a kind whose definition is not installed: reported, and the rest
        continues."""
        about = ObjectKey("WaltzCluster", observation.snapshot.cluster.metadata.name)
        text = f"{action.line}: its definition is not installed in the Kubernetes cluster, or not permitted"
        await self._kube.carry_out(EmitEvent(about, NOT_INSTALLED, text, "Warning"), observation)

    async def carry_out(self, action: Action, observation: Observation) -> None:
        """One external write. The deletion of a volume is proven once more, right before it."""
        if isinstance(action, DeletePVC):
            await self._prove_volume_unused(action, observation)
        if isinstance(action, KubernetesAction):
            await self._kube.carry_out(action, observation)
        else:
            await self._waltz.carry_out(action, observation)

    async def _prove_volume_unused(self, action: DeletePVC, observation: Observation) -> None:
        """Of a cluster that lives on. When all of it is deleted the person's reclaim policy has decided."""
        cluster = observation.snapshot.cluster
        if cluster.metadata.deleting:
            return
        kube = observation.snapshot.kube
        view = kube.pvcs.get(action.name) if isinstance(kube, KubeView) else None
        if view is None or not view.group or not view.node:
            raise AdminError(f"{action.name} is not known as the volume of a storage node")
        node = topology.node_identity(cluster, view.group, view.node, None)
        await self._waltz.prove_unused(node.connect_string, observation)


async def _to_its_end(write: Awaitable[None]) -> None:
    """Await a write; cancellation waits for it first (it has its own time limits)."""
    ending = asyncio.gather(write, return_exceptions=True)
    try:
        (result,) = await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait({ending})
        raise
    if isinstance(result, BaseException):
        raise result


def _steady(text: str) -> str:
    """The same refusal in the same words: the API server prints the addresses of what it compared."""
    return _ADDRESS.sub("0x…", text)[:MAX_TEXT]


def _not_installed(action: Action, error: Exception) -> bool:
    """A definition of somebody else's that is missing, not a namespace or an object."""
    kinds = {kind.kind for kind in EXTENSIONS}
    return (
        isinstance(action, ApplyObject)
        and action.key.kind in kinds
        and isinstance(error, KubeNotFoundError | KubeForbiddenError)
    )
