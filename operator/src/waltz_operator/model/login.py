"""Who may use the managed ZooKeeper, and the way from one answer to another without locking a running role
out. Pure (ADR 22).

Three things change, each only when the one before is seen to be so: the level of the servers and storage
nodes (`resources.login`), by restarts; a mark on the root of ZooKeeper (`Closure`); the permissions of all
znodes.

to close: everybody at SHARED → mark CHANGING → everybody at OWN → all znodes closed → mark CLOSED
to open:  mark CHANGING → everybody at SHARED → all znodes opened → mark OPEN → (None only) everybody at NONE

The mark OPEN means that all znodes are open and nobody creates a closed one, CLOSED the contrary, and
CHANGING anything in between; so whoever is at NONE finds nothing closed, and CLOSED leaves nothing open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waltz_operator.api.parts import ZooKeeperAuthentication
from waltz_operator.model.desired import Desired, Memory
from waltz_operator.model.snapshot import Closure, KubeView, Unknown
from waltz_operator.resources.login import Level

ROLES = ("server", "storage")


@dataclass(frozen=True, slots=True)
class LoginState:
    """What the decisions are made from. `credentials`: digest of those in the Secret, empty without one.
    `closure`: the mark, None when it could not be read, or was not asked for. `external`: whether a storage
    node is not the operator's own, one too that is about to leave."""

    desired: Desired
    memory: Memory
    kube: KubeView | Unknown
    credentials: str
    closure: Closure | None
    external: bool

    @property
    def wanted(self) -> ZooKeeperAuthentication:
        """What the specification says, or what it was for a cluster that does not say."""
        if not self.desired.own_login:
            return ZooKeeperAuthentication.NONE
        if self.desired.authentication is not None:
            return self.desired.authentication
        if self.memory.authentication is not None:
            return self.memory.authentication
        if self.credentials or self._begins:
            return ZooKeeperAuthentication.DIGEST
        return ZooKeeperAuthentication.NONE

    @property
    def _begins(self) -> bool:
        """Whether nothing of the cluster is there yet, and nobody else's processes are part of it."""
        kube = self.kube
        return (
            isinstance(kube, KubeView)
            and not (kube.statefulsets or kube.pvcs or kube.pods or kube.deployment)
            and self.memory.cluster_key is None
            and self.desired.adopt_key is None
            and not self.external
        )

    @property
    def lost(self) -> str:
        """Why the credentials cannot be used: those in use are not there, or are others by now. Empty when
        all is well."""
        used = self.memory.credentials
        if not used or self.credentials == used:
            return ""
        return "has other credentials than the roles were given" if self.credentials else "is missing"

    def levels(self) -> Iterator[Level]:
        """Of every role that runs, or that a controller may start at any moment."""
        if not isinstance(self.kube, KubeView):
            return
        yield from (pod.login for pod in self.kube.pods.values() if pod.component in ROLES)
        yield from (one.login for one in self.kube.statefulsets.values() if one.node)
        if self.kube.deployment is not None:
            yield self.kube.deployment.login
        if self.external:
            yield Level.NONE

    def _seen(self) -> bool:
        """Whether controllers have taken every change, so that none starts a pod of an earlier template."""
        kube = self.kube
        return (
            isinstance(kube, KubeView)
            and all(one.settled for one in kube.statefulsets.values() if one.node)
            and (kube.deployment is None or kube.deployment.calm)
        )

    def everybody_at_least(self, level: Level) -> bool:
        """Whether every role is proven to have this level or a higher one."""
        return self._seen() and all(one >= level for one in self.levels())

    def everybody_at_most(self, level: Level) -> bool:
        """Whether every role is proven to have this level or a lower one."""
        return self._seen() and all(one <= level for one in self.levels())

    @property
    def _standing(self) -> Closure | None:
        """The mark as far as it can be believed: OPEN beside a role, or an operator, that closes what it
        creates is that of a ZooKeeper whose data were lost or restored."""
        own = self.memory.login is Level.OWN or Level.OWN in self.levels()
        return Closure.CHANGING if self.closure is Closure.OPEN and own else self.closure

    @property
    def level(self) -> Level:
        """The level that the roles are to have now."""
        if not self.credentials or self.lost:
            return Level.NONE
        highest = max(self.levels(), default=Level.NONE)
        wanted, closure = self.wanted, self._standing
        if wanted is ZooKeeperAuthentication.DIGEST:
            if closure is None:
                return Level.OWN if highest is Level.OWN else Level.SHARED
            may = closure is not Closure.OPEN and all(one >= Level.SHARED for one in self.levels())
            return Level.OWN if may else Level.SHARED
        if closure is Closure.CLOSED or (closure is None and highest is Level.OWN):
            return Level.OWN  # first the mark
        if wanted is ZooKeeperAuthentication.OPTIONAL or closure is Closure.CHANGING:
            return Level.SHARED
        if closure is None:
            return min(highest, Level.SHARED)
        return Level.SHARED if highest is Level.OWN else Level.NONE

    @property
    def mark(self) -> Closure | None:
        """The mark to be set now, with the permissions that go with it; None for none. The operator itself is
        a role: what it creates is as the last status says (`memory.login`)."""
        if self.closure is None or self.lost or self.memory.credentials != self.credentials:
            return None
        if self._standing is not self.closure:
            return self._standing
        own, own_level = self.wanted is ZooKeeperAuthentication.DIGEST, self.memory.login
        match self.closure:
            case Closure.OPEN if own and self.everybody_at_least(Level.SHARED) and own_level >= Level.SHARED:
                return Closure.CHANGING
            case Closure.CHANGING if own and self.everybody_at_least(Level.OWN) and own_level is Level.OWN:
                return Closure.CLOSED
            case Closure.CHANGING if (
                not own and self.everybody_at_most(Level.SHARED) and own_level is Level.SHARED
            ):
                return Closure.OPEN
            case Closure.CLOSED if not own:
                return Closure.CHANGING
        return None

    @property
    def waits_for(self) -> str:
        """Why the mark is not set yet although it is to be; for people."""
        if self.wanted is ZooKeeperAuthentication.DIGEST and self.external:
            return "a storage node is external: the operator cannot see whether it has the credentials"
        return ""
