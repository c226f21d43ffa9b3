"""The whole stack under somebody else's deterministic loop: detangle 0.1.0, with its schedules, network and
clock.

The other two loops of that kind, simloop and simloom, need Python 3.12. A failing run prints the token with
which `detangle.replay` repeats it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter

import detangle
import pytest
from detangle.errors import RealIOError

from tests.second_opinion.bridge import number_tasks
from tests.second_opinion.cluster import PARTITIONS, SERVERS, STORAGE, MiniCluster
from waltz_client.errors import AppendError
from waltz_protocol.aio.tls import TlsSettings, server_context
from waltz_protocol.locks import LockId

CLIENTS = 3
APPENDS = 8
NETWORK = detangle.NetConfig(latency=(0.0005, 0.02), fragment=0.2)
CONFIG = detangle.SimConfig(net=NETWORK, max_steps=400_000, max_time=600.0)


@pytest.fixture(autouse=True)
def no_kernel_behind_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sockets know nothing of what a peer has acknowledged, and answer 0 to every such question."""
    monkeypatch.delattr(socket, "TCP_INFO", raising=False)


async def appends_while_a_node_is_away(seed: int, server_tls: ssl.SSLContext | None) -> int:
    """Clients append under common locks while one storage node is cut off for a while; then the disks are
    read."""
    cluster = MiniCluster(seed, server_tls)
    await cluster.start()
    acknowledged: list[tuple[int, int, bytes]] = []
    unknown: list[bytes] = []
    writers = [
        detangle.spawn(_append(cluster, number, acknowledged, unknown), host=f"client-{number}")
        for number in range(CLIENTS)
    ]
    network = detangle.network()
    await asyncio.sleep(0.4)
    away = STORAGE[seed % len(STORAGE)]
    network.partition([away], [*SERVERS, *(name for name in STORAGE if name != away)])
    await asyncio.sleep(2.0)
    network.heal()
    await asyncio.gather(*writers)
    await asyncio.sleep(30)  # the node that was away catches up
    _check_feed(await detangle.spawn(_read_all(cluster), host="reader"), acknowledged)
    await cluster.stop()
    _check_disks(cluster, acknowledged, unknown)
    if server_tls is not None:
        assert cluster.bridge.handshakes >= len(STORAGE) + CLIENTS
    return len(acknowledged)


async def _append(
    cluster: MiniCluster, number: int, acknowledged: list[tuple[int, int, bytes]], unknown: list[bytes]
) -> None:
    async with cluster.client(number) as client:
        for turn in range(APPENDS):
            data = f"{number}/{turn}".encode()
            partition = (number + turn) % PARTITIONS
            try:
                committed = await client.append(
                    partition=partition,
                    data=data,
                    append_locks=[LockId("account", turn % 3)],
                    deadline_seconds=120,
                )
            except AppendError:
                unknown.append(data)
            else:
                acknowledged.append((partition, committed.transaction_id, data))


async def _read_all(cluster: MiniCluster) -> dict[tuple[int, int], bytes]:
    """Everything a fresh client is given, by partition and id."""
    found = {}
    async with cluster.client(99) as client:
        for partition in range(PARTITIONS):
            mark = await client.high_water_mark(partition, deadline_seconds=60)
            for txid in range(mark + 1):
                found[partition, txid] = await client.get_data(partition, txid, deadline_seconds=60)
    return found


def _check_feed(read: dict[tuple[int, int], bytes], acknowledged: list[tuple[int, int, bytes]]) -> None:
    for partition, txid, data in acknowledged:
        assert read[partition, txid] == data


def _check_disks(
    cluster: MiniCluster, acknowledged: list[tuple[int, int, bytes]], unknown: list[bytes]
) -> None:
    """Dense ids, equal replicas, every acknowledged append exactly once, and nothing that nobody sent."""
    seen: Counter[bytes] = Counter()
    for partition in range(PARTITIONS):
        logs = cluster.logs(partition)
        longest = max(logs.values(), key=len)
        assert [txid for txid, _ in longest] == list(range(len(longest)))
        for name, log in logs.items():
            assert log == longest, (
                f"{name} holds {len(log)} records of partition {partition}, another {len(longest)}"
            )
        for found, txid, data in acknowledged:
            assert found != partition or longest[txid] == (txid, data)
        seen.update(data for _, data in longest)
    assert all(seen[data] == 1 for _, _, data in acknowledged)
    assert all(seen[data] <= 1 for data in unknown)
    assert len(seen) <= len(acknowledged) + len(unknown)


def _run(strategy: detangle.Strategy, seed: int, tls: ssl.SSLContext | None = None) -> detangle.RunResult:
    strategy.start(seed)
    result = detangle.execute(
        appends_while_a_node_is_away, (seed, tls), config=CONFIG, strategy=strategy, setup=number_tasks
    )
    token = detangle.encode_token(result.values)
    assert result.failure is None, f"seed {seed}: {result.failure.message}\nreplay token: {token[:2000]}"
    return result


@pytest.mark.parametrize("seed", range(8))
def test_whole_stack_under_random_schedules(seed: int) -> None:
    result = _run(detangle.RandomWalk(seed), seed)
    assert result.value == CLIENTS * APPENDS


@pytest.mark.parametrize("seed", range(4))
def test_whole_stack_under_pct_schedules(seed: int) -> None:
    result = _run(detangle.PCT(seed, depth=5, horizon=4000), seed)
    assert result.value == CLIENTS * APPENDS


def test_the_same_seed_is_the_same_run() -> None:
    first, second = (_run(detangle.RandomWalk(7), 7) for _ in range(2))
    assert (first.steps, first.order_hash, first.values) == (second.steps, second.order_hash, second.values)


def test_whole_stack_with_tls_carried_by_the_bridge() -> None:
    tls = server_context(TlsSettings())
    assert tls is not None
    assert _run(detangle.RandomWalk(1), 1, tls).value == CLIENTS * APPENDS


def test_what_the_loop_lacks_for_tls() -> None:
    """It takes `ssl=` and sends plaintext; what our listeners with TLS call is refused. Hence the bridge."""
    received: list[bytes] = []

    class Listening(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.append(data)

    async def speak() -> None:
        loop = asyncio.get_running_loop()
        context = ssl.create_default_context()
        await loop.create_server(Listening, "server", 1, ssl=context)
        transport, _ = await loop.create_connection(asyncio.Protocol, "server", 1, ssl=context)
        transport.write(b"plain")
        await asyncio.sleep(1)
        with socket.socket() as real:
            for refused in (loop.sock_accept(real), loop.connect_accepted_socket(asyncio.Protocol, real)):
                with pytest.raises(RealIOError):
                    await refused

    assert detangle.execute(speak).failure is None
    assert received == [b"plain"]
