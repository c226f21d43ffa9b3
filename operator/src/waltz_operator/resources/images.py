"""Which image each pod runs: the one that is given, else the one of the version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from waltz_operator.api.cluster import Images, WaltzCluster

NAMES = {
    "server": "waltz-server",
    "storage": "waltz-storage",
    "zookeeper": "waltz-zookeeper",
    "console": "waltz-tools",
}
"""By component."""


@dataclass(frozen=True, slots=True)
class ImageDefaults:
    """How the operator is set up. `digests`: by name and version, `waltz-server:0.1.0` → `sha256:…`."""

    registry: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    pull_secrets: tuple[str, ...] = ()


def given(images: Images, role: str) -> str | None:
    """The image that the specification names for the role."""
    found: str | None = getattr(images, role)
    return found


def image_of(cluster: WaltzCluster, defaults: ImageDefaults, version: str | None, role: str) -> str:
    """`version`: the one to run, None = the one of the specification. Empty where neither it nor an image is
    given, which no valid cluster has."""
    images, version = cluster.spec.images, version or cluster.spec.version
    explicit = given(images, role)
    if explicit is not None or version is None:
        return explicit or ""
    registry = defaults.registry if images.registry is None else images.registry
    tagged = f"{NAMES[role]}:{version}"
    digest = defaults.digests.get(tagged)
    return (f"{registry}/" if registry else "") + tagged + (f"@{digest}" if digest else "")


def pull_secrets(images: Images, defaults: ImageDefaults) -> list[dict[str, str]]:
    """As a pod lists them."""
    names = [one.name for one in images.pull_secrets] or defaults.pull_secrets
    return [{"name": name} for name in names]
