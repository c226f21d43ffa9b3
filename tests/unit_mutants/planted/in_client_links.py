"""Planted bugs in what the client library does where connections, servers or applications behave out of the
ordinary."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("client/src/waltz_client/_internal")
_reader_bug = bugs_in("client/src/waltz_client")
_protocol_bug = bugs_in("libs/protocol/src/waltz_protocol")

CLIENT_LINK_BUGS = (
    _bug(
        "unforeseen_error_ends_a_link",
        "E1",
        "link.py",
        "        except Exception as error:\n            self._connect_failed(error)\n",
        "        except (WaltzProtocolError, OSError) as error:\n            self._connect_failed(error)\n",
        "One such error while connecting, and nobody connects to this server again.",
    ),
    _protocol_bug(
        "lookup_without_a_thread_is_no_connect_error",
        "E1",
        "aio/connector.py",
        "ChannelClosedError, ValueError, RuntimeError) as e:\n",
        "ChannelClosedError, ValueError) as e:\n",
        "What asks for one connection ends with an error that its callers do not expect.",
    ),
    _reader_bug(
        "error_of_one_partition_waits_for_the_others",
        "E1",
        "feed.py",
        "            if self._error is None:\n                self._find_error()\n            if self._error",
        "            if self._error",
        "A feed of headers withholds the end of one partition for as long as another one brings something.",
    ),
    _reader_bug(
        "error_of_a_feed_leaves_out_what_had_come",
        "E1",
        "feed.py",
        "            if self._error is not None and not self._ready:\n",
        "            if self._error is not None:\n",
        "Payloads that had come when a feed ended with an error are never handed over.",
    ),
    _bug(
        "producer_is_mounted_again_at_an_older_server",
        "E8",
        "append/sequence_window.py",
        "            self.flush(session)  # callers have left since the mount\n            return False\n",
        "            self.flush(session)  # callers have left since the mount\n",
        "An append that a server cannot take has its partition mounted again with every tick.",
    ),
    _bug(
        "producer_keeps_what_an_older_server_cannot_take",
        "E8",
        "append/sequence_window.py",
        "            self._end([one.seq_num for one in self.monitor.undecided() if _is_given_up(one)])\n",
        "            pass\n",
        "Appends whose callers have left fill the window of a producer whose server is an older one.",
    ),
    _bug(
        "callbacks_of_one_partition_are_concurrent",
        "E1",
        "applier.py",
        "                if self._earlier:\n",
        "                if False:\n",
        "A partition that is let go and chosen again is applied while a cancelled callback still rolls back.",
    ),
    _bug(
        "applier_waits_for_the_newest_earlier_one_only",
        "E1",
        "partitions.py",
        "        self._applier_tasks[partition_id] = [*earlier, task]\n",
        "        self._applier_tasks[partition_id] = [task]\n",
        "The second time it is chosen again the wait for a cancelled callback is forgotten.",
    ),
    _bug(
        "applier_waits_for_a_callback_that_waits_for_it",
        "E1",
        "applier.py",
        "asyncio.wait(self._earlier, timeout=LEAVING_SECONDS)\n",
        "asyncio.wait(self._earlier)\n",
        "A callback that does not end when it is cancelled keeps its partition from being applied permanently.",
    ),
    _bug(
        "client_is_used_in_a_thread_without_a_loop",
        "E1",
        "life.py",
        "        if self._loop.is_running():\n            raise UsageError(\n",
        "        if False:\n            raise UsageError(\n",
        "Two threads take the same request ids, and an append that is in the log is reported as failed.",
    ),
    _bug(
        "feed_from_now_on_begins_where_a_producer_was",
        "E1",
        "stream/readers.py",
        "        return self._source.received if self.end_is_known else None\n",
        "        return self._source.received if self._source.received >= -1 else None\n",
        "A feed from now on of a named producer hands out what was committed before it.",
    ),
    _bug(
        "feed_from_now_on_begins_where_a_producer_let_go",
        "E1",
        "stream/partition.py",
        "        self.readers.end_is_known = False\n",
        "",
        "A feed from now on of a producer that has chosen a partition again hands out what was there before.",
    ),
    _bug(
        "request_ids_in_use_mount_again_at_the_first_refusal",
        "E5",
        "stream/partition.py",
        "            moves = window.numbers_moved = True  # before anybody is informed, who may append again\n            self.req_ids.move(away_from=answer.seq_num)\n",
        "            self.req_ids.move(away_from=answer.seq_num)\n            self._mount_again('its request ids are in use')\n",
        "Of N appends that are refused together all but the first are sent again, behind N mounts.",
    ),
    _bug(
        "request_ids_in_use_have_no_mount",
        "E5",
        "stream/session.py",
        "            ):\n                self._touched.append(partition)\n",
        "            ):\n                pass\n",
        "Request ids count on from elsewhere, and no mount says so.",
    ),
    _reader_bug(
        "headers_from_now_on_begin_with_the_next_mount",
        "E1",
        "feed.py",
        "                    partition.cursor.tail = partition.readers.end\n",
        "                    pass\n",
        "A feed of headers from now on leaves out what commits while its client is cut off.",
    ),
    _bug(
        "numbers_that_moved_during_a_mount_are_not_named",
        "E5",
        "stream/partition.py",
        "        if answer is MountAnswer.READY and self.window.numbers_moved:\n",
        "        if False:\n",
        "A client whose request ids moved while it mounted is refused at each append, and does nothing about it.",
    ),
)
