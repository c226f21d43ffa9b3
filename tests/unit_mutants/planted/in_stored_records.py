"""Planted bugs in version 1 of the storage protocol: stored records out and in, and the mark they carry."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_protocol = bugs_in("libs/protocol/src/waltz_protocol")
_engine = bugs_in("services/storage/src/waltz_storage/engine")
_service = bugs_in("services/storage/src/waltz_storage/service")
_store = bugs_in("services/server/src/waltz_server/store")

STORED_RECORD_BUGS = (
    _protocol(
        "checksum_over_the_whole_record_not_looked_at",
        "C2",
        "frames/blocks.py",
        "        if crc32(view[at:end]) != checksum(data, end)[0]:\n",
        "        if not data:\n",
        "A record that was changed on its way is stored as it is, and handed to readers.",
    ),
    _protocol(
        "reply_of_another_session_taken_for_the_range",
        "B1",
        "aio/stored_connection.py",
        "            self._check_echo(body, session_id, partition_id)\n",
        "",
        "What a node answers to another partition or session is taken for the range that was asked for.",
    ),
    _protocol(
        "success_of_another_session_taken_for_the_append",
        "B1",
        "aio/append_requests.py",
        " or request[2] != session_id",
        " or request[2] is None",
        "A success under the number of an append counts as a vote, whichever session it was of.",
    ),
    _protocol(
        "refusal_taken_for_the_success_of_an_append",
        "D2",
        "aio/append_requests.py",
        "                callback(refusal)\n",
        "                callback(None)\n",
        "An append that a node has refused counts as stored there.",
    ),
    _service(
        "range_above_the_committed_mark_given",
        "D1",
        "jobs.py",
        "            last = min(last, partition.committed)\n",
        "            last = min(last, partition.max_txid)\n",
        "A reader is given what recovery may cut.",
    ),
    _service(
        "range_for_an_older_session_given",
        "B1",
        "jobs.py",
        "        if refusal is not None or request.problem is not None:\n",
        "        if (refusal is not None and request.kind != 32) or request.problem is not None:\n",
        "A server that was fenced off can still read.",
    ),
    _service(
        "bytes_of_a_range_not_bounded_by_the_node",
        "bounds",
        "jobs.py",
        "        most_bytes = min(message.max_bytes, self._limits.max_list_bytes)\n",
        "        most_bytes = message.max_bytes\n",
        "One request makes a node read two gigabytes into memory.",
    ),
    _service(
        "mark_of_a_refused_append_believed",
        "D1",
        "jobs.py",
        "            if result is None:\n                if request.committed >= 0:\n"
        "                    partition.note_committed(request.committed)\n",
        "            if request.committed >= 0:\n                partition.note_committed(request.committed)\n"
        "            if result is None:\n",
        "A node that lacks records takes those that come in their stead for committed.",
    ),
    _service(
        "damaged_appends_not_counted",
        "C2",
        "disk_pool.py",
        "                metrics.damaged_appends.inc()\n",
        "                pass\n",
        "A machine that turns bits shows nowhere.",
    ),
    _engine(
        "mark_survives_a_cut",
        "D1",
        "partition.py",
        "        self._committed = min(self._committed, keep)\n",
        "",
        "What is written in place of records that were cut is taken for committed.",
    ),
    _store(
        "replica_asked_for_more_than_it_acknowledged",
        "D11",
        "router.py",
        "                min(first + max_count - 1, source.last),\n",
        "                first + max_count - 1,\n",
        "A replica is read beyond what it has acknowledged in the session.",
    ),
    _store(
        "record_of_another_partition_believed",
        "D11",
        "record_reads.py",
        "        if found_partition != partition_id:\n",
        "        if found_partition < 0:\n",
        "What a list of version 0 gives is served as records of this partition, and copied.",
    ),
    _service(
        "record_of_another_partition_ends_the_connection",
        "D7",
        "requests.py",
        "    except RecordPartitionError as error:",
        "    except RecordChecksumError as error:",
        "One such record in one partition stops all partitions of the server on the node, again and again.",
    ),
    _store(
        "bytes_of_a_range_not_looked_at",
        "bounds",
        "record_reads.py",
        "    if starts[-1] != len(data) or (count > 1 and starts[-2] >= wanted.max_bytes):\n",
        "    if starts[-1] != len(data):\n",
        "A node that ignores the bound fills the memory of the server.",
    ),
    _store(
        "more_records_than_asked_for_believed",
        "D1",
        "record_reads.py",
        "    if found != first or not 0 < count <= last - first + 1:\n",
        "    if found != first or count < 0:\n",
        "A node that answers with records above the committed mark is believed.",
    ),
    _store(
        "mark_of_the_replica_that_has_most",
        "D1",
        "voting.py",
        "sorted(listed, key=_durable)[-self._quorum].durable",
        "sorted(listed, key=_durable)[-1].durable",
        "When a quorum is past the mark, it rises to what a single replica has.",
    ),
    _store(
        "mark_of_what_has_a_number_only",
        "D1",
        "replica_session.py",
        "        submit_run(self.link, session.session_id, session.partition_id, votes.committed, run, answered)\n",
        "        mark = session.queue.next_txid\n"
        "        submit_run(self.link, session.session_id, session.partition_id, mark, run, answered)\n",
        "A node takes for committed what has been numbered only.",
    ),
    _store(
        "record_of_an_earlier_id_kept",
        "D1",
        "frames.py",
        "            entry.stored = None  # one that was made under an earlier id is another record\n",
        "",
        "A reader is given a transaction under the id that it had in a session that was lost.",
    ),
)
