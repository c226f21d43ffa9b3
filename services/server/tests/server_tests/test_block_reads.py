"""What feeds of blocks ask storage nodes for."""

import pytest

from server_tests.test_block_feeds import blocks, ids, open_feed, reader
from waltz_testkit.partition_rig import PartitionRig


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
