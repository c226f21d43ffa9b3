"""The journal of the storage nodes, as a person asks for it (docs/operations.md, *The node journal*)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from waltz_operator.api.base import Model, ResourceName, SizeQuantity, quantity_bytes, rule, rules

FILES = 4
"""Journal files; `size` is for all of them."""
SHARE = 4
"""A volume has at least this many times the size of the journal in it: what is left is for the partitions,
and for the reserve of free space that appends must not touch (2 % of the volume, 1 GiB at most)."""
VOLUME_SHARE = 2
"""A volume of its own has at least this many times the size of the journal: a file system takes its part."""
SMALLEST, LARGEST = "4Mi", "4Gi"
DIRECTORY = "/var/lib/waltz-journal/journal"
"""A volume of its own is mounted one directory above: an empty one is not taken for a journal."""

SIZE = rule(
    f"quantity(self.size).compareTo(quantity('{SMALLEST}')) >= 0 && "
    f"quantity(self.size).compareTo(quantity('{LARGEST}')) <= 0",
    f"must be at least {SMALLEST} and at most {LARGEST}",
    "size",
)


def _times(size: str, number: int) -> str:
    return f"quantity({size})" + f".add(quantity({size}))" * (number - 1)


def _needed() -> str:
    return _times("self.journal.size", SHARE)


_OFF = (
    "!has(self.journal) || !has(self.journal.mode) || self.journal.mode != 'Enabled' || "
    "!has(self.journal.size) || has(self.journal.volume)"
)
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
OWN_VOLUME = rule(
    f"!has(self.volume) || !has(self.size) || quantity(self.volume.size).compareTo({_times('self.size', VOLUME_SHARE)}) >= 0",
    f"the volume of the journal must have at least {VOLUME_SHARE} times the size of the journal",
    "volume",
)
KEPT_VOLUME = rule(
    "!has(oldSelf.journal) || !has(oldSelf.journal.volume) || (has(self.journal) && has(self.journal.volume))",
    "the volume of the journal cannot be taken away: nodes that were not closed in order need what is on it; set mode: "
    "Disabled to write no journal",
    "journal",
)
EITHER_KEYS = "journal and the keys storage.journal.* of config say the same: give one of them"


class JournalMode(StrEnum):
    """Whether storage nodes have one."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class JournalVolume(Model):
    """A claim of its own for the journal of each node, with the rules of the node's data claim."""

    model_config = Model.model_config | {
        "json_schema_extra": rules(
            rule(
                "has(self.storageClassName) == has(oldSelf.storageClassName) && "
                "(!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
                "the storage class of the journal's volume is fixed when it is first set",
                "storageClassName",
            )
        )
    }

    size: SizeQuantity = Field(
        description="Size of each volume, in bytes as Kubernetes writes them: at least twice journal.size; it can grow.",
    )
    storage_class_name: ResourceName | None = Field(
        default=None, description="StorageClass of the volumes. Default: that of the Kubernetes cluster."
    )


class NodeJournal(Model):
    """One journal for all partitions of a storage node, on its volume or on one of its own: one sync for
    everything that arrives together."""

    model_config = Model.model_config | {"json_schema_extra": rules(SIZE, OWN_VOLUME)}

    mode: JournalMode = Field(
        default=JournalMode.ENABLED,
        description="Enabled: nodes have a journal, and a volume that was not closed in order is opened by releases with a "
        "journal only. Disabled: every partition syncs its own files; to be set before a release without a journal is run.",
    )
    size: SizeQuantity = Field(
        default="128Mi",
        description="Size of the journal, in bytes as Kubernetes writes them: 4Mi to 4Gi, and at most a quarter of each volume "
        "that it shares with data.",
    )
    volume: JournalVolume | None = Field(
        default=None,
        description="A claim of its own for each node's journal. It can be added later, and never be taken away. Default: none "
        "(the journal is on the node's volume).",
    )

    @property
    def enabled(self) -> bool:
        return self.mode is JournalMode.ENABLED

    @property
    def keys(self) -> dict[str, object]:
        """Configuration keys of the storage role."""
        where = {} if self.volume is None else {"storage.journal.directory": DIRECTORY}
        if not self.enabled:
            return {"storage.journal.enabled": False, **where}
        return {
            **where,
            "storage.journal.enabled": True,
            "storage.journal.files": FILES,
            "storage.journal.fileBytes": quantity_bytes(self.size) // FILES,
        }

    def fits(self, volume: str) -> bool:
        """Whether a volume of this size has space for it, besides the data."""
        if not self.enabled or self.volume is not None:
            return True
        return quantity_bytes(volume) >= SHARE * quantity_bytes(self.size)

    @property
    def shared_bytes(self) -> int:
        """What it takes of the volume with the data."""
        return quantity_bytes(self.size) if self.enabled and self.volume is None else 0

    @property
    def own_bytes(self) -> int:
        """What it takes of a volume of its own."""
        return quantity_bytes(self.size) if self.enabled and self.volume is not None else 0

    @property
    def fits_own_volume(self) -> bool:
        """Whether the volume of its own, if it has one, is large enough."""
        if self.volume is None:
            return True
        return quantity_bytes(self.volume.size) >= VOLUME_SHARE * quantity_bytes(self.size)

    @property
    def possible(self) -> bool:
        """Whether it may have this size."""
        return quantity_bytes(SMALLEST) <= quantity_bytes(self.size) <= quantity_bytes(LARGEST)
