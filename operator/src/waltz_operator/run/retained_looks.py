"""What the API server showed of clusters at rest, kept as long as no watch has reported a change of theirs.

Such a look decides one thing only: that nothing is to be done. Whoever finds that something is reads
everything anew and decides on that, so no write and no proof ever depends on a look that was kept; an old
one can only make the operator later, by `MAX_AGE_SECONDS` at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.migration import WaltzMigration
from waltz_operator.kube.client import Object
from waltz_operator.model.snapshot import KubeView, SecretView, Unknown
from waltz_operator.plan.status.unreadable import UnreadableError
from waltz_operator.run.access import Access

Key = tuple[str, str]
Mark = tuple[int, int]

MAX_AGE_SECONDS = 900.0
"""After so long everything is read anew, whatever the watches report: storage classes, monitors and volumes
of ZooKeeper are not watched, and a watch that was opened anew does not show what was deleted in between."""


@dataclass(frozen=True, slots=True)
class KubernetesLook:
    """The half of an observation that the API server answers. `at`: when reading it began;
    `access_at`: the same of its Secrets, seconds (UNIX time)."""

    body: Object
    cluster: WaltzCluster
    access: Access
    kube: KubeView | Unknown
    migrations: tuple[WaltzMigration, ...] | Unknown
    unreadable: tuple[UnreadableError, ...]
    at: float
    access_at: float
    own_secrets: Mapping[str, SecretView] = field(default_factory=dict)


class RetainedLooks:
    """One writer: the loop. Bounded by the clusters there are."""

    def __init__(self) -> None:
        self.watching: Callable[[], bool] = lambda: False
        """Whether changes are reported at all; nothing is used otherwise."""
        self._looks: dict[Key, KubernetesLook] = {}
        self._changes: dict[Key, int] = {}
        self._listings = 0

    def changed(self, key: Key) -> None:
        """A watch reported something of this cluster."""
        self._changes[key] = self._changes.get(key, 0) + 1
        self._looks.pop(key, None)

    def all_changed(self) -> None:
        """A watch began anew: what was deleted before is not reported."""
        self._listings += 1
        self._looks.clear()

    def mark(self, key: Key) -> Mark:
        """To be taken before the look: see `keep`."""
        return self._changes.get(key, 0), self._listings

    def keep(self, key: Key, mark: Mark, look: KubernetesLook) -> None:
        """Unless something was reported while it was read."""
        if self.mark(key) == mark and isinstance(look.kube, KubeView):
            self._looks[key] = look

    def usable(self, key: Key, now: float) -> KubernetesLook | None:
        """The look that still holds by all that was reported."""
        look = self._looks.get(key)
        if look is None or not self.watching() or not 0 <= now - look.at <= MAX_AGE_SECONDS:
            return None
        return look

    def drop(self, key: Key) -> None:
        """It shows that something is to be done."""
        self._looks.pop(key, None)

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._looks.pop(key, None)
        self._changes.pop(key, None)
