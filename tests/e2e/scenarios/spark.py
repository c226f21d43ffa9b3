"""A streaming job of Spark on the cluster under load: an executor and then the driver are killed, the totals
must be right.

Submitted with the rendered script, from outside.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from render.all_files import files
from render.application import Application, Executors, Network, Resources, Volume
from render.objects import objects
from tests.e2e import kind
from tests.e2e.images import SPARK, build_spark
from tests.e2e.kubectl import Kubectl, wait_until
from tests.e2e.load import NAME as LOAD
from tests.e2e.shell import CommandError, run
from tests.e2e.world import CLUSTER, NAMESPACE, WAIT_SECONDS, World

NAME = "log-totals"
DRIVER = f"{NAME}-driver"
EXECUTORS = f"app.kubernetes.io/instance={NAME},app.kubernetes.io/component=executor"
FOLDER = "/var/lib/waltz-spark"
TRIGGER_SECONDS = 5
"""A batch costs the machine seconds of computing, which everything else in the cluster shares."""
_PLAIN = """
import asyncio, json, sys, zlib
from waltz_client import WaltzClient

async def main(until):
    found = {}
    async with WaltzClient.connect("/etc/waltz/client.yml") as client:
        for partition, last in until.items():
            total = found[partition] = {"transactions": 0, "first": None, "last": None, "bytes": 0, "checksums": 0}
            async for one in client.feed(int(partition), after=-1, until=last):
                crc = zlib.crc32(one.data)
                total["transactions"] += 1
                total["first"] = one.transaction_id if total["first"] is None else total["first"]
                total["last"] = one.transaction_id
                total["bytes"] += len(one.data)
                total["checksums"] += crc - 2**32 if crc >= 2**31 else crc
    print(json.dumps(found))

