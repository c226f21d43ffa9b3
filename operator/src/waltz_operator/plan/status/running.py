"""What the pods run, for the status. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from waltz_operator.api.cluster_status import RunningImage
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import KubeView
from waltz_operator.model.versions import parsed, version_of_pod

COMPONENTS = ("zookeeper", "storage", "server")
MAX_IMAGES = 32
MAX_NAMES = 10


def running_images(facts: Facts) -> tuple[RunningImage, ...]:
    """By component, image and version; of pods that are on their way out too, since they still run."""
    pods: dict[tuple[int, str, str], list[str]] = {}
    if isinstance(facts.kube, KubeView):
        for name, pod in sorted(facts.kube.pods.items()):
            if pod.component in COMPONENTS and pod.image:
                version = version_of_pod(pod)
                what = (COMPONENTS.index(pod.component), pod.image, "" if version is None else str(version))
                pods.setdefault(what, []).append(name)
    return tuple(
        RunningImage(
            component=COMPONENTS[component],
            image=image,
            version=version or None,
            pods=len(names),
            names=tuple(names[:MAX_NAMES]),
        )
        for (component, image, version), names in sorted(pods.items())[:MAX_IMAGES]
    )


def running_versions(images: Sequence[RunningImage]) -> list[str]:
    """Each release once, the earliest first."""
    found = {parsed(one.version) for one in images if one.version is not None}
    return [str(one) for one in sorted(found)]
