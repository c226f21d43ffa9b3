"""What `waltz local` makes is readable by its user alone, whatever the umask is."""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waltz_tools.k8s.bundle import write_archive
from waltz_tools.local import configs
from waltz_tools.local.process import ManagedProcess
from waltz_tools.local.state import ClusterDirectory, ClusterState
from waltz_tools.local.zookeeper import ZooKeeperFiles

STATE = ClusterState(partitions=1, storage_nodes=1, servers=1, tls=True)


@pytest.fixture(params=[0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def fill(directory: Path) -> None:
    cluster = ClusterDirectory(directory)
    cluster.open()
    cluster.save(STATE)
    cluster.record_pid("server-1", os.getpid())
    configs.write_config(cluster.conf_dir / "server-1.yaml", {"ssl.keyStore.password": "hush"}, {})
    ZooKeeperFiles.under(directory, cluster.conf_dir).write(1)
    cluster.close()


def assert_private(directory: Path, *, less: int = 0) -> None:
    found = [directory, *directory.rglob("*")][less:]
    assert len(found) > 8
    for path in found:
        mode = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


def test_a_cluster_directory_is_its_users_alone(umask: int, tmp_path: Path) -> None:
    fill(tmp_path / "cluster")
    assert_private(tmp_path / "cluster")


def test_what_was_wider_is_closed_but_for_the_directory_that_was_given(umask: int, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    fill(directory)
    for path in directory.rglob("*"):
        path.chmod(0o777)
    fill(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    assert_private(directory, less=1)


async def test_started_processes_make_private_files_too(umask: int, tmp_path: Path) -> None:
    program = f"open({str(tmp_path / 'made')!r}, 'w').close()"
    process = ManagedProcess("server-1", [sys.executable, "-c", program], tmp_path / "log", {})
    await process.start()
    await process.wait()
    for name in ("made", "log"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name


def test_a_bundle_for_support_is_private(umask: int, tmp_path: Path) -> None:
    write_archive({"a": "b"}, tmp_path / "bundle.tar.gz", 0.0)
    assert stat.S_IMODE((tmp_path / "bundle.tar.gz").stat().st_mode) == 0o600
