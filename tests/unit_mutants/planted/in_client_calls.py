"""Planted bugs in calls of the client library: feeds from now on, calls that were given up."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("client/src/waltz_client/_internal")

CLIENT_CALL_BUGS = (
    _bug(
        "feed_from_now_on_begins_where_a_server_hears_of_it",
        "E1",
        "rpc/block_feed.py",
        "            self.position = self._begins_by\n",
        "            pass\n",
        "A feed from now on leaves out what was appended while its server did not serve the partition yet.",
    ),
    _bug(
        "feed_from_now_on_is_not_opened_again",
        "E1",
        "rpc/block_feed.py",
        "            if self._begins_by is not None and self._begins_by < block.first - 1:\n",
        "            if False:\n",
        "A feed from now on leaves out what was appended while its request was on its way.",
    ),
    _bug(
        "feed_from_now_on_does_not_hear_of_the_end",
        "E1",
        "stream/partition.py",
        "            self.readers.end_known(mark)\n",
        "            pass\n",
        "A feed from now on begins where the partition was mounted, or later.",
    ),
    _bug(
        "choice_that_was_given_up_keeps_writers_out",
        "E1",
        "partitions.py",
        "                        partition.window.stopped = False\n",
        "                        pass\n",
        "A partition whose leaving was cancelled stays in use, and takes no appends again.",
    ),
    _bug(
        "timeout_of_the_iterable_is_the_deadline",
        "E1",
        "appender.py",
        "            if not limit.expired():",
        "            if deadline_seconds is not None and not limit.expired():",
        "append_many returns as if it had taken everything, though its iterable failed.",
    ),
    _bug(
        "close_leaves_connections_behind",
        "E1",
        "connections.py",
        "            await wait_gone(list(self._made))\n",
        "            pass\n",
        "A loop that ends with its client leaves sockets open: TLS still says good-bye.",
    ),
)
