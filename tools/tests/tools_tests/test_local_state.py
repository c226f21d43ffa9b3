"""The cluster directory: lock, memory of ports and shape, left-over processes."""

import json
import os
import random
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

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


def test_a_new_file_system_holds_nothing_else(tmp_path: Path) -> None:
    """ext4 has a folder for what a repair finds, which only root may read."""
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "lost+found" / "#12").write_text("of a repair")
    directory = ClusterDirectory(tmp_path)
    directory.open()
    directory.close()
    assert (tmp_path / "lost+found" / "#12").read_text() == "of a repair"


def _contents(directory: Path) -> dict[str, tuple[int, bytes | None]]:
    """Mode and content of everything in it."""
    found = [directory, *directory.rglob("*")]
    return {str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else None) for path in found}


@pytest.mark.parametrize(
    "name",
    ["conf/client.yaml", "lock", "pids/web", "logs/web.log", "zookeeper/version-2", "storage-1/x", "main.py"],
)
def test_a_directory_with_something_else_is_refused_and_nothing_in_it_changes(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "conf").mkdir(mode=0o755)
    (tmp_path / name).parent.mkdir(mode=0o755, exist_ok=True)
    (tmp_path / name).write_text("precious")
    before = _contents(tmp_path)
    with pytest.raises(
        LocalClusterError, match="is not empty and holds no cluster of `waltz local up`: name"
    ):
        ClusterDirectory(tmp_path).open()
    assert _contents(tmp_path) == before


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """Java has no name for such a file."""
    with pytest.raises(LocalClusterError, match="is no name in UTF-8"):
        ClusterDirectory(tmp_path / os.fsdecode(b"\xff")).open()
    assert not list(tmp_path.iterdir())


def test_a_cluster_json_of_somebody_else_is_refused_and_nothing_next_to_it_changes(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"name": "mine"}')
    before = _contents(tmp_path)
    with pytest.raises(LocalClusterError, match="was not written by this version of waltz"):
        ClusterDirectory(tmp_path).open()
    assert _contents(tmp_path) == before


@pytest.mark.parametrize("left", ["the lock alone", "all but the new state", "half of the new state"])
def test_what_an_interrupted_first_start_leaves_is_taken_up(tmp_path: Path, left: str) -> None:
    if left == "the lock alone":
        (tmp_path / "lock").touch()
    else:
        directory = ClusterDirectory(tmp_path)
        directory.open()
        directory.close()
    if left == "half of the new state":
        (tmp_path / "cluster.json.new").write_text("{")
    directory = ClusterDirectory(tmp_path)
    directory.open()
    assert directory.load() is None
    directory.close()


def test_pid_files_that_are_of_no_role_stay(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.open()
    for name in ("web", "server-1"):
        (tmp_path / "pids" / name).write_text("rubbish")
    assert directory.kill_left_overs() == []
    assert [path.name for path in (tmp_path / "pids").iterdir()] == ["web"]
    directory.close()


def test_state_is_found_again(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    assert directory.load() is None
    state = _state(ports={"zookeeper": {"client": 20_000}}, seeded=True, cluster_key=str(UUID(int=7)))
    directory.save(state)
    assert directory.load() == state


@pytest.mark.parametrize("text", ["", "[]", '{"format": 99}', '{"format": 1, "what": 2}'])
def test_state_of_another_format_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalClusterError):
        ClusterDirectory(tmp_path).load()


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": "8"},
        {"servers": True},
        {"storage_nodes": None},
        {"tls": "yes"},
        {"cluster_key": 7},
        {"cluster_key": "seven"},
        {"ports": [20_000]},
        {"ports": {"storage-x": {"http": 20_000}}},
        {"ports": {"storage-1": 20_000}},
        {"ports": {"storage-1": {"http": "20000"}}},
        {"ports": {"storage-1": {"http": 70_000}}},
        {"joining": ["storage-9"]},
    ],
)
def test_state_that_was_edited_into_something_else_is_refused_with_one_line(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.save(_state(ports={"storage-1": {"http": 20_000}}, joining=["storage-1"]))
    assert directory.load() is not None
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | wrong))
    (name,) = wrong
    with pytest.raises(LocalClusterError, match=rf"cluster\.json cannot be parsed: {name} "):
        directory.load()


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
