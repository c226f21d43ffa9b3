"""What ZooKeeper has at a cluster's root when it has no complete cluster. Pure.

Both are positive answers: ZooKeeper was asked, and said so. What cannot be read is neither of them.
"""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class NoTree:
    """There is nothing at the root, or an empty znode without children."""


@dataclass(frozen=True, slots=True)
class BrokenTree:
    """What is at the root is no complete cluster (half made, other data, parts deleted). `name` and
    `cluster_key` as far as they can be read; `bare`: there is nothing below the root."""

    reason: str
    name: str | None = None
    cluster_key: UUID | None = None
    bare: bool = False

    def rest_of(self, name: str, cluster_key: UUID) -> bool:
        """Whether it is what a deletion of that cluster left: root and key are deleted last, together; older
        versions left the root with the name alone (safety rule A7: nothing else is touched)."""
        if self.cluster_key is None:
            return self.bare and self.name == name
        return self.cluster_key == cluster_key and self.name is not None
