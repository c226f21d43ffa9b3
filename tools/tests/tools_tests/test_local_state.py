"""The cluster directory: lock, memory of ports and shape, left-over processes."""

import random
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from waltz_runtime.ports import LOOPBACK, PortReservations
from waltz_tools.errors import DirectoryInUseError, LocalClusterError, PortTakenError
from waltz_tools.local.state import ClusterDirectory, ClusterState, settle_ports


def _state(**changes: object) -> ClusterState:
    state = ClusterState(partitions=8, tls=True, storage_nodes=3, servers=2)
    for name, value in changes.items():
        setattr(state, name, value)
    return state


def test_directory_in_use_is_refused_with_one_line(tmp_path: Path) -> None:
    first, second = ClusterDirectory(tmp_path), ClusterDirectory(tmp_path)
    first.open()
    try:
        with pytest.raises(DirectoryInUseError) as caught:
            second.open()
        assert "is in use by another `waltz local up` (pid" in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        first.close()
    second.open()
    second.close()


def test_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalClusterError, match=r"cannot use .*file/x for a cluster"):
        ClusterDirectory(tmp_path / "file" / "x").open()


def test_state_is_found_again(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    assert directory.load() is None
    state = _state(ports={"zookeeper": {"client": 20_000}}, seeded=True, cluster_key="k")
    directory.save(state)
    assert directory.load() == state


@pytest.mark.parametrize("text", ["", "[]", '{"format": 99}', '{"format": 1, "what": 2}'])
def test_state_of_another_format_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalClusterError):
        ClusterDirectory(tmp_path).load()


def test_left_over_process_is_ended_and_a_stranger_with_its_pid_is_not(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.open()
    with subprocess.Popen(["sleep", "1000"]) as ours, subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            directory.record_pid("storage-1", ours.pid)
            started = psutil.Process(stranger.pid).create_time()
            (tmp_path / "pids" / "storage-2").write_text(f"{stranger.pid} {started - 100}")
            (tmp_path / "pids" / "storage-3").write_text("rubbish")
            assert directory.kill_left_overs() == ["storage-1"]
            assert ours.wait(10) is not None
            assert stranger.poll() is None
            assert list((tmp_path / "pids").iterdir()) == []
        finally:
            stranger.kill()
            ours.kill()
    directory.close()


def _settle(state: ClusterState, wanted: Mapping[str, tuple[str, ...]]) -> None:
    """As one run of a cluster, which ends."""
    reserved = PortReservations()
    try:
        settle_ports(state, wanted, random.Random(), reserved)
    finally:
        reserved.close()


def test_ports_are_kept_between_runs() -> None:
    state = _state()
    wanted = {
        "zookeeper": ("client",),
        "storage-1": ("storage", "admin", "http"),
        "server-1": ("server", "http"),
    }
    _settle(state, wanted)
    first = {role: dict(ports) for role, ports in state.ports.items()}
    numbers = [number for ports in first.values() for number in ports.values()]
    assert len(set(numbers)) == 6
    _settle(state, wanted)
    assert state.ports == first


def test_two_clusters_that_start_at_once_share_no_port() -> None:
    """The same random numbers, and no process has bound its ports yet."""
    wanted = {f"storage-{number}": ("storage", "admin", "http") for number in range(1, 8)}
    states, reserved = [_state(), _state()], [PortReservations(), PortReservations()]
    for state, one in zip(states, reserved, strict=True):
        settle_ports(state, wanted, random.Random(7), one)
    numbers = [number for state in states for ports in state.ports.values() for number in ports.values()]
    assert len(set(numbers)) == len(numbers) == 42
    for one in reserved:
        one.close()


def test_taken_ports_are_picked_again_where_that_is_safe() -> None:
    state = _state()
    wanted = {"storage-1": ("storage", "admin", "http"), "server-1": ("server", "http")}
    _settle(state, wanted)
    first = {role: dict(ports) for role, ports in state.ports.items()}
    with socket.create_server((LOOPBACK, first["server-1"]["server"])):
        _settle(state, wanted)
        assert state.ports["server-1"]["server"] != first["server-1"]["server"]
        assert state.ports["storage-1"] == first["storage-1"]


@pytest.mark.parametrize("name", ["storage", "admin"])
def test_taken_port_of_a_storage_node_is_one_clear_line(name: str) -> None:
    state = _state()
    wanted = {"storage-1": ("storage", "admin", "http")}
    _settle(state, wanted)
    before = {role: dict(ports) for role, ports in state.ports.items()}
    port = before["storage-1"][name]
    with socket.create_server((LOOPBACK, port)), pytest.raises(PortTakenError) as caught:
        _settle(state, wanted)
    assert str(caught.value).startswith(
        f"port {port} ({name} port of storage-1) is in use by another process"
    )
    assert state.ports == before
