"""The fixed list of reasons: of conditions, of what blocks a step, of Events. One word each, explained in
docs/operator-alerts.md. Pure."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why something is so, is not done, or was done."""

    # all is well
    AS_WANTED = "AsWanted"
    AVAILABLE = "Available"
    # under way
    CREATING = "Creating"
    APPLYING = "Applying"
    RESTARTING = "Restarting"
    CHANGING_REPLICAS = "ChangingReplicas"
    MIGRATING = "Migrating"
    DELETING = "Deleting"
    WAITING_FOR_ZOOKEEPER = "WaitingForZooKeeper"
    WAITING_FOR_SERVERS = "WaitingForServers"
    # the specification, or what it was pointed at, is wrong
    INVALID_SPEC = "InvalidSpec"
    UNKNOWN_FIELDS = "UnknownFields"
    FOREIGN_TREE = "ForeignTree"
    TREE_LOST = "TreeLost"
    TREE_BROKEN = "TreeBroken"
    LEFTOVER_VOLUMES = "LeftoverVolumes"
    NODE_MISMATCH = "NodeMismatch"
    CREDENTIALS_LOST = "CredentialsLost"
    REFUSED_CHANGE = "RefusedChange"
    OTHER_VALUES = "OtherValues"
    WRITE_FAILED = "WriteFailed"
    # not known, hence not done
    KUBERNETES_UNKNOWN = "KubernetesUnknown"
    ZOOKEEPER_UNKNOWN = "ZooKeeperUnknown"
    METADATA_UNKNOWN = "MetadataUnknown"
    NODE_SILENT = "NodeSilent"
    # not safe now
    NO_QUORUM_WITHOUT = "NoQuorumWithoutIt"
    UNSAFE_CHANGE = "UnsafeChange"
    CHANGE_INCOMPLETE = "ChangeIncomplete"
    NO_SPARE_REPLICA = "NoSpareReplica"
    OTHER_NODE_DOWN = "OtherNodeDown"
    COPY_IN_PROGRESS = "CopyInProgress"
    STILL_LISTED = "StillListed"
    NOT_EMPTY = "NotEmpty"
    EXTERNAL_NODE = "ExternalNode"
    ROLL_NOT_SEEN = "RollNotSeen"
    STORAGE_FIRST = "StorageFirst"
    SERVERS_FIRST = "ServersFirst"
    OUTSIDE_WINDOW = "OutsideWindow"
    # something is missing or broken
    NO_TARGET = "NoTarget"
    NO_SOURCE = "NoSource"
    DISK_FULL = "DiskFull"
    DISK_LOST = "DiskLost"
    VOLUME_BEING_DELETED = "VolumeBeingDeleted"
    COPY_FAILED = "CopyFailed"
    EXPORT_OVERDUE = "ExportOverdue"
    AUTHORITY_NOT_TRUSTED = "AuthorityNotTrusted"
    CERTIFICATE_ENDS_SOON = "CertificateEndsSoon"
    CERTIFICATE_MISSING = "CertificateMissing"
    CERTIFICATE_UNSUITABLE = "CertificateUnsuitable"
    CERTIFICATE_NOT_IN_USE = "CertificateNotInUse"
    POD_STUCK = "PodStuck"
    NOT_CAUGHT_UP = "NotCaughtUp"
    UNHEALTHY = "Unhealthy"
    NOT_AVAILABLE = "NotAvailable"
    # the person said so
    PAUSED = "Paused"
    NOT_APPROVED = "NotApproved"
    DRY_RUN = "DryRun"
    CANCELLED = "Cancelled"
    WAITING_ITS_TURN = "WaitingItsTurn"
    COMPLETED = "Completed"
    FAILED = "Failed"
    # what was done
    SCALED = "Scaled"
    PARTITION_MOVED = "PartitionMoved"
    # why a storage node is restarted
    TEMPLATE_CHANGED = "TemplateChanged"
    VOLUME_GROWN = "VolumeGrown"