asyncio.run(main(json.loads(sys.argv[1])))
"""


def streaming(world: World) -> None:
    """Count the whole log while it is written; the counts are those of a plain reader in spite of two
    kills."""
    build_spark()
    kind.load([SPARK], world.first_node)
    endpoints = world.cluster()["status"]["endpoints"]
    application = describe(endpoints, NAMESPACE, world.first_node)
    world.kubectl.apply(*objects(application))
    clock = time.monotonic()
    try:
        submit(world.kubectl, application, ["--trigger-seconds", str(TRIGGER_SECONDS)])
        _wait_for_batch(world, "the streaming job has counted something", 0)
        world.notes.append(f"first result {time.monotonic() - clock:.0f} s after submission")
        kill_executor(world)
        kill_driver(world, application)
        result = wait_until("the streaming job ends", lambda: totals(world.kubectl), WAIT_SECONDS)
        world.notes.append(f"end {time.monotonic() - clock:.0f} s after submission")
        compare(world.kubectl, result)
        counted = sum(one["transactions"] for one in result.values())
        world.notes.append(f"{counted} transactions, totals equal to a plain reader's")
    finally:
        clear(world.kubectl, application)


def describe(endpoints: dict[str, str], namespace: str, node: str) -> Application:
    """The application, as small as it works. One node, because the volume can be mounted on one only."""
    options: dict[str, str | int | bool] = {
        "zookeeper.connectString": endpoints["zookeeper"],
        "cluster.root": endpoints["root"],
        "maxTransactionsPerTrigger": 20_000,
        "client.ssl.enabled": bool(endpoints.get("clientSecret")),
    }
    if endpoints.get("zookeeperTls"):
        options["zookeeper.ssl.enabled"] = True
    login = endpoints.get("zookeeperSecret") or None
    return Application(
        name=NAME,
        namespace=namespace,
        image=SPARK,
        main="/opt/waltz/jobs/log_totals.py",
        arguments=("--output", f"{FOLDER}/totals", "--checkpoint", f"{FOLDER}/checkpoint"),
        streaming=True,
        options=options,
        secret_options=login,
        secret_option_names=("zookeeper.auth",) if login else (),
        tls_secret=endpoints.get("clientSecret") or None,
        volume=Volume(size="1Gi", access_mode="ReadWriteOnce"),
        network=Network(waltz_namespace=namespace, waltz_cluster=CLUSTER),
        driver=Resources(core_request="100m", memory="512m"),
        executor=Executors(core_request="100m", memory="512m", instances=2),
        node_selector={"kubernetes.io/hostname": node},
        monitoring=False,
        conf={"spark.sql.shuffle.partitions": "2", "spark.kubernetes.executor.deleteOnTermination": "true"},
    )


def submit(kubectl: Kubectl, application: Application, more: Sequence[str]) -> None:
    """The rendered script, with more arguments for the job. Returns when the driver's pod is made."""
    application = application.model_copy(update={"arguments": (*application.arguments, *more)})
    config = yaml.safe_load(kubectl("config", "view", "--raw", "-o", "yaml"))
    environment = {
        **os.environ,
        "K8S_MASTER": f"k8s://{config['clusters'][0]['cluster']['server']}",
        "KUBECONFIG": str(kubectl.kubeconfig),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files(application).items():
            (Path(folder) / name).write_text(content)
        command = [
            "sh",
            f"{folder}/spark-submit.sh",
            "--conf",
            "spark.kubernetes.submission.waitAppCompletion=false",
        ]
        run(command, timeout_seconds=240, environment=environment)


def batches(kubectl: Kubectl) -> int:
    """How many batches the job has finished, by its checkpoint."""
    listing = kubectl("exec", DRIVER, "--", "ls", f"{FOLDER}/checkpoint/commits")
    return sum(name.isdecimal() for name in listing.split())


def _wait_for_batch(world: World, what: str, done: int) -> None:
    """Until more than `done` batches have been finished. Each look starts a process in the driver's pod:
    not too often."""
    wait_until(what, lambda: batches(world.kubectl) > done, WAIT_SECONDS, pause_seconds=2.0)


def kill_executor(world: World) -> None:
    """One executor is gone without notice: another one comes, and batches continue."""
    clock = time.monotonic()
    before = world.pods(EXECUTORS)
    victim = sorted(before)[0]
    world.kubectl("delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")
    wait_until("another executor comes", lambda: set(world.pods(EXECUTORS)) - set(before), WAIT_SECONDS)
    done = batches(world.kubectl)
    _wait_for_batch(world, "batches continue", done)
    world.notes.append(f"executor killed: batches continued, {time.monotonic() - clock:.0f} s")


def kill_driver(world: World, application: Application) -> None:
    """The driver is gone without notice, its executors with it: submitted again, it continues where it was,
    to the end."""
    clock = time.monotonic()
    world.kubectl("delete", "pod", DRIVER, "--grace-period=0", "--force")
    wait_until("the executors are gone", lambda: not world.pods(EXECUTORS), WAIT_SECONDS)
    submit(world.kubectl, application, ["--until-end"])
    world.notes.append(f"driver killed: submitted again after {time.monotonic() - clock:.0f} s")


def totals(kubectl: Kubectl) -> dict[str, dict[str, int]] | None:
    """What the job says at its end; None before it. CommandError when it failed."""
    pod = kubectl.find("pod", DRIVER)
    phase = "" if pod is None else pod["status"].get("phase")
    if phase == "Failed":
        raise AssertionError(f"the driver failed: {kubectl('logs', DRIVER, '--tail=20')}")
    if phase != "Succeeded":
        return None
    for line in kubectl("logs", DRIVER).splitlines():
        if line.startswith("totals: "):
            found: dict[str, dict[str, int]] = json.loads(line.removeprefix("totals: "))
            return found
    raise CommandError("the driver ended without a result")


def compare(kubectl: Kubectl, result: dict[str, dict[str, int]]) -> None:
    """AssertionError unless a plain reader comes to the same totals over the same transactions."""
    until = json.dumps({partition: one["last"] for partition, one in result.items()})
    command = ("exec", LOAD, "--", "/opt/waltz/bin/python", "-c", _PLAIN, until)
    # Other scenarios run meanwhile: the ZooKeeper that it knows may be away for a moment.
    text = wait_until("a plain reader counts", lambda: kubectl(*command, timeout_seconds=300), WAIT_SECONDS)
    plain = json.loads(text)
    if plain != result:
        raise AssertionError(f"Spark counted {result}, a plain reader {plain}")


def clear(kubectl: Kubectl, application: Application) -> None:
    """Take everything away."""
    kubectl("delete", "pod", DRIVER, "--grace-period=0", "--force", "--ignore-not-found")
    for one in objects(application):
        kubectl("delete", one["kind"], one["metadata"]["name"], "--ignore-not-found", "--wait=false")
