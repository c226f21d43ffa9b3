"""Validation and measuring against fake servers: what they do, what they find, that they end."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from waltz_client import LockId, TransactionTooLargeError, WaltzClient
from waltz_runtime.exit_code import ExitCode
from waltz_testkit.fake_cluster import FakeCluster, fake_cluster
from waltz_tools.__main__ import run
from waltz_tools.cli.common import run_until
from waltz_tools.errors import DegradedError, ToolError
from waltz_tools.load_test import performance, validate
from waltz_tools.load_test.chain import ChainCheck, Link, run_lock

Connect = Callable[[], WaltzClient]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with fake_cluster(2) as running:
        yield running


@pytest.fixture
def connect(cluster: FakeCluster) -> Connect:
    settings = {
        "zookeeper.connectString": "none:1",
        "zookeeper.sessionTimeout": 10_000,
        "cluster.root": cluster.root,
        "client.ssl.enabled": False,
        "client.maxConcurrentTransactions": 20,
        "client.maxTransactionBytes": 1000,
    }
    return lambda: WaltzClient.connect(settings, store=cluster.session())


def _link(number: int, previous: int, producer: str = "a") -> bytes:
    return Link("run", producer, number, previous).to_bytes()


async def test_validation_passes_beside_other_writers(cluster: FakeCluster, connect: Connect) -> None:
    """Weakness 6.24 of 0.13.2: its validation needed partitions of its own for their whole life."""
    cluster.partitions[0].fill(50)

    async def disturb(client: WaltzClient) -> None:
        for number in range(200):
            await client.append(
                partition=number % 2, data=b"not of the run", write_locks=[LockId("other", 1)]
            )
            await asyncio.sleep(0)

    async with connect() as other, asyncio.TaskGroup() as group:
        disturbance = group.create_task(disturb(other))
        check = await validate.validate(connect, "run", 3, 20, 0.0, 2)
        disturbance.cancel()
    assert check.found == 60
    assert not check.problems


async def test_validation_notices_a_log_that_ignores_locks(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = itertools.count()
    monkeypatch.setattr(validate, "run_lock", lambda run: LockId(run, next(locks)))
    with pytest.raises(DegradedError, match=r"follows -?\d+, the log has \d+ before it"):
        await validate.validate(connect, "run", 4, 30, 0.0, 1)


def test_the_checker_names_what_is_wrong() -> None:
    check = ChainCheck("run")
    for txid, data in enumerate(
        [_link(0, -1), b"foreign", _link(1, 0), Link("other run", "b", 0, -1).to_bytes()]
    ):
        check.take(0, txid, data)
    assert (check.found, check.problems, check.last(0)) == (2, [], 2)
    check.take(0, 4, _link(2, 0))
    check.take(0, 6, _link(3, 4))
    check.take(0, 7, _link(3, 6))
    assert [p.split(": ")[1] for p in check.problems] == [
        "transaction 4 follows 0, the log has 2 before it",
        "6 came after 4",
        "transaction 7 is in the log twice",
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"waltz-validate",
        b'"waltz-validate"',
        b'{"kind": "waltz-validate"}',
        b"\xff\xfe",
        b'["waltz-validate", ' + b"[" * 100_000,
        b'{"kind": "waltz-validate", "run": "run", "producer": "a", "number": Infinity, "previous": 0}',
    ],
    ids=range(7),
)
def test_foreign_payloads_are_no_links(data: bytes) -> None:
    assert Link.from_bytes(data) is None


async def test_zookeeper_6_24_no_transactions_divide_by_nothing(connect: Connect) -> None:
    read = await performance.consume(connect, 100, 0, 2)
    assert read.facts()["transactions_per_second"] == 0.0
    assert read.facts()["transactions"] == 0
    nothing = performance.ProducerTest(100, 0, 2, 0.0, 2, 0, 5)
    assert (await performance.produce(connect, nothing)).facts()["mean_latency_ms"] == 0.0
    assert (await validate.validate(connect, "run", 2, 0, 0.0, 1)).found == 0


def test_zookeeper_6_24_nothing_waits_without_an_end() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ToolError, match=r"the test was not done after 0\.05 s"):
        run_until(work(), 0.05, "the test")


async def test_a_consumer_waits_for_what_is_missing_until_its_deadline(
    cluster: FakeCluster, connect: Connect
) -> None:
    async with connect() as client:
        await client.append(partition=0, data=_link(0, -1), write_locks=[run_lock("run")])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await validate.consume(client, "run", 2, {0: -1})
        assert (await validate.consume(client, "run", 1, {0: -1})).found == 1


async def test_producers_count_transactions_bytes_and_retries(cluster: FakeCluster, connect: Connect) -> None:
    test = performance.ProducerTest(64, 25, 3, 0.0, 2, lock_pool_size=1, in_flight=5)
    done = await performance.produce(connect, test)
    facts = done.facts()
    assert (facts["transactions"], facts["bytes"]) == (75, 75 * 64)
    assert done.retries > 0
    assert all(p.high_water_mark >= 0 for p in cluster.partitions.values())


async def test_consumers_read_back_what_they_wrote_and_nothing_older(
    cluster: FakeCluster, connect: Connect
) -> None:
    cluster.partitions[1].fill(30)
    read = await performance.consume(connect, 100, 150, 2)
    assert (read.transactions, read.data_bytes) == (150, 15_000)


async def test_an_append_that_fails_ends_the_consumer_test(connect: Connect) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await performance.consume(connect, 1001, 10, 1)
    assert caught.group_contains(TransactionTooLargeError, match="1000")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("client validate -tpc 1 -i 0 -nc 99999999999", "Input should be less than or equal to 10000"),
        ("perf test-producers -s 1 -p 1 -i 0 -t 99999999999", "Input should be less than or equal to 10000"),
        (
            "perf test-producers -s 99999999999 -p 1 -i 0 -t 1",
            "--txn-size 99999999999 is above client.maxTransactionBytes, 33554432",
        ),
        (
            "perf test-consumers -s 33554433 -t 1",
            "--txn-size 33554433 is above client.maxTransactionBytes, 33554432",
        ),
    ],
)
def test_more_than_a_process_can_hold_is_wrong_usage(
    arguments: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the clients nor the payload are made before the command ends by its deadline."""
    config = tmp_path / "client.yaml"
    config.write_text("servers: ['127.0.0.1:1']\nclient.ssl.enabled: false\n")
    assert run([*arguments.split(), "-c", str(config), "--timeout", "0.1"]) == ExitCode.USAGE
    assert said in capsys.readouterr().err


async def test_more_partitions_than_there_are_is_one_line(connect: Connect) -> None:
    with pytest.raises(ToolError, match="has 2 partitions, not 3"):
        await validate.validate(connect, "run", 1, 1, 0.0, 3)
