"""Planted bugs in what all processes know of ZooKeeper: its age, how long a session lives, who has what."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("libs/cluster/src/waltz_cluster")

CLUSTER_BUGS = (
    _bug(
        "session_from_the_future_is_no_fault",
        "A8",
        "older_copy.py",
        "    if info.session_id > recorded.session_id:\n",
        "    if info.session_id > recorded.session_id + 1:\n",
        "A node that completed the session after this one does not stop the recovery.",
    ),
    _bug(
        "empty_metadata_over_records_is_no_fault",
        "A8",
        "older_copy.py",
        "        if max_txid >= 0 or info.low_water_mark >= 0:\n",
        "        if info.low_water_mark >= 0:\n",
        "ZooKeeper lists no replica, a node of the first session has records, and a new log begins over them.",
    ),
    _bug(
        "unlisted_replica_with_records_is_no_evidence",
        "A8",
        "older_copy.py",
        "        and info.session_id > last_listed(recorded)\n",
        "        and info.session_id > recorded.session_id\n",
        "A replica that took appends in a session whose listing ZooKeeper forgot is cut.",
    ),
    _bug(
        "who_was_only_filled_is_evidence",
        "A8",
        "older_copy.py",
        "        and max_txid > info.low_water_mark\n    ):\n",
        "        and max_txid >= info.low_water_mark\n    ):\n",
        "An interrupted recovery leaves a fault behind, though ZooKeeper lost nothing.",
    ),
    _bug(
        "part_in_a_session_before_the_last_listing",
        "A8",
        "older_copy.py",
        "    return recorded_session_id < info.session_id >= listed and max_txid > info.low_water_mark\n",
        "    return recorded_session_id < info.session_id and max_txid > info.low_water_mark\n",
        "A replica that dropped out before the last listing counts with a tail that nobody acknowledged.",
    ),
    # ---- the lease
    _bug(
        "lease_renewed_by_an_old_contact",
        "D8",
        "lease.py",
        "is not SessionState.CONNECTED or self._deadline() <= self._loop.time():\n",
        "is not SessionState.CONNECTED:\n",
        "A server serves again on the strength of a contact that is older than the session timeout.",
    ),
    _bug(
        "lost_session_waits_for_the_lease",
        "D8",
        "lease.py",
        '            self._end("the ZooKeeper session is lost")\n',
        "            self._check()\n",
        "A server serves on after it has heard that its session is over.",
    ),
    _bug(
        "lease_is_not_armed_again",
        "D8",
        "lease.py",
        "        else:\n            self._arm()\n\n    def _end",
        "\n    def _end",
        "After one contact in time the end of the session is never noticed by the clock.",
    ),
    _bug(
        "loss_is_reported_again_and_again",
        "D8",
        "lease.py",
        "        if self.valid:\n            self.valid = False\n            self._expired(reason)\n",
        "        self.valid = False\n        self._expired(reason)\n",
        "Partitions are given up more than once for one loss.",
    ),
    # ---- writes that travel together
    _bug(
        "conflict_of_one_write_is_that_of_all",
        "A7",
        "joined_writes.py",
        "                pass  # refused: which of them is at fault is seen below\n",
        "                for write in group:\n                    _fail(write, StoreError('one of them'))\n                return\n",
        "A partition whose metadata somebody else wrote sends back all that are taken over with it.",
    ),
    _bug(
        "unknown_outcome_is_tried_again",
        "A7",
        "joined_writes.py",
        "            except (ConnectionLostError, SessionLostError) as error:\n",
        "            except SessionLostError as error:\n",
        "Writes whose outcome is not known are made again one by one, and answered as conflicts with themselves.",
    ),
    _bug(
        "joined_writes_return_the_version_they_were_based_on",
        "A3",
        "joined_writes.py",
        "                    _end(write, write.op.version + 1)\n",
        "                    _end(write, write.op.version)\n",
        "The write that follows names a version that is not there, and looks like a conflict.",
    ),
    _bug(
        "a_moved_partition_keeps_its_generation",
        "E2",
        "moving.py",
        "Generation(generation + 1)))\n",
        "generation))\n",
        "Appends that were sent to the server of before count at the next one.",
    ),
    _bug(
        "a_move_that_the_policy_undoes_is_written",
        "bounded moves by load",
        "moving.py",
        "    if not same_owners(kept, found):\n",
        "    if kept is None:\n",
        "Partitions move again at the next evaluation, by whichever server.",
    ),
    _bug(
        "a_move_for_other_servers_is_written",
        "bounded moves by load",
        "moving.py",
        "    if snapshot.cversion != cversion or not snapshot.consistent:\n",
        "    if not snapshot.consistent:\n",
        "What was chosen for some servers is done to others.",
    ),
    _bug(
        "session_is_given_up_by_who_holds_partitions",
        "A",
        "zk_client.py",
        "            self._gives_up\n            and self._client",
        "            self._client",
        "A server continues on an older copy of ZooKeeper that refuses it.",
    ),
    _bug(
        "refused_session_is_kept_for_good",
        "ends",
        "zk_client.py",
        "            self._gives_up\n            and self._client",
        "            False\n            and self._client",
        "An application waits for good for a ZooKeeper that has lost its data.",
    ),
)
