"""Which release a cluster may be brought to, from those that its pods run. Pure.

Releases that follow each other work together in any mixture (ADR 20), and nothing is tried further apart. So
a cluster goes up or down by one release at a time, and the next step begins when no pod runs the one before.
A release is the first two numbers of a version: versions that differ in the third only are one release.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.model.snapshot import KubeView, PodView, Unknown
from waltz_operator.resources.common import CONSOLE
from waltz_operator.resources.images import NAMES, given
from waltz_protocol import __version__

_TAG = re.compile(r":(?P<version>\d{1,5}\.\d{1,5}\.\d{1,5})(@.*)?\Z")


class Version(NamedTuple):
    """A release and its patch."""

    major: int
    minor: int
    patch: int

    @property
    def release(self) -> tuple[int, int]:
        """What compatibility is about."""
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class VersionPlan(NamedTuple):
    """`target`: the version to run; None: images name it, or it is not known yet. `refused`: why it is not
    the one that is wanted. `down`: some pod runs a later one."""

    target: str | None = None
    refused: str = ""
    down: bool = False


def parsed(text: str) -> Version:
    """ValueError for what is no version."""
    major, minor, patch = (int(part) for part in text.split("."))
    return Version(major, minor, patch)


def version_of(image: str) -> Version | None:
    """The version that the tag of an image names; None where it names none."""
    found = _TAG.search(image)
    return parsed(found["version"]) if found else None


def version_of_pod(pod: PodView) -> Version | None:
    """By its image; where that names none (a webhook has replaced the tag by a digest), by the one that the
    operator wrote."""
    return version_of(pod.image) or version_of(pod.written_image)


def own_version() -> Version:
    """Of this operator."""
    return parsed(".".join(re.findall(r"\d+", __version__)[:3]))


def next_to_each_other(one: Version, other: Version) -> bool:
    """Whether they are of one release, or one of the release after the other's: the next minor number, or the
    first of the next major one."""
    low, high = sorted((one.release, other.release))
    return high in (low, (low[0], low[1] + 1), (low[0] + 1, 0))


def refusal(wanted: Version, running: Iterable[Version], own: Version) -> str:
    """Why `wanted` is not begun, with the way; empty when it may be."""
    if wanted.release > own.release:
        return f"this operator is of {own} and does not know {wanted}: upgrade the operator first"
    for one in sorted(set(running)):
        if next_to_each_other(one, wanted):
            continue
        if wanted > one:
            step = f"{one.major}.{one.minor + 1}, or {one.major + 1}.0 where that is the next release"
            return f"pods run {one}, and an upgrade goes by one release at a time: go to {step}, first"
        step = f"{one.major}.{one.minor - 1}" if one.minor else f"the last release of {one.major - 1}"
        return f"pods run {one}, and the way back goes by one release at a time: go to {step}, first"
    return ""


def governed(cluster: WaltzCluster) -> frozenset[str]:
    """Components whose image follows from the version. A console of another release shows the cluster as
    well, and holds up none."""
    return frozenset(role for role in NAMES if role != CONSOLE and given(cluster.spec.images, role) is None)


def running(pods: Iterable[PodView], components: frozenset[str]) -> list[Version]:
    """Versions of the pods of these components, as far as it is known."""
    found = (version_of_pod(pod) for pod in pods if pod.component in components)
    return [one for one in found if one is not None]


def version_plan(cluster: WaltzCluster, kube: KubeView | Unknown, own: Version) -> VersionPlan:
    """What is run of what is wanted. A version that was accepted stays accepted: its roll-out is finished,
    and every other one is measured by all that pods run, so none is accepted while these are not known."""
    wanted, accepted = cluster.spec.version, cluster.status.version
    if wanted is None:
        return VersionPlan()
    if isinstance(kube, Unknown):
        return VersionPlan(accepted)
    found = running(kube.pods.values(), governed(cluster))
    target, refused = wanted, ""
    if wanted != accepted:
        before = version_of(f":{accepted}")
        refused = refusal(parsed(wanted), [*found, *([before] if before else [])], own)
        if refused:
            target = accepted or ""
    down = bool(target) and any(one.release > parsed(target).release for one in found)
    return VersionPlan(target or None, refused, down)
