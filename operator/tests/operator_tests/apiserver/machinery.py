"""What a kubelet and the controllers of Kubernetes do, as far as the operator's objects need it, against the
real API server.

No watches and no clock: `settle` looks and acts until nothing changes any longer, so a scenario is the same
every time. Pods are real processes of Waltz (`processes`); claims are directories that live exactly as long
as the claim.
"""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from operator_tests.apiserver.guarded import Ensemble
from operator_tests.apiserver.loop import cluster_loop
from operator_tests.apiserver.processes import ServerPod, StoragePod, ZooKeeperPod, mount, read_config
from waltz_admin.errors import AdminError
from waltz_cluster.errors import ClusterError
from waltz_operator.__main__ import parser
from waltz_operator.jobs import copy_partition
from waltz_operator.kube import kinds
from waltz_operator.kube.client import KubeClient, Object
from waltz_operator.kube.errors import KubeConflictError, KubeNotFoundError
from waltz_operator.kube.kinds import Kind
from waltz_protocol.errors import WaltzProtocolError
from waltz_runtime.exit_code import ExitCode
from waltz_storage.engine.errors import StorageStartError
from waltz_testkit.ports import free_port

_LOOKED_AT = (kinds.DEPLOYMENT, kinds.JOB, kinds.POD, kinds.PVC, kinds.STATEFUL_SET, kinds.WALTZ_CLUSTER)
_OWNERS = (kinds.DEPLOYMENT, kinds.JOB, kinds.STATEFUL_SET, kinds.WALTZ_CLUSTER)
_OWNED = (
    kinds.CONFIG_MAP, kinds.DEPLOYMENT, kinds.JOB, kinds.NETWORK_POLICY, kinds.POD, kinds.POD_DISRUPTION_BUDGET, kinds.PVC,
    kinds.SECRET, kinds.SERVICE, kinds.STATEFUL_SET,
)  # fmt: skip
_ROUNDS = 60
_WAIT_SECONDS = 0.3


