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
        "place_of_any_type_is_asked_for",
        "E1",
        "open_feed.py",
        '    place = whole_number("after", after)\n',
        "    place = after\n",
        "A place that is a float comes to the connection, whose partitions then wait for its encoding.",
    ),
    _bug(
        "reader_that_cannot_be_started_holds_up_the_mount",
        "E1",
        "stream/readers.py",
        "        except Exception as error:  # the partition",
        "        except WaltzClientError as error:  # the partition",
        "One reader that cannot be asked for keeps the connection of the client from ever being used again.",
    ),
    _bug(
        "request_that_cannot_be_written_loses_the_others",
        "E1",
        "rpc/client.py",
        "        except Exception as error:  # whatever it is: the others that wait are sent\n",
        "        except EncodeError as error:\n",
        "What waits for the same server behind a request that cannot be written is never sent: it hangs.",
    ),
    _bug(
        "request_that_cannot_be_started_stays",
        "E1",
        "rpc/client.py",
        "        try:\n            self.start(call)\n",
        "        self.start(call)\n        try:\n",
        "A call that nobody waits for is sent again with every connection.",
    ),
    _bug(
        "wrong_header_loses_the_results_of_others",
        "E1",
        "append/request.py",
        '        header = whole_number("header", header)\n',
        "        pass\n",
        "append_many raises in the middle, and nobody learns what became of those that were sent.",
    ),
    _bug(
        "deadline_that_never_comes_is_taken",
        "E1",
        "arguments.py",
        "        if limit == limit:  # not NaN\n",
        "        if True:\n",
        "A deadline of NaN never comes, and disorders the timers of the loop.",
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
