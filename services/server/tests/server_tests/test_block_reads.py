"""What feeds of blocks ask storage nodes and the cache for."""

import pytest

from server_tests.test_block_feeds import blocks, ids, open_feed, reader
from waltz_protocol.frames.blocks import stored_of_record
from waltz_server.partition.transaction_cache import SLICE_RECORDS, PartitionTransactionCache
from waltz_server.store.record_run import RecordRun
from waltz_testkit.partition_rig import PartitionRig, wire_record


async def test_a_turn_looks_at_a_bounded_number_however_small_the_credits_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with PartitionRig(records=600) as rig:
        for txid in range(600):
            rig.partition._transactions.put(txid, stored_of_record(wire_record(txid)))
        feeds = rig.partition.block_feeds_of(reader())
        looked, get, slice_of = 0, PartitionTransactionCache.get, PartitionTransactionCache.slice

        def counted(cache: PartitionTransactionCache, transaction_id: int) -> bytes | None:
            nonlocal looked
            looked += 1
            return get(cache, transaction_id)

        def counted_slice(cache: PartitionTransactionCache, first: int, most: int) -> list[bytes]:
            nonlocal looked
            found = slice_of(cache, first, most)
            looked += len(found)
            return found

        monkeypatch.setattr(PartitionTransactionCache, "get", counted)
        monkeypatch.setattr(PartitionTransactionCache, "slice", counted_slice)
        client = reader()
        for seq_num in range(50):
            open_feed(rig, client, credit=1, seq_num=seq_num)
        feeds._pump()
        assert len(blocks(client)) == 50
        assert looked <= 50 * (2 + SLICE_RECORDS)


@pytest.mark.parametrize(
    ("data_bytes", "count", "wanted"), [(3, 60_000, 2048), (512, 4000, 415), (100_000, 60, 2)]
)
async def test_a_read_from_storage_brings_about_a_block(data_bytes: int, count: int, wanted: int) -> None:
    data = bytes(data_bytes)
    async with PartitionRig(records=count, record_data=data, transaction_cache_bytes=1 << 24) as rig:
        client = reader()
        open_feed(rig, client)
        await rig.until(lambda: ids(client)[-1:] == [count - 1])
        reads = rig.store.reads
        assert reads[0] == (0, min(256, count))  # nothing is known yet
        late = reads[len(reads) // 2 :]
        assert {asked for start, asked in late if start + wanted < count} == {wanted}
        assert len(blocks(client)) < 2 * count / wanted + 8


async def test_a_node_that_answers_with_fewer_is_asked_for_fewer() -> None:
    """Those of release 0.13.2 are asked for 256 records at most: what lacks of a range is read on its own."""
    async with PartitionRig(records=20_000, transaction_cache_bytes=1 << 24) as rig:
        rig.store.max_records_per_read = 256
        client = reader()
        open_feed(rig, client)
        await rig.until(lambda: ids(client)[-1:] == [19_999])
        assert ids(client) == list(range(20_000))
        assert max(asked for _, asked in rig.store.reads) <= 512
        assert len(rig.store.reads) < 2 * 20_000 / 256


async def test_safety_d1_what_a_run_has_above_the_mark_does_not_leave() -> None:
    async with PartitionRig(records=3) as rig:
        client = reader()
        rig.partition._transactions.put_run(
            RecordRun.of_records(0, [stored_of_record(wire_record(n)) for n in range(40)])
        )
        open_feed(rig, client)
        await rig.until(lambda: len(ids(client)) >= 3)
        await rig.turns(50)
        assert ids(client) == [0, 1, 2]
        assert blocks(client)[-1].last == 2


async def test_a_run_is_sent_as_far_as_the_credit_goes_and_through_the_filter() -> None:
    async with PartitionRig(records=100) as rig:
        client = reader()
        size = len(stored_of_record(wire_record(0)))
        rig.partition._transactions.put_run(
            RecordRun.of_records(0, [stored_of_record(wire_record(n)) for n in range(100)])
        )
        first = open_feed(rig, client, credit=7)
        await rig.turns(50)
        assert ids(client) == list(range(7))
        rig.partition.block_feeds_of(client).credit(client, first.pack(), 50, 0)
        await rig.until(lambda: len(ids(client)) == 57)
        in_bytes, filtered = reader(2), reader(3)
        open_feed(rig, in_bytes, credit_bytes=5 * size)
        open_feed(rig, filtered, headers=[(1, 5)], until=99)
        await rig.turns(50)
        assert ids(in_bytes) == list(range(5))
        assert not ids(filtered)
        assert blocks(filtered)[-1].last == 99
