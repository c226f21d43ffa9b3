"""Planted bugs in reads by blocks of stored records: the bytes, who sends them, who takes them."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_server = bugs_in("services/server/src/waltz_server/partition")
_bug = bugs_in("client/src/waltz_client/_internal")
_public = bugs_in("client/src/waltz_client")
_protocol = bugs_in("libs/protocol/src/waltz_protocol")

BLOCK_BUGS = (
    _server(
        "block_past_the_committed_mark",
        "D1",
        "block_feeds.py",
        "        last = min(self._mark.txid, feed.position + MAX_BLOCK_TRANSACTIONS)\n",
        "        last = feed.position + MAX_BLOCK_TRANSACTIONS\n",
        "A block is made of whatever the cache has.",
    ),
    _server(
        "credit_in_transactions_ignored",
        "D1",
        "block_feeds.py",
        "                if len(chosen) == feed.credit or (chosen and size + len(record) > most_bytes):\n",
        "                if chosen and size + len(record) > most_bytes:\n",
        "A block holds more transactions than its client has granted.",
    ),
    _server(
        "credit_in_bytes_ignored",
        "D1",
        "block_feeds.py",
        "        most_bytes = min(MAX_BLOCK_BYTES, feed.credit_bytes)\n",
        "        most_bytes = MAX_BLOCK_BYTES\n",
        "A block holds more bytes than its client has granted.",
    ),
    _server(
        "filter_covers_what_was_not_looked_at",
        "D1",
        "block_feeds.py",
        '        self._write(feed, feed.position + looked, len(chosen), b"".join(chosen))\n',
        '        self._write(feed, self._end_of_slice(feed), len(chosen), b"".join(chosen))\n',
        "What the credit did not reach is covered as if the filter had left it out.",
    ),
    _server(
        "commits_go_to_feeds_that_are_elsewhere",
        "D1",
        "block_feeds.py",
        "            if small and fits and not feed.headers and feed.position == first - 1 and self._takes(feed):\n",
        "            if small and fits and not feed.headers and self._takes(feed):\n",
        "A feed that waits for what is still to come gets transactions from before it.",
    ),
    _server(
        "slow_reader_of_blocks_is_not_waited_for",
        "D7",
        "block_feeds.py",
        "        return feed.client.writable and not feed.client.closed\n",
        "        return not feed.client.closed\n",
        "A client that reads nothing makes the server keep everything for it.",
    ),
    _server(
        "large_records_count_as_one",
        "bounds",
        "block_feeds.py",
        "        return max(looked, size // BYTES_PER_TRANSACTION)\n",
        "        return looked\n",
        "A turn of the loop sends a block to each of thousands of feeds.",
    ),
    _public(
        "from_now_on_is_when_the_request_arrives",
        "D1",
        "feed.py",
        "            partition.readers.end if after is None else after,  # the server hears of it later\n",
        "            after,\n",
        "What is committed while the request is on its way never reaches the reader.",
    ),
    _public(
        "what_a_filter_leaves_out_is_no_progress",
        "bounds",
        "ranges.py",
        "            self._covered = blocks.position\n            self._progress += 1\n",
        "            self._covered = blocks.position\n",
        "A range in which a filter lets nothing through for long ends with its deadline.",
    ),
    _bug(
        "gap_between_blocks_accepted",
        "D1",
        "rpc/block_feed.py",
        "        if block.first != self.position + 1:\n",
        "        if block.first <= self.position:\n",
        "What a server leaves out between two blocks never reaches the reader.",
    ),
    _bug(
        "blocks_resume_from_what_was_taken",
        "D1",
        "rpc/block_feed.py",
        "                FROM_THE_END if self.position is None else self.position,\n",
        "                FROM_THE_END if self.position is None else self.position - self.buffered,\n",
        "What is buffered when a connection is lost comes again.",
    ),
    _public(
        "older_server_is_read_from_where_the_feed_began",
        "D1",
        "feed.py",
        "            partition.cursor.tail = blocks.position\n",
        "            pass\n",
        "After a server was rolled back, a feed repeats everything from its beginning.",
    ),
    _public(
        "range_on_an_older_server_leaves_one_out",
        "D1",
        "ranges.py",
        "                self._follow(readers, blocks.position)\n",
        "                self._follow(readers, blocks.position + 1)\n",
        "After a server was rolled back, a range lacks a transaction.",
    ),
    _bug(
        "credit_of_blocks_is_never_renewed",
        "D1",
        "rpc/block_feed.py",
        "            if 2 * more >= self._window or 2 * more_bytes >= self._window_bytes:\n",
        "            if more > self._window and more_bytes > self._window_bytes:\n",
        "A feed stands still after one window.",
    ),
    _protocol(
        "records_of_a_block_are_not_checked",
        "D1",
        "frames/blocks.py",
        "        if crc32(view[at:end]) != checksum(data, end)[0]:\n",
        "        if end < 0:\n",
        "A record that was changed on its way reaches the application.",
    ),
    _protocol(
        "gap_inside_a_block_accepted",
        "D1",
        "frames/blocks.py",
        "        if (transaction_id != least) if whole else not least <= transaction_id <= last:\n",
        "        if not least <= transaction_id:\n",
        "A block lacks a transaction and holds a later one in its place.",
    ),
)
