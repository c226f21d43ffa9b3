"""Transaction data: cache, ranges, failures, slow readers."""

import pytest

from waltz_protocol.messages.client import TransactionDataResponse
from waltz_protocol.types import data_checksum
from waltz_server.partition import data_reads
from waltz_server.partition.held_reads import MAX_PER_CLIENT
from waltz_server.partition.owned_partition import PartitionSettings
from waltz_testkit.client_peers import FakeClient
from waltz_testkit.partition_rig import PartitionRig, wire_record


async def test_committed_data_comes_from_memory() -> None:
    async with PartitionRig() as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.append(client, data=b"hello")
        await rig.turns()
        req_id = rig.read(client, 0)
        assert client.messages() == [TransactionDataResponse(req_id, 0, b"hello", data_checksum(b"hello"))]
        assert rig.store.reads == []


async def test_pipelined_reads_from_the_beginning_become_few_growing_ranges() -> None:
    async with PartitionRig(records=3000) as rig:
        client = FakeClient()
        for n in range(3000):
            rig.read(client, n)
        await rig.until(lambda: len(client.of(TransactionDataResponse)) == 3000)
        assert len(rig.store.reads) <= 10
        assert [m.transaction_id for m in client.of(TransactionDataResponse)] == list(range(3000))
        asked = [n for first, count in rig.store.reads for n in range(first, first + count)]
        assert len(asked) == len(set(asked))  # no transaction was read twice


async def test_concurrent_readers_share_a_range() -> None:
    async with PartitionRig(records=10) as rig:
        clients = [FakeClient(n) for n in range(5)]
        rig.store.gate.clear()
        for client in clients:
            rig.read(client, 3)
        await rig.turns()
        rig.store.gate.set()
        await rig.turns()
        assert len(rig.store.reads) == 1
        assert all(len(client.messages()) == 1 for client in clients)


async def test_range_cut_short_by_the_store_is_asked_for_again() -> None:
    async with PartitionRig(records=40) as rig:
        rig.store.max_records_per_read = 3
        client = FakeClient()
        for n in range(16):
            rig.read(client, n)
        await rig.until(lambda: len(client.of(TransactionDataResponse)) == 16)
        assert all(m.error is None for m in client.of(TransactionDataResponse))


async def test_safety_d1_nothing_above_the_committed_mark_is_read() -> None:
    async with PartitionRig(records=2, auto_commit=False) as rig:
        client = FakeClient()
        await rig.mount(client)
        rig.append(client)
        await rig.turns()
        client.clear()
        rig.store.log.append(wire_record(2))  # durable on a replica, not committed
        for n in (2, 3, -1):
            rig.read(client, n)
        responses = client.of(TransactionDataResponse)
        assert [m.data for m in responses] == [None, None, None]
        assert all("transaction not found" in (m.error or "") for m in responses)
        assert rig.store.reads == []


async def test_client_server_13_13_failed_read_is_not_cached() -> None:
    async with PartitionRig(records=2) as rig:
        client = FakeClient()
        rig.store.read_error = "no replica answers"
        rig.read(client, 0)
        rig.read(client, 2)
        await rig.turns()
        assert {m.error is not None for m in client.of(TransactionDataResponse)} == {True}
        client.clear()
        rig.store.read_error = None
        rig.read(client, 0)
        await rig.turns()
        assert [m.data for m in client.of(TransactionDataResponse)] == [b"old"]
        await rig.mount(client)
        rig.append(client, data=b"new")
        await rig.turns()
        client.clear()
        rig.read(client, 2)
        assert [m.data for m in client.of(TransactionDataResponse)] == [b"new"]


async def test_storage_7_28_one_unreadable_record_does_not_take_its_neighbours_along() -> None:
    async with PartitionRig(records=20) as rig:
        rig.store.bad_ids = {5}
        client = FakeClient()
        for n in range(8):
            rig.read(client, n)
        await rig.turns()
        for n in range(8):  # the client asks again, as clients do
            rig.read(client, n)
            await rig.turns()
        good = {m.transaction_id for m in client.of(TransactionDataResponse) if m.error is None}
        assert good == {0, 1, 2, 3, 4, 6, 7}


