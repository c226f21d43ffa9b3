"""The images of a run: those of `make images`, the load on top, and a second tag to upgrade to."""

from __future__ import annotations

import os

from tests.e2e.shell import run

TAG = "e2e"
NEXT_TAG = "e2e-next"
WORKLOAD = f"waltz-workload:{TAG}"
SPARK = f"waltz-spark:{TAG}"
SHIPPED = ("waltz-operator", "waltz-server", "waltz-storage", "waltz-tools", "waltz-zookeeper")
_BUILD_SECONDS = 900.0


def build_spark() -> None:
    """Build Spark's image, which is large and needed late and on one node."""
    _make("image-spark")


def build() -> list[str]:
    """Build all others and a second tag to upgrade to; their names."""
    _make(*(f"image-{name.removeprefix('waltz-')}" for name in SHIPPED))
    command = ["docker", "build", "--quiet", "-f", "tests/e2e/workload/Dockerfile", "-t", WORKLOAD]
    run([*command, "--build-arg", f"CLIENT_IMAGE=waltz-operator:{TAG}", "."], timeout_seconds=_BUILD_SECONDS)
    names = [f"{name}:{TAG}" for name in SHIPPED]
    following = []
    for name in ("waltz-server", "waltz-storage"):
        following.append(f"{name}:{NEXT_TAG}")
        # Another image, not only another name: a label distinguishes them, as a new version's would.
        run(
            ["docker", "build", "--quiet", "-t", following[-1], "--label", "waltz.dev/e2e=next", "-"],
            text=f"FROM {name}:{TAG}\n",
        )
    return [*names, WORKLOAD, *following]


def _make(*targets: str) -> None:
    run(["make", *targets, f"TAG={TAG}"], timeout_seconds=_BUILD_SECONDS, environment=dict(os.environ))
