"""The file of `waltz zk export`: all lasting znodes of one cluster, without permissions. Pure.

JSON, so that a person can read it: a head with the format's version and the cluster, the znodes below the
root in the order of their paths, and a SHA-256 over all of it. Paths are relative, so a tree can be imported
below another root.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from waltz_admin.errors import AdminError
from waltz_admin.nested_roots import is_below, nested_roots
from waltz_cluster.errors import SerializationError
from waltz_cluster.serializers import ClusterParams, PartitionAssignment, ProducerRecord, StoreParams

T = TypeVar("T")

FORMAT = "waltz-zookeeper-tree"
VERSION = 1
PRODUCERS = "/producers"
MAX_FILE_BYTES = 256 * 1024 * 1024
ROOT, STORE, SERVERS, PARTITIONS = "", "/store", "/serverDescriptors", "/store/partition"


@dataclass(frozen=True, slots=True)
class Znode:
    """Data of a znode, None for none. `written`: it was set after it was created, which shows that a counter
    was used."""

    data: bytes | None
    written: bool = False


@dataclass(frozen=True, slots=True)
class ClusterTree:
    """The znodes by their path below the root (`""` is the root).

    `exported_at`: RFC 3339. `none_deleted`: ZooKeeper proved that no partition's metadata was ever deleted,
    which a missing one needs to be taken for that of a partition that never was started (rule A2).
    `nested`: the roots of other clusters below this one, which an earlier release made and which were left
    out.
    """

    exported_at: str
    znodes: dict[str, Znode]
    none_deleted: bool
    nested: tuple[str, ...] = field(default=(), compare=False)

    @property
    def cluster(self) -> ClusterParams:
        """Name and partitions; AdminError when this is no cluster."""
        return _decoded(ClusterParams.from_bytes, self.znodes, ROOT)

    @property
    def params(self) -> StoreParams:
        """Key and partitions; AdminError when this is no cluster."""
        return _decoded(StoreParams.from_bytes, self.znodes, STORE)

    def settled(self) -> ClusterTree:
        """Without what depends on ZooKeeper's own counters: who serves what was decided for a number of
        servers that came and went. The generations stay."""
        found = self.znodes.get(SERVERS)
        if found is None or not found.data:
            return self
        assignment = _decoded(PartitionAssignment.from_bytes, self.znodes, SERVERS)
        data = replace(assignment, cversion=-1).to_bytes()
        return replace(self, znodes={**self.znodes, SERVERS: replace(found, data=data)})

    def alone(self) -> ClusterTree:
        """Without other clusters below this one: each has its own export, and is put back on its own."""
        roots = nested_roots({path: znode.data for path, znode in self.znodes.items()})
        znodes = {path: znode for path, znode in self.znodes.items() if not is_below(path, roots)}
        return replace(self, znodes=znodes, nested=roots)

    def without_checkpoints(self) -> ClusterTree:
        """Named producers with client id and epoch only: the log is then searched from its beginning for
        their numbers, which is slower and finds the same. A record that cannot be read stays as it is."""
        return replace(
            self,
            znodes={
                path: _without_checkpoints(znode) if path.startswith(f"{PRODUCERS}/") else znode
                for path, znode in self.znodes.items()
            },
        )

    def same_as(self, other: ClusterTree) -> bool:
        """Whether both say the same of the same cluster."""
        mine, theirs = self.settled(), other.settled()
        contents = [
            {path: znode.data or None for path, znode in one.znodes.items()} for one in (mine, theirs)
        ]
        return contents[0] == contents[1] and mine.none_deleted == theirs.none_deleted


def _without_checkpoints(znode: Znode) -> Znode:
    try:
        record = ProducerRecord.from_bytes(znode.data)
    except SerializationError:
        return znode
    return replace(znode, data=replace(record, checkpoints={}).to_bytes())


def _decoded(decode: Callable[[bytes | None], T], znodes: Mapping[str, Znode], path: str) -> T:
    found = znodes.get(path)
    try:
        return decode(found.data if found is not None else None)
    except SerializationError as error:
        raise AdminError(
            f"this is no complete cluster: {path or 'its root'} cannot be read: {error}"
        ) from None


def encode(tree: ClusterTree) -> bytes:
    """The file."""
    body = {
        "format": FORMAT,
        "version": VERSION,
        "cluster": tree.cluster.name,
        "key": str(tree.params.cluster_key),
        "partitions": tree.params.num_partitions,
        "exportedAt": tree.exported_at,
        "noneDeleted": tree.none_deleted,
        "znodes": [
            {
                "path": path,
                "data": None if znode.data is None else base64.b64encode(znode.data).decode(),
                "written": znode.written,
            }
            for path, znode in sorted(tree.znodes.items())
        ],
    }
    return json.dumps({**body, "sha256": _digest(body)}, indent=1).encode() + b"\n"


def decode(content: bytes) -> ClusterTree:
    """The tree in a file, without other clusters below it. AdminError, one sentence: what is wrong with
    it."""
    if len(content) > MAX_FILE_BYTES:
        raise AdminError(f"the file has more than {MAX_FILE_BYTES} bytes: it is no export of a cluster")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise AdminError("the file is no export of a cluster, or not all of it is there") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise AdminError(f"the file is no export of a cluster: it does not say that it is a {FORMAT}")
    if body.get("version") != VERSION:
        raise AdminError(
            f"the file has version {body.get('version')} of the format, this release reads {VERSION}: use the release that wrote it"
        )
    if body.pop("sha256", None) != _digest(body):
        raise AdminError("the file was changed or damaged after it was written: its checksum does not match")
    try:
        znodes = {
            str(one["path"]): Znode(
                None if one["data"] is None else base64.b64decode(one["data"], validate=True),
                bool(one["written"]),
            )
            for one in body["znodes"]
        }
        tree = ClusterTree(str(body["exportedAt"]), znodes, bool(body["noneDeleted"]))
    except (KeyError, TypeError, binascii.Error) as error:
        raise AdminError(f"the file cannot be read: {type(error).__name__}: {error}") from None
    _check_paths(tree)
    return tree.alone()


def _digest(body: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _check_paths(tree: ClusterTree) -> None:
    """Each znode has its parent, and nothing is outside; the root and the store say the same."""
    for path in tree.znodes:
        parts = path.split("/")
        wrong = path and (parts[0] or any(part in ("", ".", "..") for part in parts[1:]))
        if wrong or (path and path.rpartition("/")[0] not in tree.znodes):
            raise AdminError(f"the file has the znode {path!r}, which has no place in a cluster")
    if tree.cluster.num_partitions != tree.params.num_partitions:
        raise AdminError("the file names two numbers of partitions")
