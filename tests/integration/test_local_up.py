"""`waltz local up` as a person uses it: up, append, tail, Ctrl-C, up again, and all data is there."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from waltz_client import WaltzClient
from waltz_testkit.ports import hold_ports
from waltz_tools.local import LocalCluster, LocalSettings

WALTZ = [sys.executable, "-m", "waltz_tools"]
SECONDS = 90.0

pytestmark = [pytest.mark.timeout(300)]


async def waltz(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """One command to its end: exit code, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        *WALTZ,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate(stdin)
    return process.returncode or 0, out.decode(), err.decode()


@asynccontextmanager
async def up(
    directory: Path, *options: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, object]]]:
    """`waltz local up --output json`: the process and what it printed; stopped by Ctrl-C at the end. Its
    ports are reserved from then on, so that no other test has one before the next start of the
    directory."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'umask 0 && exec "$@"', "up", *WALTZ),
        *("local", "up", "--data", str(directory), "--output", "json", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        if process.stdout is None:
            raise AssertionError("no pipe")
        async with asyncio.timeout(SECONDS):
            line = await process.stdout.readline()
        if not line:
            _, err = await process.communicate()
            raise AssertionError(err.decode())
        yield process, json.loads(line)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            await process.communicate()
        ports = json.loads((directory / "cluster.json").read_text())["ports"]
        hold_ports(number for role in ports.values() for number in role.values())


async def test_what_it_prints_works_as_it_is_printed(tmp_path: Path) -> None:
    """Started as after `make setup`, where `waltz` is not on PATH: the command to try, and the HTTP pages."""
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("waltz"), "local", "up", "--data", tmp_path / "a b"),
        *("--partitions", "1", "--servers", "1", "--storage-nodes", "1"),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        if process.stdout is None:
            raise AssertionError("no pipe")
        printed: list[str] = []
        async with asyncio.timeout(SECONDS):
            while not printed or not printed[-1].startswith("Ctrl-C"):
                printed.append((await process.stdout.readline()).decode().strip())
        pages = [line.split("http://")[1].split()[0] for line in printed if line.startswith("HTTP of ")]
        assert len(pages) == 2
        for page in pages:
            host, port = page.removesuffix("/health").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            assert b" 200 " in await reader.readline()
            writer.close()
        (line,) = [line for line in printed if line.startswith("try: ")]
        shell = await asyncio.create_subprocess_exec(
            *("sh", "-c", line.removeprefix("try: ")), stdout=asyncio.subprocess.PIPE, env=environment
        )
        async with asyncio.timeout(SECONDS):
            out, _ = await shell.communicate()
        assert shell.returncode == 0
        assert out.decode().splitlines()[0] == "0 0"
        assert _transactions(out.decode().partition("\n")[2]) == [(0, 0, "hello")]
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            await process.communicate()


def _transactions(out: str) -> list[tuple[int, int, str]]:
    lines = [json.loads(line) for line in out.splitlines()]
    return [(line["partition"], line["transaction"], line["data"]) for line in lines]


@pytest.mark.parametrize("tls", ["--tls", pytest.param("--no-tls", marks=pytest.mark.long)])
async def test_up_append_tail_stop_and_up_again_finds_all_data(tmp_path: Path, tls: str) -> None:
    directory = tmp_path / "cluster"
    async with up(directory, tls, "--partitions", "4") as (process, facts):
        config, pids = str(facts["config"]), facts["pids"]
        assert isinstance(pids, dict)
        assert len(pids) == 6
        code, out, err = await waltz("append", "-c", config, "-p", "2", stdin="one\ntwo\nthrée\n".encode())
        assert (code, out, err) == (0, "2 0\n2 1\n2 2\n", "")
        assert (await waltz("append", "-c", config, "--data", "locked", "--lock", "account:7"))[0] == 0
        refused = await waltz("local", "up", "--data", str(directory))
        assert (refused[0], len(refused[2].splitlines())) == (1, 1)
        assert "is in use by another" in refused[2]
        code, out, _ = await waltz("cluster", "verify", "-c", config, "--output", "json")
        assert code == 0
        assert all(check["passed"] for check in json.loads(out)["checks"])
    assert process.returncode == 0
    assert not [pid for pid in pids.values() if psutil.pid_exists(pid)]
    made = {path: path.stat().st_mode & 0o077 for path in (directory, *directory.rglob("*"))}
    assert not [path for path, open_to_others in made.items() if open_to_others]

    async with up(directory) as (process, facts):
        config = str(facts["config"])
        code, out, _ = await waltz("tail", "-c", config, "--from", "0")
        assert code == 0
        expected = [(0, 0, "locked"), (2, 0, "one"), (2, 1, "two"), (2, 2, "thrée")]
        assert sorted(_transactions(out)) == expected
        code, out, _ = await waltz("append", "-c", config, "--data", "four", "-p", "2", "--output", "json")
        assert (code, json.loads(out)) == (0, {"partition": 2, "transaction": 3})
        code, out, _ = await waltz("tail", "-c", config, "-p", "2", "-n", "2")
        assert _transactions(out) == [(2, 2, "thrée"), (2, 3, "four")]
        stale = await waltz("append", "-c", config, "--data", "x", "--lock", "account:7", "--as-of", "-1")
        assert (stale[0], len(stale[2].splitlines())) == (1, 1)
        assert "lock conflict in partition 0" in stale[2]
        unknown = await waltz("append", "-c", config, "--data", "x", "-p", "4")
        assert (unknown[0], unknown[2]) == (
            1,
            "Error: partition 4 does not exist: the cluster has partitions 0 to 3\n",
        )
    assert process.returncode == 0


async def test_follow_shows_what_is_appended_and_a_killed_process_comes_back(tmp_path: Path) -> None:
    async with up(tmp_path, "--partitions", "2") as (_, facts):
        config, pids = str(facts["config"]), facts["pids"]
        assert isinstance(pids, dict)
        tail = await asyncio.create_subprocess_exec(
            *WALTZ, "tail", "-c", config, "--follow", "--from", "0", stdout=asyncio.subprocess.PIPE
        )
        assert tail.stdout is not None
        async with asyncio.timeout(SECONDS):
            assert (await waltz("append", "-c", config, "--data", "before"))[0] == 0
            assert json.loads(await tail.stdout.readline())["data"] == "before"
            os.kill(pids["storage-2"], signal.SIGKILL)
            assert (await waltz("append", "-c", config, "--data", "between"))[0] == 0
            assert json.loads(await tail.stdout.readline())["data"] == "between"
            while (await waltz("storage", "list", "-c", config))[0] != 0:
                await asyncio.sleep(0.1)  # it is started again within a second
            tail.send_signal(signal.SIGINT)
            rest, _ = await tail.communicate()
        assert (tail.returncode, rest) == (0, b"")


async def test_sigkill_of_up_leaves_no_process_and_the_next_up_finds_the_data(tmp_path: Path) -> None:
    async with up(tmp_path, "--partitions", "2") as (process, facts):
        pids = facts["pids"]
        assert isinstance(pids, dict)
        assert (await waltz("append", "-c", str(facts["config"]), "--data", "survives"))[0] == 0
        process.kill()
        await process.wait()
        async with asyncio.timeout(SECONDS):
            while any(_alive(pid) for pid in pids.values()):
                await asyncio.sleep(0.02)
    async with up(tmp_path) as (_, facts):
        _, out, _ = await waltz("tail", "-c", str(facts["config"]))
        assert _transactions(out) == [(0, 0, "survives")]


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.long
async def test_storage_nodes_are_added_and_removed_while_writes_go_on(tmp_path: Path) -> None:
    settings = LocalSettings(tmp_path, partitions=2, tls=False)
    async with LocalCluster(settings) as cluster, WaltzClient.connect(cluster.client_config) as client:
        stop = asyncio.Event()

        async def write() -> list[int]:
            ids: list[int] = []
            while not stop.is_set():
                committed = await client.append(
                    partition=len(ids) % 2, data=str(len(ids)).encode(), deadline_seconds=60
                )
                ids.append(committed.transaction_id)
            return ids

        async with asyncio.TaskGroup() as group:
            writing = group.create_task(write())
            assert await cluster.add_storage_node() == "storage-4"
            assert await cluster.add_storage_node() == "storage-5"
            await _verified(cluster)
            await cluster.remove_storage_node("storage-1")
            await _verified(cluster)
            stop.set()
        ids = writing.result()
        assert ids[0::2] == list(range(len(ids[0::2])))
        assert ids[1::2] == list(range(len(ids[1::2])))
        until = {partition: await client.high_water_mark(partition) for partition in range(2)}
        read = [t.data async for t in client.feed(range(2), after=-1, until=until)]
        assert sorted(int(data or b"") for data in read) == list(range(len(ids)))
        assert cluster.storage_roles == ["storage-2", "storage-3", "storage-4", "storage-5"]


async def _verified(cluster: LocalCluster) -> None:
    """Until every check of `waltz cluster verify` passes."""
    async with asyncio.timeout(SECONDS):
        while (await waltz("cluster", "verify", "-c", str(cluster.client_config)))[0] != 0:
            await asyncio.sleep(0.1)
