"""The pytest plugin of waltz-client: the fixtures `waltz_log` and `waltz_cluster` (docs/applications.md).

pytest imports this module at every start, so it imports nothing of Waltz itself; fixtures do, when a test
asks for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from waltz_client.testing import InProcessLog

_INI = {
    "waltz_partitions": ("partitions of the cluster of `waltz_cluster`: each test takes its own", "32"),
    "waltz_servers": ("servers of the cluster of `waltz_cluster`", "1"),
    "waltz_storage_nodes": ("storage nodes of the cluster of `waltz_cluster`", "1"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The shape of the cluster."""
    for name, (help_text, default) in _INI.items():
        parser.addini(name, f"{help_text} (default: {default})", default=default)


def pytest_configure(config: pytest.Config) -> None:
    """The marker that a log is made by."""
    config.addinivalue_line(
        "markers",
        "waltz_log(num_partitions=1, **options): what the fixture waltz_log is made with (waltz_client.testing.InProcessLog)",
    )


@pytest.fixture
def waltz_log(request: pytest.FixtureRequest) -> InProcessLog:
    """A log in memory, without servers, new for each test; `@pytest.mark.waltz_log(num_partitions=4)` sets
    what it is made with."""
    from waltz_client.testing import InProcessLog

    marker = request.node.get_closest_marker("waltz_log")
    return InProcessLog(*marker.args, **marker.kwargs) if marker else InProcessLog()


@pytest.fixture(scope="session")
def _waltz_processes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcesses]:
    shape = {name: _number(request.config, name) for name in _INI}
    with cluster_processes(
        tmp_path_factory.mktemp("waltz"),
        partitions=shape["waltz_partitions"],
        servers=shape["waltz_servers"],
        storage_nodes=shape["waltz_storage_nodes"],
    ) as processes:
        yield processes


@pytest.fixture
def waltz_cluster(_waltz_processes: ClusterProcesses) -> WaltzCluster:
    """A cluster of processes on this machine, started once for the run; `partition` is an empty one of this
    test's own."""
    return WaltzCluster(_waltz_processes)


def _number(config: pytest.Config, name: str) -> int:
    value = str(config.getini(name))
    if not value.isdigit() or int(value) < 1:
        raise pytest.UsageError(f"{name} is a number from 1 on, not {value!r}")
    return int(value)


class ClusterProcesses:
    """The cluster of a run. Invariant: each partition is given to one test."""

    def __init__(self, client_config: Path, partitions: int) -> None:
        self.client_config = client_config
        self._partitions = partitions
        self._taken = 0

    def take_partition(self) -> int:
        """A partition that no test has used."""
        if self._taken == self._partitions:
            pytest.fail(
                f"the tests of this run have used all {self._partitions} partitions of the cluster: set waltz_partitions "
                "in the configuration of pytest to more",
                pytrace=False,
            )
        self._taken += 1
        return self._taken - 1


class WaltzCluster:
    """The cluster, as one test sees it."""

    def __init__(self, processes: ClusterProcesses) -> None:
        self._processes = processes
        self.client_config = processes.client_config
        """The file for `WaltzClient.connect` and `BlockingWaltzClient.connect`."""

    @cached_property
    def partition(self) -> int:
        """This test's own partition, in which nothing has been appended."""
        return self._processes.take_partition()

    def take_partition(self) -> int:
        """One more such partition."""
        return self._processes.take_partition()

    def high_water_marks(self) -> dict[int, int]:
        """Where each partition ends now: for applications that use all of them, and begin there."""
        from waltz_client.blocking import BlockingWaltzClient

        with BlockingWaltzClient.connect(self.client_config) as client:
            return {
                partition: client.high_water_mark(partition) for partition in range(client.num_partitions)
            }


@contextlib.contextmanager
def cluster_processes(
    directory: Path, *, partitions: int, servers: int, storage_nodes: int
) -> Iterator[ClusterProcesses]:
    """Start the processes in a directory; end them. Fails the test with one line when it cannot."""
    try:
        from waltz_tools.errors import LocalClusterError
        from waltz_tools.local import LocalCluster, LocalSettings
    except ModuleNotFoundError as error:
        from waltz_protocol.extras import with_extra

        pytest.fail(
            f"waltz_cluster runs servers and storage nodes, and {error.name} is not installed: "
            + with_extra("waltz-tools", "local"),
            pytrace=False,
        )
    from waltz_client._internal.loop_thread import LoopThread

    settings = LocalSettings(
        directory, partitions=partitions, servers=servers, storage_nodes=storage_nodes, tls=False
    )
    cluster = LocalCluster(settings)
    thread = LoopThread()  # the processes end with the thread that started them
    thread.start()
    try:
        try:
            thread.call(cluster.start())
        except LocalClusterError as error:
            pytest.fail(f"waltz_cluster: {error}", pytrace=False)
        try:
            yield ClusterProcesses(cluster.client_config, partitions)
        finally:
            thread.call(cluster.stop())
    finally:
        thread.end()
