"""Every mistake of the list *bad input*, made with real processes next to a running cluster that must not
notice.

In place of one test per role where a member's own test shows the same thing completely, this table says where
it is:

| mistake | storage node | server | command | client |
| --- | --- | --- | --- | --- |
| wrong cluster key | here | here (health) | here | - |
| partition count mismatch | here | here | here | - |
| unknown option or key | here | here | here; tools test_cli | client test_bad_input |
| port in use | here; storage test_process (all three) | here | test_bad_input_local | - |
| unreadable key file | here | here | here | here |
| ZooKeeper absent | storage test_process | server test_main | tools test_cli | client test_bad_input |
| root missing | here | here | here | client test_bad_input |
| directory of another cluster | here | - | test_bad_input_local | - |
| read-only directory | here | - | test_bad_input_local | - |
| disk full | test_disk_full | test_disk_full (health) | test_disk_full | test_disk_full |
| oversized transaction | - | here | here | client test_bad_input; here |
| unknown partition | - | - | here; test_local_up | client test_bad_input |
| expired deadline | - | - | here | here |

The cases of storage node, server and command are parameters: each ends with one line and its exit code, and
`unharmed` then appends to the running cluster, reads its whole log and holds it against what was
acknowledged.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.integration.processes import (
    SERVER,
    STORAGE,
    WALTZ,
    Patient,
    contents,
    read_only,
    ruled_by_permissions,
    run_program,
    waltz,
)
from tests.integration.replicas import administrator, compare_replicas
from tests.integration.workload import check_log
from waltz_admin import seeding
from waltz_client import (
    DeadlineExceededError,
    OutcomeUnknownError,
    TransactionTooLargeError,
    WaltzClient,
)
from waltz_cluster import zk_client
from waltz_cluster.config.settings import CliSettings
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import ClusterParams, StoreParams
from waltz_protocol.errors import TlsSettingsError
from waltz_storage.engine.storage_manager import StorageManager
from waltz_testkit.ports import free_port
from waltz_tools.local import LocalCluster, LocalSettings
from waltz_tools.local.http import get_json

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

PARTITIONS = 2
MIB = 1024 * 1024
SERVER_FRAME_BYTES = 2 * MIB
OTHER_PARTITIONS = "/other_partitions"
"""A cluster whose two records of the number of partitions disagree."""
OTHER_CLUSTER = "/other_cluster"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Patient]:
    settings = LocalSettings(
        tmp_path_factory.mktemp("cluster"),
        partitions=PARTITIONS,
        servers=1,
        tls=False,
        session_timeout_ms=30_000,  # a server whose session ends on a slow machine is another one then
        overrides={"server": {"server.maxFrameBytes": SERVER_FRAME_BYTES}},
    )
    async with LocalCluster(settings) as cluster:
        await _seed_others(cluster)
        patient = Patient(cluster)
        await patient.is_unharmed()
        yield patient
        verdict = await check_log(cluster.client_config, patient.history)
        assert verdict.passed, str(verdict)
        assert await compare_replicas(cluster) == verdict.transactions


async def _seed_others(cluster: LocalCluster) -> None:
    store = await zk_client.connect(CliSettings.from_file(cluster.client_config))
    try:
        await seeding.create(store, OTHER_CLUSTER, "other", PARTITIONS)
        await store.create(OTHER_PARTITIONS, ClusterParams("confused", PARTITIONS + 1).to_bytes())
        paths = ClusterPaths(OTHER_PARTITIONS)
        await store.create(paths.store, StoreParams(uuid4(), PARTITIONS).to_bytes())
    finally:
        await store.close()


@pytest_asyncio.fixture(loop_scope="module")
async def unharmed(patient: Patient) -> AsyncIterator[Patient]:
    before = contents(patient.cluster.storage_directory("storage-1")).keys()
    servers = await _servers(patient)
    yield patient
    await patient.is_unharmed()
    assert contents(patient.cluster.storage_directory("storage-1")).keys() == before
    assert await _servers(patient) == servers
    assert all(patient.cluster.is_running(role) for role in patient.cluster.roles)


async def _servers(patient: Patient) -> list[str]:
    """Servers known to ZooKeeper."""
    async with administrator(patient.cluster) as admin:
        names, _ = await admin.store.get_children(ClusterPaths(admin.root).server_descriptors)
        return sorted(names)


def _storage_directory(path: Path, key_of: Path | None = None) -> Path:
    """A data directory; of a cluster of its own, or one that nobody has used yet."""
    path.mkdir()
    if key_of is None:
        StorageManager.open(
            str(path), cluster_key=uuid4(), num_partitions=PARTITIONS, now_ms=lambda: 0
        ).close()
    return path


def _unreadable(path: Path) -> str:
    path.write_text("secret")
    path.chmod(0)
    return str(path)


# ---- storage node


StorageCase = Callable[[Patient, Path], tuple[dict[str, object], str]]

STORAGE_CASES: dict[str, StorageCase] = {
    "unknown key": lambda patient, path: (
        {"storage__directry": "x"},
        "unknown key storage.directry; did you mean storage.directory?",
    ),
    "port in use": lambda patient, path: (
        {"storage__port": patient.cluster.port("storage-1", "storage")},
        f"port {patient.cluster.port('storage-1', 'storage')} on 127.0.0.1 is already in use",
    ),
    "unreadable key file": lambda patient, path: (
        {
            "storage__ssl__enabled": True,
            "storage__ssl__keyStore__location": _unreadable(path / "key.pem"),
        },
        "key.pem (storage.ssl.keyStore.location): Permission denied",
    ),
    "root missing": lambda patient, path: (
        {"cluster__root": "/nowhere"},
        "there is no store at /nowhere/store",
    ),
    "directory of a running node": lambda patient, path: (
        {"storage__directory": str(patient.cluster.storage_directory("storage-1"))},
        "another process is using this directory",
    ),
    "directory of another cluster": lambda patient, path: (
        {"storage__directory": str(_storage_directory(path / "foreign"))},
        "belongs to another cluster",
    ),
    "wrong cluster key": lambda patient, path: (
        {"cluster__root": OTHER_CLUSTER, "storage__directory": str(_copy_of_node(patient, path))},
        "belongs to another cluster",
    ),
    "partition count mismatch": lambda patient, path: (
        {"storage__directory": str(_directory_for_five(patient, path))},
        f"made for 5 partitions, ZooKeeper has {PARTITIONS}",
    ),
    "directory without permission": lambda patient, path: (
        {"storage__directory": str(_without_permission(path / "closed"))},
        "Permission denied",
    ),
}


def _copy_of_node(patient: Patient, path: Path) -> Path:
    target = path / "copy"
    target.mkdir()
    for name, data in contents(patient.cluster.storage_directory("storage-2")).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(data)
    return target


def _directory_for_five(patient: Patient, path: Path) -> Path:
    from uuid import UUID

    directory = path / "five"
    directory.mkdir()
    key = UUID(str(patient.cluster.state.cluster_key))
    StorageManager.open(str(directory), cluster_key=key, num_partitions=5, now_ms=lambda: 0).close()
    return directory


def _without_permission(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o555)
    return path


@pytest.mark.parametrize("case", STORAGE_CASES)
async def test_storage_node_refuses(case: str, unharmed: Patient, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    changes, words = STORAGE_CASES[case](unharmed, tmp_path)
    foreign = {"directory of a running node"}
    directory = Path(str(changes.get("storage__directory", tmp_path / "data")))
    before = {} if case in foreign else contents(directory)
    config = unharmed.config(tmp_path, "storage-1", **{"storage__directory": str(directory), **changes})
    ended = await run_program(*ruled_by_permissions(), *STORAGE, config)
    assert words in ended.one_error()
    if case not in foreign and case != "port in use":
        assert contents(directory) == before


async def test_storage_node_refuses_a_read_only_file_system(unharmed: Patient, tmp_path: Path) -> None:
    used = _copy_of_node(unharmed, tmp_path)
    before = contents(used)
    config = unharmed.config(tmp_path, "storage-1", storage__directory=str(used))
    with read_only(used):
        ended = await run_program(*STORAGE, config)
    line = ended.one_error()
    assert str(used) in line
    assert "Read-only file system" in line
    assert contents(used) == before


async def test_wrong_usage_of_the_services_is_one_line() -> None:
    for program in (STORAGE, SERVER):
        ended = await run_program(*program, "--nonsense")
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.count("\n") == 1, ended.err
        assert "CONFIG.yaml" in ended.err


# ---- server


SERVER_CASES: dict[str, StorageCase] = {
    "unknown key": lambda patient, path: (
        {"server__lockTableSize": 5},
        "unknown key server.lockTableSize; did you mean server.optimisticLockTableSize?",
    ),
    "port in use": lambda patient, path: (
        {"server__port": patient.cluster.port("server-1", "server")},
        f"port {patient.cluster.port('server-1', 'server')} on 127.0.0.1 is already in use",
    ),
    "HTTP port in use": lambda patient, path: (
        {"server__jetty__port": patient.cluster.port("server-1", "http")},
        f"127.0.0.1:{patient.cluster.port('server-1', 'http')} is already in use",
    ),
    "unreadable key file": lambda patient, path: (
        {
            "server__ssl__enabled": True,
            "server__ssl__allowUnverified": True,
            "server__ssl__keyStore__location": _unreadable(path / "key.pem"),
        },
        "key.pem (server.ssl.keyStore.location): Permission denied",
    ),
    "root missing": lambda patient, path: ({"cluster__root": "/nowhere"}, "there is no cluster at /nowhere"),
    "partition count mismatch": lambda patient, path: (
        {"cluster__root": OTHER_PARTITIONS},
        f"{OTHER_PARTITIONS} says {PARTITIONS + 1} partitions, its store {PARTITIONS}",
    ),
}


@pytest.mark.parametrize("case", SERVER_CASES)
async def test_server_refuses(case: str, unharmed: Patient, tmp_path: Path) -> None:
    changes, words = SERVER_CASES[case](unharmed, tmp_path)
    config = unharmed.config(tmp_path, "server-1", **changes)
    ended = await run_program(*ruled_by_permissions(), *SERVER, config)
    assert words in ended.one_error()


async def test_wrong_cluster_key_between_server_and_storage_node(unharmed: Patient, tmp_path: Path) -> None:
    """The records of another cluster name our nodes: its tools and its server are refused by them, and say
    why."""
    cluster = unharmed.cluster
    config = unharmed.client(tmp_path, cluster__root=OTHER_CLUSTER)
    node = str(cluster.storage_endpoint("storage-1"))
    port = str(cluster.port("storage-1", "admin"))
    assert (await waltz("zk", "add-storage-node", "-c", config, "-s", node, "-a", port, "-g", "0")).code == 0
    assert (await waltz("zk", "assign-partition", "-c", config, "-s", node, "-p", "0-1")).code == 0
    refused = await waltz("storage", "add-partition", "-c", config, "-s", f"127.0.0.1:{port}", "-p", "0-1")
    assert f"127.0.0.1:{port}" in refused.one_error()
    assert "cluster key" in refused.one_error()

    http_port = free_port()
    changed = unharmed.config(
        tmp_path, "server-1", cluster__root=OTHER_CLUSTER, server__jetty__port=http_port
    )
    stranger = await asyncio.create_subprocess_exec(
        *SERVER, changed, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while "cluster key" not in str((await get_json(http_port, "/health"))[1]):
                assert stranger.returncode is None
                await asyncio.sleep(0.05)
        status, body = await get_json(http_port, "/health")
        assert (status, body["server-health-check"]["healthy"]) == (500, False)
    finally:
        stranger.terminate()
        assert await stranger.wait() == 0


# ---- the command


CommandCase = Callable[[Patient, Path], tuple[list[str], str]]


def _append(config: str, *more: str) -> list[str]:
    return ["append", "-c", config, "--data", "x", *more]


def _running(patient: Patient) -> str:
    return str(patient.cluster.client_config)


COMMAND_CASES: dict[str, CommandCase] = {
    "unknown key": lambda patient, path: (
        _append(patient.client(path, client__autoMont=True)),
        "did you mean client.autoMount?",
    ),
    "root missing": lambda patient, path: (
        _append(patient.client(path, cluster__root="/nowhere")),
        "there is no cluster at /nowhere",
    ),
    "root missing, administration": lambda patient, path: (
        ["storage", "list", "-c", patient.client(path, cluster__root="/nowhere")],
        "there is no cluster at /nowhere",
    ),
    "partition count mismatch": lambda patient, path: (
        ["cluster", "verify", "-c", patient.client(path, cluster__root=OTHER_PARTITIONS)],
        "they must agree",
    ),
    "unreadable key file": lambda patient, path: (
        _append(
            patient.client(
                path,
                client__ssl__enabled=True,
                client__ssl__trustStore__location=_unreadable(path / "ca.pem"),
            )
        ),
        "ca.pem (client.ssl.trustStore.location): Permission denied",
    ),
    "unreadable key file, administration": lambda patient, path: (
        [
            *(
                "storage",
                "add-partition",
                "-s",
                str(patient.cluster.admin_endpoint("storage-1")),
                "-p",
                "0",
                "-c",
            ),
            patient.client(path, ssl__enabled=True, ssl__trustStore__location=_unreadable(path / "ca.pem")),
        ],
        "ca.pem (ssl.trustStore.location): Permission denied",
    ),
    "unknown partition, tail": lambda patient, path: (
        ["tail", "-c", _running(patient), "-p", "7"],
        "partition 7 does not exist",
    ),
    "unknown partition, assign": lambda patient, path: (
        [
            *("zk", "assign-partition", "-c", _running(patient), "-p", "7"),
            *("-s", str(patient.cluster.storage_endpoint("storage-1"))),
        ],
        "there is no partition 7",
    ),
    "unknown partition, node": lambda patient, path: (
        [
            *("storage", "add-partition", "-c", _running(patient), "-p", "0-7"),
            *("-s", str(patient.cluster.admin_endpoint("storage-1"))),
        ],
        "there is no partition",
    ),
    "oversized transaction": lambda patient, path: (
        ["append", "-c", patient.client(path, client__maxTransactionBytes=1000), "--data", "y" * 1001],
        "1001 bytes is larger than client.maxTransactionBytes",
    ),
}


@pytest.mark.parametrize("case", COMMAND_CASES)
async def test_command_refuses(case: str, unharmed: Patient, tmp_path: Path) -> None:
    arguments, words = COMMAND_CASES[case](unharmed, tmp_path)
    ended = await run_program(*ruled_by_permissions(), *WALTZ, *arguments)
    assert words in ended.one_error()
    assert (ended.out, ended.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tail", "--form", "0"), "--form"),
        (("storage", "lits"), "lits"),
        (("append", "-p", "-1"), "greater than or equal to 0"),
    ],
)
async def test_wrong_usage_of_the_command_is_one_line(
    arguments: tuple[str, ...], words: str, unharmed: Patient
) -> None:
    ended = await waltz(*arguments, *(("-c", _running(unharmed)) if arguments[0] != "storage" else ()))
    assert words in ended.one_error(2)
    assert (ended.out, ended.err.count("\n")) == ("", 1)


# ---- the client


async def test_client_refuses_an_unreadable_key_file(unharmed: Patient, tmp_path: Path) -> None:
    config = unharmed.client(
        tmp_path, client__ssl__enabled=True, client__ssl__trustStore__location=str(tmp_path)
    )
    with pytest.raises(TlsSettingsError, match=r"ca\.crt \(client\.ssl\.trustStore\.location\)"):
        async with WaltzClient.connect(config):
            pass


async def test_oversized_transaction_is_refused_before_it_is_sent(unharmed: Patient) -> None:
    async with WaltzClient.connect(_running(unharmed)) as client:
        with pytest.raises(TransactionTooLargeError, match="is larger than"):
            await client.append(partition=0, data=bytes(32 * MIB + 1))
        await unharmed.append(client)


async def test_oversized_transaction_between_the_limits_of_client_and_server(unharmed: Patient) -> None:
    """The client's limit is above the server's: the server's log says why, and the client continues with
    other appends.

    The server cannot name the append it refuses (it has not read it), so the outcome of that one is unknown.
    """
    async with WaltzClient.connect(_running(unharmed)) as client:
        await unharmed.append(client, bytes(SERVER_FRAME_BYTES // 2))
        with pytest.raises(OutcomeUnknownError, match="did not come within 1 s"):
            await client.append(partition=0, data=bytes(SERVER_FRAME_BYTES + 1), deadline_seconds=1)
        await unharmed.append(client)
    log = unharmed.cluster.log_path("server-1").read_text()
    assert f"exceeds the limit of {SERVER_FRAME_BYTES} bytes" in log
    assert "Traceback" not in log


async def test_expired_deadline_says_whether_the_append_can_be_in_the_log(
    unharmed: Patient, tmp_path: Path
) -> None:
    """The server is stopped: what was sent is unknown (and settled later), what was not sent has failed."""
    cluster, history = unharmed.cluster, unharmed.history
    async with WaltzClient.connect(_running(unharmed)) as client:
        await unharmed.append(client)
        await unharmed.append(client)
        cluster.pause_role("server-1")
        try:
            history.unknown.add(b"sent")
            with pytest.raises(
                OutcomeUnknownError, match=r"was sent, but its outcome did not come within 0\.5 s"
            ):
                await client.append(partition=0, data=b"sent", deadline_seconds=0.5)
            async with WaltzClient.connect(_running(unharmed)) as late:
                with pytest.raises(DeadlineExceededError, match=r"was not sent within 0\.5 s"):
                    await late.append(partition=0, data=b"never sent", deadline_seconds=0.5)
            command = await waltz(*_append(_running(unharmed), "--deadline", "0.5"))
            assert "0.5 s" in command.one_error()
            assert command.err.count("\n") == 1
        finally:
            cluster.resume_role("server-1")
        await unharmed.append(client)
