"""Every znode that release 0.13.2 wrote is read by our serializers, and written again byte for byte."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.interop.recordings import GOLDEN, zookeeper_tree
from waltz_cluster.serializers import (
    ClusterParams,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
    ServerDescriptor,
    StoreParams,
)

ROOT = "/waltz_gold"
STAGES = sorted(path.stem for path in (GOLDEN / "zk").glob("*.json"))


def reader_of(path: str) -> Callable[[bytes], Any] | None:
    name = path.removeprefix(ROOT)
    exact: dict[str, Callable[[bytes], Any]] = {
        "": ClusterParams.from_bytes,
        "/serverDescriptors": PartitionAssignment.from_bytes,
        "/store": StoreParams.from_bytes,
        "/store/assignment": ReplicaAssignments.from_bytes,
        "/store/group": GroupDescriptor.from_bytes,
        "/store/connection": ConnectionMetadata.from_bytes,
    }
    if name in exact:
        return exact[name]
    if name.startswith("/serverDescriptors/s_"):
        return ServerDescriptor.from_bytes
    if name.startswith("/store/partition/"):
        return PartitionMetadata.from_bytes
    return None


@pytest.mark.parametrize("stage", STAGES)
def test_every_znode_is_read_and_written_again(stage: str) -> None:
    read = 0
    for path, znode in zookeeper_tree(stage).items():
        reader = reader_of(path)
        if reader is None or znode["hex"] is None:
            continue
        raw = bytes.fromhex(znode["hex"])
        assert reader(raw).to_bytes() == raw, path
        read += 1
    assert read >= 6


def test_all_stages_are_there() -> None:
    assert len(STAGES) == 11
