"""What the objects depend on besides the specification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from waltz_operator.resources.images import ImageDefaults
from waltz_operator.resources.login import Level
from waltz_operator.tls.secrets import MaterialDigests

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """A claim that exists: the size it asks for, bytes, and its storage class."""

    size_bytes: int
    storage_class: str | None = None


@dataclass(frozen=True, slots=True)
class RenderInputs:
    """What is not in the specification.

    `live`: objects that exist, by (kind, name), as the API server shows them. A pod template and its
    configuration are kept as they are in there while nothing that a person decides has changed, so that
    another version of the operator restarts nothing.
    """

    operator_image: str = ""
    """Image of copy jobs."""
    operator_namespace: str = "waltz-system"
    images: ImageDefaults = field(default_factory=ImageDefaults)
    version: str | None = None
    """The release to run, where images follow from it; None = that of the specification."""
    tls_digests: Mapping[str, MaterialDigests] = field(default_factory=dict)
    """By role (server, storage): of the Secret that its pods mount."""
    auth_hash: str = ""
    """Digest of the Secret with the credentials for ZooKeeper; empty without one."""
    login: Level = Level.NONE
    """What the roles do in a managed ZooKeeper whose credentials the operator makes."""
    volumes: Mapping[str, VolumeFacts] = field(default_factory=dict)
    """Claims that exist, by name."""
    zookeeper_members: int | None = None
    """Number of servers that the managed ZooKeeper has or may have now; None: as many as are wanted."""
    storage_evictions: bool = True
    """Whether Kubernetes may evict a storage pod now (every partition is proven to be caught up, and no
    volume would go with its pod)."""
    broken_evictions: bool = False
    """Whether the storage pods that are unready may be evicted whatever the others do (they are proven not to
    run)."""
    zookeeper_evictions: bool = True
    """Whether it may evict a pod of the managed ZooKeeper (no volume would go with it)."""
    server_addresses: tuple[tuple[str, ...], ...] = ()
    """IP addresses of every server pod."""
    live: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
