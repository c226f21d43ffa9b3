"""Planted bugs in compressed blocks: the bytes and their bounds, who makes them, who takes them."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_server = bugs_in("services/server/src/waltz_server/partition")
_client = bugs_in("client/src/waltz_client/_internal")
_protocol = bugs_in("libs/protocol/src/waltz_protocol")

COMPRESSED_BLOCK_BUGS = (
    _protocol(
        "size_of_a_compressed_block_is_not_bounded",
        "bounds",
        "frames/compressed_blocks.py",
        "        if not len(frame) < size <= MAX_BLOCK_BYTES:\n",
        "        if not len(frame) < size:\n",
        "A few kilobytes of a peer become as much memory as they like.",
    ),
    _protocol(
        "a_frame_may_be_longer_than_what_is_in_it",
        "bounds",
        "frames/compressed_blocks.py",
        "        if not len(frame) < size <= MAX_BLOCK_BYTES:\n",
        "        if not size <= MAX_BLOCK_BYTES:\n",
        "Megabytes of empty blocks of zstd are worked through for a few records.",
    ),
    _protocol(
        "size_that_the_frame_names_is_not_looked_at",
        "bounds",
        "frames/compressed_blocks.py",
        "            if self._content_size(frame) != size:\n",
        "            if self._content_size(frame) < 0:\n",
        "A frame that names another size takes the memory for it, whatever the block says.",
    ),
    _protocol(
        "bytes_behind_a_frame_are_passed_over",
        "D1",
        "frames/compressed_blocks.py",
        "max_output_size=size, allow_extra_data=False)\n",
        "max_output_size=size)\n",
        "What follows the frame is not noticed: a second frame, or what is left of another block.",
    ),
    _protocol(
        "what_was_decompressed_is_sealed_not_checked",
        "D1",
        "frames/compressed_blocks.py",
        "        return records\n",
        "        from zlib import crc32\n\n"
        '        end = int.from_bytes(records[28:32], "big") + 36\n'
        '        return records[:end] + crc32(records[:end]).to_bytes(4, "big") + records[end + 4 :]\n',
        "The checksum of a record is made of what came out of the frame, so a changed one passes.",
    ),
    _client(
        "compressed_blocks_asked_of_servers_without_them",
        "F1",
        "rpc/session.py",
        "        self.takes_zstd = self._expander is not None and ZSTD_BLOCKS in channel.peer_hello.features\n",
        "        self.takes_zstd = self._expander is not None\n",
        "A server of an older version refuses every feed.",
    ),
    _client(
        "compressed_blocks_taken_by_who_did_not_ask",
        "bounds",
        "rpc/session.py",
        "            if self.takes_zstd and self._expander is not None:\n",
        "            if self._expander is not None:\n",
        "A server sends what it was not asked for.",
    ),
    _server(
        "compressed_block_of_another_filter",
        "D1",
        "compressed_blocks.py",
        "        key = (self, first, last, headers)\n",
        "        key = (self, first, last, ())\n",
        "A feed gets what another one's filter lets through.",
    ),
    _server(
        "compressed_block_of_another_beginning",
        "D1",
        "compressed_blocks.py",
        "        key = (self, first, last, headers)\n",
        "        key = (self, 0, last, headers)\n",
        "A feed gets the block of one that began elsewhere.",
    ),
    _server(
        "compressed_blocks_outlive_their_partition",
        "D1",
        "deliveries.py",
        "        self._compressed.drop()\n",
        "        pass\n",
        "The blocks of partitions that have left take the memory of a server.",
    ),
    _server(
        "credit_is_charged_for_compressed_bytes",
        "D1",
        "block_feeds.py",
        "        feed.credit_bytes -= size\n",
        "        feed.credit_bytes -= len(sent)\n",
        "A client gets many times the bytes that it has granted.",
    ),
    _server(
        "blocks_are_compressed_for_who_did_not_ask",
        "F1",
        "block_feeds.py",
        "        if feed.takes_zstd:\n            packed",
        "        if count:\n            packed",
        "A client without zstd ends the connection over each block.",
    ),
    _server(
        "every_feed_has_its_blocks_compressed_anew",
        "bounds",
        "compressed_blocks.py",
        "        self._all.keep(key, packed)\n",
        "        pass\n",
        "A hundred readers of one log make a server compress everything a hundred times.",
    ),
    _server(
        "compressing_counts_as_sending",
        "bounds",
        "block_feeds.py",
        "            size *= COST_OF_COMPRESSION\n",
        "            pass\n",
        "A turn of the loop compresses megabytes for each partition.",
    ),
)
