"""Planned restarts: one pod at a time, while every partition keeps a quorum."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.e2e.images import NEXT_TAG
from tests.e2e.kubectl import wait_until
from tests.e2e.scenarios.command import waltz
from tests.e2e.world import CLUSTER, SERVERS, STORAGE, WAIT_SECONDS, World

PYTHON = "/opt/waltz/bin/python"
_EXPIRY = """\
import urllib.request
page = urllib.request.Request("http://127.0.0.1:{port}/metrics", headers={{"Accept": "text/plain"}})
text = urllib.request.urlopen(page, timeout=10).read().decode()
print(next(one.split()[-1] for one in text.splitlines() if "_tls_certificate_expiry" in one and one[0] != "#"))
"""


def restart_storage(world: World) -> None:
    """Every storage node, one after another."""
    before = world.pods(STORAGE)
    waltz(world, "restart", CLUSTER, "storage")
    world.wait_replaced(STORAGE, before, WAIT_SECONDS)
    world.settle()


def restart_servers(world: World) -> None:
    """Every server, one after another."""
    before = world.pods(SERVERS)
    waltz(world, "restart", CLUSTER, "server")
    world.wait_replaced(SERVERS, before, WAIT_SECONDS)
    world.settle()


def restart_in_window(world: World) -> None:
    """Restarts wait for the window, and the condition names it; without one they are done at once."""
    before = world.pods(STORAGE)
    world.change(restarts={"window": {"start": _in_half_a_day(), "durationMinutes": 60}})
    waltz(world, "restart", CLUSTER, "storage")
    world.wait_for("RestartRequired", "True", WAIT_SECONDS)
    world.settle()
    if world.pods(STORAGE) != before:
        raise AssertionError("pods were restarted outside of the window")
    world.change(restarts={"window": None})
    world.wait_replaced(STORAGE, before, WAIT_SECONDS)
    world.wait_for("RestartRequired", "False", WAIT_SECONDS)
    world.settle()


def _in_half_a_day() -> str:
    return f"{datetime.now(UTC) + timedelta(hours=12):%H:%M}"


def upgrade_images(world: World) -> None:
    """Another tag for servers and storage nodes."""
    storage, servers = world.pods(STORAGE), world.pods(SERVERS)
    images = {"server": f"waltz-server:{NEXT_TAG}", "storage": f"waltz-storage:{NEXT_TAG}"}
    world.change(images=images)
    world.wait_replaced(STORAGE, storage, WAIT_SECONDS)
    world.wait_replaced(SERVERS, servers, WAIT_SECONDS)
    world.settle()
    for selector in (STORAGE, SERVERS):
        for pod in world.kubectl.list("pods", selector):
            used = {container["image"] for container in pod["spec"]["containers"]}
            if not all(image.endswith(f":{NEXT_TAG}") for image in used):
                raise AssertionError(f"{pod['metadata']['name']} still runs {', '.join(used)}")


def rotate_certificates(world: World) -> None:
    """New keys and certificates for servers and storage nodes, as if the old ones had come to their time: all
    processes take them over, and no pod is restarted."""
    storage, servers = world.pods(STORAGE), world.pods(SERVERS)
    ports = dict.fromkeys(storage, 55282) | dict.fromkeys(servers, 55181)
    before = {pod: _expiry(world, pod, port) for pod, port in ports.items()}
    world.kubectl("delete", "secret", f"{CLUSTER}-tls-server", f"{CLUSTER}-tls-storage")

    def renewed() -> bool:
        return all(_expiry(world, pod, port) != before[pod] for pod, port in ports.items())

    wait_until("every process has its new certificate", renewed, WAIT_SECONDS)
    world.settle()
    if (world.pods(STORAGE), world.pods(SERVERS)) != (storage, servers):
        raise AssertionError("pods were restarted for a renewed certificate")


def _expiry(world: World, pod: str, port: int) -> str:
    """When the certificate in use there expires, as the process says."""
    return world.kubectl("exec", pod, "--", PYTHON, "-c", _EXPIRY.format(port=port)).strip()