class _Remembering:
    """The API server, asked once for a kind of object as long as nothing of that kind was written: nobody
    else writes while the machinery is at work."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._found: dict[str, list[Object]] = {}

    def forget(self) -> None:
        """Others were at work."""
        self._found.clear()

    async def look(self, kind: Kind) -> Sequence[Object]:
        if kind.kind not in self._found:
            self._found[kind.kind] = await self._kube.list(kind, self._namespace)
        return self._found[kind.kind]

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return await self._kube.get(kind, namespace, name)

    async def create(self, body: Object) -> Object:
        self._found.pop(body["kind"], None)
        return await self._kube.create(body)

    async def replace(self, body: Object, *, status: bool = False) -> Object:
        self._found.pop(body["kind"], None)
        return await self._kube.replace(body, status=status)

    async def merge_patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        self._found.pop(kind.kind, None)
        return await self._kube.merge_patch(kind, namespace, name, patch)

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        self._found.pop(kind.kind, None)
        await self._kube.delete(kind, namespace, name, uid=uid, grace_seconds=grace_seconds)


class Machinery:
    """One namespace. `frozen` pods are not started (a node of Kubernetes is gone)."""

    def __init__(self, kube: KubeClient, namespace: str, directory: Path, zookeeper: Ensemble) -> None:
        self._kube = _Remembering(kube, namespace)
        self._asked = kube
        self.namespace = namespace
        self._directory = directory
        self._zookeeper = zookeeper
        self.pods: dict[str, StoragePod | ServerPod | ZooKeeperPod] = {}
        self._uids: dict[str, str] = {}
        self._addresses = 0
        self.started: list[str] = []
        """Names of the pods in the order in which their processes were started."""
        self.frozen: set[str] = set()
        self.run_jobs = True
        self._owners: set[str] = set()

    # ---- the whole

    async def settle(self) -> None:
        """Until nothing changes. Waits for processes to become ready, in bounded time."""
        self._kube.forget()
        for _ in range(_ROUNDS):
            changed = False
            await asyncio.gather(*(self._kube.look(kind) for kind in _LOOKED_AT))
            for part in (
                self._collect_garbage, self._claims, self._stateful_sets, self._deployments, self._jobs, self._end_pods,
                self._start_pods, self._readiness, self._statuses,
            ):  # fmt: skip
                changed = await part() or changed
            if not changed:
                return
        raise TimeoutError("the objects of the test do not settle")

    async def close(self) -> None:
        """End all processes. One that settles meanwhile may be cancelled between two of its pods."""
        for pod in list(self.pods.values()):
            if isinstance(pod, ServerPod):
                await pod.stop()
        for pod in list(self.pods.values()):
            if not isinstance(pod, ServerPod):
                await pod.stop()
        self.pods.clear()

    async def crash(self, name: str) -> None:
        """The process of a pod ends at once; the kubelet starts it again."""
        await self.pods.pop(name).stop()

    async def list(self, kind: Kind) -> list[Object]:
        """For who looks from outside, at any time."""
        return await self._asked.list(kind, self.namespace)

    async def _delete(self, kind: Kind, obj: Mapping[str, Any]) -> bool:
        metadata = obj["metadata"]
        if metadata.get("deletionTimestamp") is not None:
            return False
        try:
            await self._kube.delete(kind, self.namespace, metadata["name"], uid=metadata["uid"])
        except (KubeNotFoundError, KubeConflictError):
            return False
        return True

    # ---- controllers

    async def _collect_garbage(self) -> bool:
        """Objects whose owner is gone go too. Everything is looked through when an owner has gone."""
        owners = {obj["metadata"]["uid"] for kind in _OWNERS for obj in await self._kube.look(kind)}
        gone, self._owners = not self._owners <= owners, self._owners | owners
        if not gone:
            return False
        found = {kind: await self._kube.look(kind) for kind in (*_OWNED, kinds.WALTZ_CLUSTER)}
        uids = {obj["metadata"]["uid"] for objects in found.values() for obj in objects}
        changed = False
        for kind, objects in found.items():
            for obj in objects:
                references = obj["metadata"].get("ownerReferences") or ()
                if references and not any(owner["uid"] in uids for owner in references):
                    changed = await self._delete(kind, obj) or changed
        if not changed:
            self._owners = owners
        return changed

    async def _claims(self) -> bool:
        """Bind new claims, let deleted ones go (their protection waits for the pod), follow growth."""
        changed = False
        names = set()
        in_use = {volume for pod in await self._kube.look(kinds.POD) for volume in _claims_of(pod)}
        for claim in await self._kube.look(kinds.PVC):
            name = claim["metadata"]["name"]
            names.add(name)
            wanted = claim["spec"]["resources"]["requests"]["storage"]
            if claim["metadata"].get("deletionTimestamp") is not None:
                if name not in in_use and claim["metadata"].get("finalizers"):
                    await self._kube.merge_patch(
                        kinds.PVC, self.namespace, name, {"metadata": {"finalizers": []}}
                    )
                    changed = True
                continue
            status = {"phase": "Bound", "capacity": {"storage": wanted}, "accessModes": ["ReadWriteOnce"]}
            if (claim.get("status") or {}).get("capacity", {}).get("storage") != wanted:
                await self._kube.replace({**claim, "status": status}, status=True)
                changed = True
        for directory in list((self._directory / "claims").glob("*")):
            if directory.name not in names:
                shutil.rmtree(directory)
        return changed

    async def _stateful_sets(self) -> bool:
        """One pod each; never replaced on its own (OnDelete)."""
        pods = {pod["metadata"]["name"]: pod for pod in await self._kube.look(kinds.POD)}
        claims = await self._kube.look(kinds.PVC)
        there = {one["metadata"]["name"] for one in claims if not one["metadata"].get("deletionTimestamp")}
        changed = False
        for one in await self._kube.look(kinds.STATEFUL_SET):
            name = f"{one['metadata']['name']}-0"
            if not there.issuperset(_claims_of(one["spec"]["template"])):
                continue  # its pod finds no machine while a claim of it is missing, or on its way out
            if (
                one["metadata"].get("deletionTimestamp") is None
                and one["spec"]["replicas"]
                and name not in pods
            ):
                await self._create_pod(name, kinds.STATEFUL_SET, one)
                changed = True
        return changed

    async def _deployments(self) -> bool:
        """A new pod first, then an old one goes: maxSurge 1, maxUnavailable 0."""
        changed = False
        for one in await self._kube.look(kinds.DEPLOYMENT):
            if one["metadata"].get("deletionTimestamp") is not None:
                continue
            mine = [pod for pod in await self._kube.look(kinds.POD) if _owned_by(pod, one)]
            alive = [pod for pod in mine if pod["metadata"].get("deletionTimestamp") is None]
            fresh = [pod for pod in alive if _hash(pod) == _hash(one["spec"]["template"])]
            old = [pod for pod in alive if pod not in fresh]
            wanted = one["spec"]["replicas"]
            if len(fresh) < wanted and len(alive) <= wanted:
                self._addresses += 1
                await self._create_pod(f"{one['metadata']['name']}-{self._addresses}", kinds.DEPLOYMENT, one)
                changed = True
            elif len(alive) > wanted and all(_is_ready(pod) for pod in fresh):
                changed = await self._delete(kinds.POD, (old or fresh)[0])
        return changed

    async def _create_pod(self, name: str, kind: Kind, owner: Object) -> None:
        template = copy.deepcopy(owner["spec"]["template"])
        template["spec"] |= {"nodeName": "machine", "enableServiceLinks": False}
        for claim in owner["spec"].get("volumeClaimTemplates") or ():
            volume = claim["metadata"]["name"]
            source = {"persistentVolumeClaim": {"claimName": f"{volume}-{name}"}}
            template["spec"].setdefault("volumes", []).append({"name": volume, **source})
        metadata = template.setdefault("metadata", {}) | {
            "name": name,
            "namespace": self.namespace,
            "ownerReferences": [
                {
                    "apiVersion": kind.api_version,
                    "kind": kind.kind,
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ],
        }
        await self._kube.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        )

    async def _jobs(self) -> bool:
        """Run a Job's command to its end; its report is its pod's termination message."""
        changed = False
        for job in await self._kube.look(kinds.JOB):
            done = any(c["status"] == "True" for c in (job.get("status") or {}).get("conditions") or ())
            if done or job["metadata"].get("deletionTimestamp") is not None or not self.run_jobs:
                continue
            changed = True
            await self._run_job(job)
        return changed

    async def _run_job(self, job: Object) -> None:
        name = job["metadata"]["name"]
        report = self._directory / f"report-{name}.json"
        files = await self._mounted(job["spec"]["template"]["spec"], self._directory / "jobs" / name)
        arguments = [
            one.replace("/etc/waltz/tls", str(files))
            for one in job["spec"]["template"]["spec"]["containers"][0]["args"]
        ]
        options = parser().parse_args([*arguments, "--report", str(report)])
        failed = False
        try:
            await copy_partition.run(options, asyncio.Event())
        except (AdminError, WaltzProtocolError, OSError):
            failed = True
        text = report.read_text() if report.exists() else json.dumps({"error": "no report"})
        await self._create_pod(f"{name}-pod", kinds.JOB, _labelled(job))
        pod = await self._kube.get(kinds.POD, self.namespace, f"{name}-pod")
        ended = {
            "exitCode": int(failed), "reason": "Error" if failed else "Completed", "message": text,
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z", "containerID": "test://copy",
        }  # fmt: skip
        status = {
            "phase": "Failed" if failed else "Succeeded",
            "containerStatuses": [
                {
                    "name": "copy", "ready": False, "restartCount": 0, "image": "x", "imageID": "x",
                    "state": {"terminated": ended},
                }
            ],
        }  # fmt: skip
        await self._kube.replace({**pod, "status": status}, status=True)
        await self._kube.replace({**job, "status": _job_status(job, failed)}, status=True)

    # ---- the kubelet

    async def _end_pods(self) -> bool:
        """Stop the processes of pods that are being deleted, or are gone, and let the pods go."""
        present = {pod["metadata"]["name"]: pod for pod in await self._kube.look(kinds.POD)}
        changed = False
        for name in list(self.pods):
            pod = present.get(name)
            if (
                pod is None
                or pod["metadata"]["uid"] != self._uids[name]
                or pod["metadata"].get("deletionTimestamp")
            ):
                await self.pods.pop(name).stop()
                changed = True
        for name, pod in present.items():
            if pod["metadata"].get("deletionTimestamp") is not None:
                await self._kill(name, pod["metadata"]["uid"])
                changed = True
        return changed

    async def _kill(self, name: str, uid: str) -> None:
        """As a kubelet confirms the end of a pod: without a period of grace."""
        try:
            await self._kube.delete(kinds.POD, self.namespace, name, uid=uid, grace_seconds=0)
        except KubeNotFoundError:
            return

    async def _start_pods(self) -> bool:
        changed = False
        for pod in await self._kube.look(kinds.POD):
            name = pod["metadata"]["name"]
            component = pod["metadata"]["labels"].get("app.kubernetes.io/component")
            if (
                name in self.pods
                or component not in ("storage", "server", "zookeeper")
                or name in self.frozen
            ):
                continue
            if pod["metadata"].get("deletionTimestamp") is not None:
                continue
            process = await self._process(pod, str(component))
            if process is None:
                continue
            try:
                await process.start()
            except (ClusterError, OSError):
                await process.stop()  # as a container that crashes: it is started again later
                continue
            except StorageStartError as error:
                await process.stop()
                changed = (
                    await self._report_crash(pod, getattr(error, "exit_code", ExitCode.FAILED)) or changed
                )
                continue
            self.pods[name] = process
            self._uids[name] = pod["metadata"]["uid"]
            self.started.append(name)
            changed = True
        return changed

    async def _report_crash(self, pod: Object, code: int) -> bool:
        """Its container ends with this code whenever it is started; whether that is said for the first
        time."""
        if (pod.get("status") or {}).get("containerStatuses"):
            return False
        ended = {"exitCode": int(code), "reason": "Error", "containerID": "test://crashed"}
        container = {
            "name": "storage", "ready": False, "restartCount": 1, "image": "x", "imageID": "x",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ended},
        }  # fmt: skip
        conditions = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
        status = {"phase": "Running", "containerStatuses": [container], "conditions": conditions}
        await self._kube.replace({**pod, "status": status}, status=True)
        return True

    async def _process(self, pod: Object, component: str) -> StoragePod | ServerPod | ZooKeeperPod | None:
        if component == "zookeeper":
            return ZooKeeperPod()
        name = pod["metadata"]["name"]
        cluster = pod["metadata"]["labels"]["app.kubernetes.io/instance"]
        files = await self._mounted(pod["spec"], self._directory / "mounts" / pod["metadata"]["uid"])
        try:
            config_map = await self._kube.get(kinds.CONFIG_MAP, self.namespace, f"{cluster}-{component}")
        except KubeNotFoundError:
            return None
        config = read_config(config_map, Path(pod["spec"]["containers"][0]["args"][0]).name, files)
        if component == "storage":
            host = f"{name}.{cluster}-storage.{self.namespace}.svc"
            claims = {one.partition("-")[0]: self._directory / "claims" / one for one in _claims_of(pod)}
            return StoragePod(config, host, claims["data"], self._zookeeper, claims.get("journal"))
        self._addresses += 1
        address = f"10.{self._addresses // 65536}.{self._addresses // 256 % 256}.{self._addresses % 256}"
        return ServerPod(config, address, free_port(), self._zookeeper, self._addresses)

    async def _mounted(self, spec: Mapping[str, Any], directory: Path) -> Path:
        """The directory of the pod's certificates and credentials."""
        for volume in spec.get("volumes") or ():
            source = volume.get("secret") or {}
            secret = source.get("secretName")
            if secret is not None:
                try:
                    body = await self._kube.get(kinds.SECRET, self.namespace, secret)
                    mount(directory, body, source.get("items"))
                except KubeNotFoundError:
                    continue
        return directory

    async def _readiness(self) -> bool:
        """Write into the pods' status whether their processes are ready. What is about to be is waited for a
        little; a server whose storage nodes have not been told of its partitions is not ready whatever one
        waits."""
        loop = cluster_loop()
        until = loop.time() + _WAIT_SECONDS
        while not all(process.ready() for process in self.pods.values()) and loop.time() < until:
            if not any(isinstance(process, StoragePod) for process in self.pods.values()):
                break
            await asyncio.sleep(0.01)  # what is waited for are processes of their own pace
        changed = False
        for pod in await self._kube.look(kinds.POD):
            name = pod["metadata"]["name"]
            process = self.pods.get(name)
            if process is None or pod["metadata"].get("deletionTimestamp") is not None:
                continue
            ready = "True" if process.ready() else "False"
            if _condition(pod, "Ready") == ready:
                continue
            status = {
                "phase": "Running",
                "conditions": [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")],
            }
            await self._kube.replace({**pod, "status": status}, status=True)
            changed = True
        return changed

    async def _statuses(self) -> bool:
        """What the controllers report about their pods."""
        changed = False
        pods = await self._kube.look(kinds.POD)
        for kind in (kinds.STATEFUL_SET, kinds.DEPLOYMENT):
            for one in await self._kube.look(kind):
                mine = [
                    p for p in pods if _owned_by(p, one) and p["metadata"].get("deletionTimestamp") is None
                ]
                ready = sum(_is_ready(pod) for pod in mine)
                fresh = sum(_hash(pod) == _hash(one["spec"]["template"]) for pod in mine)
                status: dict[str, Any] = {
                    "observedGeneration": one["metadata"]["generation"], "replicas": len(mine), "readyReplicas": ready,
                    "updatedReplicas": fresh, "availableReplicas": ready,
                }  # fmt: skip
                before = one.get("status") or {}
                if any(before.get(key, 0) != value for key, value in status.items()):
                    await self._kube.replace({**one, "status": status}, status=True)
                    changed = True
        return changed


def _job_status(job: Object, failed: bool) -> dict[str, Any]:
    start, end = job["metadata"]["creationTimestamp"], "2099-01-01T00:00:00Z"
    kinds_ = ("FailureTarget", "Failed") if failed else ("SuccessCriteriaMet", "Complete")
    conditions = [
        {"type": kind, "status": "True", "reason": "Test", "message": "", "lastProbeTime": start, "lastTransitionTime": start}
        for kind in kinds_
    ]  # fmt: skip
    status: dict[str, Any] = {"startTime": start, "conditions": conditions}
    status |= {"failed": 1} if failed else {"succeeded": 1, "completionTime": end}
    return status


def _labelled(job: Object) -> Object:
    """The Job with the label in its template by which its pods are found."""
    made = copy.deepcopy(job)
    labels = made["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
    labels["batch.kubernetes.io/job-name"] = job["metadata"]["name"]
    return made


def _claims_of(pod: Object) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]


def _owned_by(pod: Object, owner: Object) -> bool:
    references = pod["metadata"].get("ownerReferences") or ()
    return any(one["uid"] == owner["metadata"]["uid"] for one in references)


def _hash(obj: Mapping[str, Any]) -> str:
    annotations = obj["metadata"].get("annotations") or {}
    return str(annotations.get("waltz.dev/template-hash", ""))


def _condition(pod: Object, kind: str) -> str | None:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == kind), None)


def _is_ready(pod: Object) -> bool:
    return _condition(pod, "Ready") == "True"
