"""What feeds of blocks ask storage nodes and the cache for."""

import pytest

from server_tests.test_block_feeds import blocks, ids, open_feed, reader
from waltz_protocol.frames.blocks import stored_of_record
from waltz_server.partition.transaction_cache import SLICE_RECORDS, PartitionTransactionCache
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