async def test_client_server_13_14_slow_read_holds_up_nothing_else() -> None:
    async with PartitionRig(records=5000) as rig:
        client = FakeClient()
        await rig.mount(client)
        client.clear()
        rig.store.gate.clear()
        rig.read(client, 0)
        await rig.turns()
        rig.append(client, data=b"hello")
        await rig.turns()
        quick = rig.read(client, 5000)
        assert client.messages() == [TransactionDataResponse(quick, 5000, b"hello", data_checksum(b"hello"))]
        rig.read(client, 4000)
        await rig.turns()
        assert [first for first, _ in rig.store.reads] == [0, 4000]
        rig.store.gate.set()
        await rig.turns()
        assert len(client.messages()) == 3


async def test_slow_client_holds_requests_not_data() -> None:
    async with PartitionRig() as rig:
        writer, slow = FakeClient(1), FakeClient(2, buffer_bytes=5000)
        await rig.mount(writer)
        for _ in range(50):
            rig.append(writer, data=b"x" * 1000)
        await rig.turns()
        for n in range(50):
            rig.read(slow, n)
        assert slow.most_waiting_bytes < 7000
        for _ in range(20):
            slow.drain()
        assert [m.transaction_id for m in slow.of(TransactionDataResponse)] == list(range(50))
        assert slow.most_waiting_bytes < 7000


async def test_slow_client_whose_read_completes_later_gets_it_when_it_drains() -> None:
    async with PartitionRig(records=3) as rig:
        slow = FakeClient(2, buffer_bytes=10)
        rig.store.gate.clear()
        rig.read(slow, 0)
        rig.read(slow, 1)
        await rig.turns()
        slow.writable = False
        rig.store.gate.set()
        await rig.turns()
        assert slow.messages() == []
        slow.drain()
        assert len(slow.messages()) == 1
        slow.drain()
        assert len(slow.messages()) == 2


async def test_waiting_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_reads, "MAX_WAITING", 10)
    async with PartitionRig(records=100) as rig:
        client, deaf = FakeClient(1), FakeClient(2)
        rig.store.gate.clear()
        for n in range(12):
            rig.read(client, n)
        errors = [m.error for m in client.of(TransactionDataResponse)]
        assert errors == ["too many requests"] * 2
        deaf.writable = False
        for n in range(11):
            rig.read(deaf, n)
        assert deaf.closed
        rig.partition.client_closed(deaf)
        rig.partition.client_closed(client)
        rig.store.gate.set()
        await rig.turns()
        assert len(client.messages()) == 2


async def test_requests_before_the_end_of_the_recovery_wait_for_it() -> None:
    """A client of 0.13.2 that is refused often sleeps up to five seconds, and applies nothing meanwhile."""
    async with PartitionRig(records=3, open_at_once=False) as rig:
        client, gone = FakeClient(), FakeClient(2)
        asked = [rig.read(client, transaction_id) for transaction_id in (2, 0, 7)]
        rig.read(gone, 1)
        rig.partition.client_closed(gone)
        await rig.turns()
        assert client.stream == b""
        rig.store.open_session()
        await rig.until(lambda: len(client.messages()) == 3)
        answers = {m.req_id: (m.data, m.error) for m in client.of(TransactionDataResponse)}
        assert [answers[req_id][0] for req_id in asked] == [b"old", b"old", None]
        assert "not found" in (answers[asked[2]][1] or "")
        assert gone.stream == b""


async def test_requests_that_wait_too_long_or_too_many_are_refused() -> None:
    settings = PartitionSettings(mount_wait_seconds=0.02)
    async with PartitionRig(records=3, open_at_once=False, settings=settings) as rig:
        client, other = FakeClient(), FakeClient(2)
        for _ in range(MAX_PER_CLIENT + 5):
            rig.read(client, 0)
        assert [m.error for m in client.of(TransactionDataResponse)] == ["partition not ready"] * 5
        await rig.until(lambda: len(client.messages()) == MAX_PER_CLIENT + 5)
        rig.read(other, 0)
        assert other.stream == b""
        await rig.until(lambda: len(other.messages()) == 1)
        rig.read(other, 0)
        rig.partition.close()
        rig.read(other, 0)
        assert [m.error for m in other.of(TransactionDataResponse)] == ["partition not ready"] * 3
        assert len(rig.partition._held_reads) == 0


async def test_after_closing_requests_fail_politely() -> None:
    async with PartitionRig(records=3) as rig:
        client = FakeClient()
        rig.store.gate.clear()
        rig.read(client, 0)
        await rig.turns()
        rig.partition.close()
        assert [m.error for m in client.of(TransactionDataResponse)] == ["partition not ready"]
