"""The journal of the storage nodes, as a person asks for it (docs/operations.md, *The node journal*)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from waltz_operator.api.base import Model, SizeQuantity, quantity_bytes, rule, rules

FILES = 4
"""Journal files; `size` is for all of them."""
SHARE = 4
"""A volume has at least this many times the size of the journal in it: what is left is for the partitions,
and for the reserve of free space that appends must not touch (2 % of the volume, 1 GiB at most)."""
SMALLEST, LARGEST = "4Mi", "4Gi"

SIZE = rule(
    f"quantity(self.size).compareTo(quantity('{SMALLEST}')) >= 0 && "
    f"quantity(self.size).compareTo(quantity('{LARGEST}')) <= 0",
    f"must be at least {SMALLEST} and at most {LARGEST}",
    "size",
)


def _needed() -> str:
    text = "quantity(self.journal.size)"
    for _ in range(SHARE - 1):
        text += ".add(quantity(self.journal.size))"
    return text


_OFF = "!has(self.journal) || !has(self.journal.mode) || self.journal.mode != 'Enabled' || !has(self.journal.size)"
VOLUME = rule(
    f"{_OFF} || !has(self.size) || quantity(self.size).compareTo({_needed()}) >= 0",
    f"the journal takes more than a quarter of a volume: storage.size must be at least {SHARE} times journal.size",
    "size",
)
GROUP_VOLUMES = rule(
    f"{_OFF} || !has(self.groups) || "
    f"self.groups.all(g, !has(g.size) || quantity(g.size).compareTo({_needed()}) >= 0)",
    f"the journal takes more than a quarter of a volume: the size of a group must be at least {SHARE} times journal.size",
    "groups",
)
EITHER_KEYS = "journal and the keys storage.journal.* of config say the same: give one of them"


class JournalMode(StrEnum):
    """Whether storage nodes have one."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class NodeJournal(Model):
    """One journal for all partitions of a storage node, on its volume: one sync for everything that arrives
    together."""

    model_config = Model.model_config | {"json_schema_extra": rules(SIZE)}

    mode: JournalMode = Field(
        default=JournalMode.ENABLED,
        description="Enabled: nodes have a journal, and a volume that was not closed in order is opened by releases with a "
        "journal only. Disabled: every partition syncs its own files; to be set before a release without a journal is run.",
    )
    size: SizeQuantity = Field(
        default="128Mi",
        description="Size of the journal, in bytes as Kubernetes writes them: 4Mi to 4Gi, and at most a quarter of each volume.",
    )

    @property
    def enabled(self) -> bool:
        return self.mode is JournalMode.ENABLED

    @property
    def keys(self) -> dict[str, object]:
        """Configuration keys of the storage role."""
        if not self.enabled:
            return {"storage.journal.enabled": False}
        return {
            "storage.journal.enabled": True,
            "storage.journal.files": FILES,
            "storage.journal.fileBytes": quantity_bytes(self.size) // FILES,
        }

    def fits(self, volume: str) -> bool:
        """Whether a volume of this size has space for it."""
        return not self.enabled or quantity_bytes(volume) >= SHARE * quantity_bytes(self.size)

    @property
    def possible(self) -> bool:
        """Whether it may have this size."""
        return quantity_bytes(SMALLEST) <= quantity_bytes(self.size) <= quantity_bytes(LARGEST)
