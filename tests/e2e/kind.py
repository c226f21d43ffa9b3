"""The Kubernetes cluster of a run: made by kind, of three nodes that all take pods."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.e2e.shell import CommandError, run

NAME = "waltz-e2e"
NODES = (f"{NAME}-control-plane", f"{NAME}-worker", f"{NAME}-worker2")
_NODE_IMAGE = "KIND_NODE_IMAGE"
_PAUSE_SECONDS = 5.0


def _configuration() -> str:
    # Every node takes pods, so that three storage nodes run apart; taints of the control plane are taken
    # off.
    initial = {"kind": "InitConfiguration", "nodeRegistration": {"taints": []}}
    control = {"role": "control-plane", "kubeadmConfigPatches": [yaml.safe_dump(initial)]}
    return yaml.safe_dump(
        {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [control, {"role": "worker"}, {"role": "worker"}],
        }
    )


@contextmanager
def cluster(folder: Path, *, keep: bool, reuse: bool) -> Iterator[Path]:
    """A cluster and the path of its kubeconfig; deleted at the end unless `keep`. KIND_NODE_IMAGE chooses the
    node image."""
    kubeconfig = folder / "kubeconfig"
    there = NAME in run(["kind", "get", "clusters"]).split()
    if there and reuse:
        run(["kind", "export", "kubeconfig", "--name", NAME, "--kubeconfig", str(kubeconfig)])
    else:
        if there:
            delete()
        image = os.environ.get(_NODE_IMAGE)
        command = ["kind", "create", "cluster", "--name", NAME, "--kubeconfig", str(kubeconfig)]
        command += ["--config", "-", "--wait", "180s", *(["--image", image] if image else [])]
        run(command, text=_configuration(), timeout_seconds=400)
    try:
        yield kubeconfig
    finally:
        if not keep:
            _tidy()


@contextmanager
def of_families(folder: Path, family: str) -> Iterator[tuple[Path, str]]:
    """Another cluster, of one node, whose pods have addresses of this family, `ipv6` or `dual`: the path of
    its kubeconfig and the name of its node. Deleted at the end."""
    name = f"{NAME}-{family}"
    kubeconfig = folder / f"kubeconfig-{family}"
    image = os.environ.get(_NODE_IMAGE)
    command = ["kind", "create", "cluster", "--name", name, "--kubeconfig", str(kubeconfig)]
    command += ["--config", "-", "--wait", "180s", *(["--image", image] if image else [])]
    configuration = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        # The API server's port is published on this machine, which need not have IPv6 itself.
        "networking": {"ipFamily": family, "apiServerAddress": "127.0.0.1"},
        "nodes": [{"role": "control-plane"}],
    }
    try:
        run(command, text=yaml.safe_dump(configuration), timeout_seconds=400)
        yield kubeconfig, f"{name}-control-plane"
    finally:
        run(["kind", "delete", "cluster", "--name", name], timeout_seconds=180)


def _tidy() -> None:
    """Delete the cluster; what the run found out counts, also when that fails."""
    try:
        delete()
    except CommandError as error:
        print(f"e2e: the cluster could not be deleted: {error}", file=sys.stderr)


def delete() -> None:
    """Delete the cluster. Docker does not always get a busy container killed in its time, so: several times.
    CommandError.

    First the kubelets end: a pod's container that is just being made may be frozen, and holds its node
    forever when it is killed then.
    """
    for node in NODES:
        try:
            run(["docker", "exec", node, "systemctl", "stop", "kubelet"], timeout_seconds=60)
        except CommandError:
            continue  # it is not there, or does not run
    for last in (False, False, True):
        try:
            run(["kind", "delete", "cluster", "--name", NAME], timeout_seconds=180)
        except CommandError:
            if last:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def load(images: list[str], *nodes: str, name: str = NAME) -> None:
    """Put images onto these nodes; onto all when none is named."""
    where = ["--nodes", ",".join(nodes)] if nodes else []
    run(["kind", "load", "docker-image", "--name", name, *where, *images], timeout_seconds=400)


def kill_container(node: str, pod: str) -> None:
    """The processes of a pod's container on this node end at once, without notice."""
    mine = f'grep -qz "^HOSTNAME={pod}$" $one/environ 2>/dev/null && grep -qa waltz $one/cmdline'
    kill = f"for one in /proc/[0-9]*; do {mine} && kill -9 ${{one#/proc/}} && echo $one; done; true"
    if not run(["docker", "exec", node, "sh", "-c", kill]).strip():
        raise CommandError(f"no process of {pod} runs on {node}")


def kill_node(name: str) -> None:
    """The machine is gone, with everything on it, at once. Its network goes first: the kernel would end the
    connections of the processes that it kills, and nothing ends those of a machine that lost its power."""
    run(["docker", "exec", name, "ip", "link", "set", "eth0", "down"])
    run(["docker", "kill", name])


def start_node(name: str) -> None:
    """The machine comes back."""
    run(["docker", "start", name])
