"""Planted bugs in the replication core of the server: sessions, recovery, votes."""

from __future__ import annotations

from tests.sim.mutants.mutant import Edit, Mutant

_STORE = "services/server/src/waltz_server/store"
_STORAGE = "services/storage/src/waltz_storage/engine"

_UNLISTED_PART_PASSES = Edit(
    "libs/cluster/src/waltz_cluster/older_copy.py",
    "    return recorded_session_id < info.session_id >= listed and max_txid > info.low_water_mark\n",
    "    return False\n",
)
_CUT_AND_NUMBERED_AGAIN = (
    "acknowledged",
    "client_ahead",
    "fork",
    "failed_committed",
    "feed_order",
    "progress",
    "replicas_settle",
)

STORE_MUTANTS = (
    Mutant(
        name="majority_off_by_one",
        rule="A",
        edits=(
            Edit(
                "libs/cluster/src/waltz_cluster/quorum.py",
                "    return replica_count // 2 + 1\n",
                "    return max(1, replica_count // 2)\n",
            ),
        ),
        expected=("acknowledged", "fork", "failed_committed"),
        how="A server and one node are cut off from the others: each side continues on its own.",
        found_at=5,
    ),
    Mutant(
        name="undecidable_ignored",
        rule="A1",
        edits=(
            Edit(
                f"{_STORE}/quorum.py",
                "        if supporters + absent >= quorum:\n            return Decision(None, mark)\n",
                "",
            ),
            Edit(
                f"{_STORE}/recovery.py",
                "        if decision.resolved is None or self._target is None or decision.resolved < self._target:\n",
                "        if decision.resolved is None:\n",
            ),
        ),
        expected=("acknowledged", "fork", "failed_committed", "feed_order"),
        how="A record is acknowledged by two nodes; one of them and the server end, the third node had not got it: the "
        "next recovery takes the lower mark and cuts the only copy in sight.",
        guards="copying upwards before deciding makes the open mark decidable with three replicas",
        found_at=3,
    ),
    Mutant(
        name="wiped_disk_present",
        rule="A1",
        edits=(
            Edit(
                f"{_STORE}/recovery_replica.py",
                "            return Kind.LOST, under_mark, vouched\n",
                "            return Kind.CLOSED, under_mark, vouched\n",
            ),
        ),
        expected=("acknowledged", "fork", "failed_committed"),
        how="A record is on two of three nodes; the disk of one is replaced, the other one is away: the empty one and the "
        "one that lags decide without it.",
        found_at=51,
    ),
    Mutant(
        name="resolved_to_minus_one_without_states",
        rule="A2",
        edits=(
            Edit(
                "libs/cluster/src/waltz_cluster/older_copy.py",
                "        if max_txid >= 0 or info.low_water_mark >= 0:\n",
                "        if max_txid < -1:\n",
            ),
            Edit(
                f"{_STORE}/recovery.py",
                "        contradiction = self._contradiction(replica, resolved)\n",
                "        contradiction = None\n",
            ),
            Edit(
                f"{_STORE}/recovery.py",
                "            if point > resolved:\n                return Refuse(",
                "            if point > resolved:\n                return Truncate(resolved)\n                return Refuse(",
            ),
            Edit(
                f"{_STORAGE}/partition.py",
                "        if low_water_mark < info.low_water_mark:\n",
                "        if low_water_mark < -1:\n",
            ),
        ),
        expected=("acknowledged", "fork", "feed_order"),
        how="The replica states of a partition are lost in ZooKeeper while its records are on the nodes.",
        guards="a low-water mark above the resolved one (server and node) and records "
        "where there should be none each stop the same mistake",
        found_at=16,
    ),
    Mutant(
        name="dirty_replica_votes",
        rule="A3",
        edits=(
            Edit(
                f"{_STORE}/recovery.py",
                "        clean = {name for name, replica in self._replicas.items() if replica.listed} | set(self.recovered)\n",
                "        clean = set(self._replicas)\n",
            ),
        ),
        expected=("acknowledged", "replicas_settle", "replicas", "progress", "fork"),
        how="A node is away with an uncommitted tail of an earlier session; it is listed as taking part, so the next "
        "recovery takes its tail for good.",
        found_at=1,
        profile="power",
    ),
    Mutant(
        name="metadata_written_after_recovery_is_declared",
        rule="A3",
        edits=(
            Edit(
                f"{_STORE}/metadata_keeper.py",
                """            self._written.append(target)
            try:
                await self._metadata.write_partition(self._partition_id, target, version)
            except VersionConflictError:
                await asyncio.sleep(backoff.next_seconds())
                continue
            self._written = [target]
            return target
""",
                """            self._written.append(target)

            async def later() -> None:
                await asyncio.sleep(3.0)
                try:
                    await self._metadata.write_partition(self._partition_id, target, version)
                except Exception:
                    pass

            from waltz_protocol.aio.tasks import spawn

            spawn(later(), "later")
            return target
""",
            ),
        ),
        expected=("progress", "acknowledged", "replicas_settle", "fork"),
        how="The server ends soon after it has opened a session and acknowledged something: the next recovery counts by "
        "the states of the session before.",
        found_at=0,
    ),
    Mutant(
        name="late_replica_votes_before_it_is_listed",
        rule="A3",
        edits=(
            Edit(
                f"{_STORE}/session_run.py",
                "            if self._recovery.is_listed(name) and name in recovered and member.replica is None:\n",
                "            if name in recovered and member.replica is None:\n",
            ),
            Edit(
                f"{_STORE}/session_run.py",
                "            if self._recovery.unlisted:\n                try:\n",
                "            if self._recovery.unlisted and self._loop.time() - self._opened_at > 20.0:\n                try:\n",
            ),
        ),
        expected=("acknowledged", "fork", "replicas_settle"),
        how="A replica joins a session late and votes; then another one and the server end: the next recovery knows the "
        "late one only as closed and cuts what it voted for.",
        guards="the listing follows within one step, so it is put off as well",
        found_at=0,
    ),
    Mutant(
        name="session_id_used_again",
        rule="A7",
        edits=(
            Edit(
                f"{_STORE}/metadata_keeper.py",
                "        session_id = max(recorded.session_id, self._burned, least - 1) + 1\n",
                "        session_id = max(recorded.session_id, 0)\n",
            ),
        ),
        expected=("acknowledged", "fork", "failed_committed", "replicas_settle"),
        how="The next owner takes the session id that the one before still uses: nobody is fenced off.",
        guards="the version check of the write makes an id that was only burned unusable anyway, so here the id is not "
        "raised at all",
        found_at=97,
    ),
    Mutant(
        name="timed_out_frame_counts",
        rule="D2",
        edits=(
            Edit(
                f"{_STORE}/replica_session.py",
                "        if error is not None:\n            session.fail_replica",
                "        if error is not None and type(error).__name__ != 'RequestTimeoutError':\n"
                "            session.fail_replica",
            ),
        ),
        expected=("acknowledged", "fork", "failed_committed"),
        how="A server is cut off from two of three nodes for longer than a request may take, and acknowledges with one.",
        found_at=6,
    ),
    Mutant(
        name="votes_counted_out_of_order",
        rule="D2",
        edits=(
            Edit(
                f"{_STORE}/voting.py",
                """            if first > outstanding[0][0]:
                voter.answered.add(first)
            return False
""",
                """            while outstanding and outstanding[0][0] < first:
                outstanding.popleft()
            if not outstanding:
                return False
""",
            ),
            Edit(
                f"{_STORE}/replica_session.py",
                "        if error is not None:\n            session.fail_replica",
                "        if error is not None and type(error).__name__ == 'RequestFailedError':\n"
                "            return\n"
                "        if error is not None:\n            session.fail_replica",
            ),
            Edit(
                f"{_STORAGE}/partition.py",
                "            if count and first_txid != expected:\n",
                "            if count and first_txid < expected:\n",
            ),
        ),
        expected=("acknowledged", "fork", "disk", "replicas_settle", "progress"),
        how="A node refuses one frame (its disk is full for a moment) and takes the next one, which then counts for both.",
        guards="the first failure ends a replica's votes, and a node takes records in order only",
        found_at=6,
    ),
    Mutant(
        name="mark_carried_too_far",
        rule="D1",
        edits=(
            Edit(
                f"{_STORE}/replica_session.py",
                "        submit_run(self.link, session.session_id, session.partition_id, votes.committed, run, answered)\n",
                "        mark = run.last\n"
                "        submit_run(self.link, session.session_id, session.partition_id, mark, run, answered)\n",
            ),
        ),
        expected=("carried_mark",),
        how="A storage node is sent what it stores as if it were committed, and would give it to any reader.",
        found_at=0,
    ),
    Mutant(
        name="catch_up_leaves_a_gap",
        rule="D3",
        edits=(
            Edit(
                f"{_STORE}/replica_session.py",
                "            if frame is None or frame.first != next_txid:\n                return False\n"
                "            self.next_seq = frame.seq\n",
                "            stands = frame is not None and frame.first == next_txid\n"
                "            self.next_seq = frame.seq if frame is not None and stands else queue.end_seq\n",
            ),
        ),
        expected=("logged_error", "unhandled", "progress", "replicas_settle"),
        how="A replica joins late or falls behind, and takes over new frames without those between. The votes refuse to "
        "count across the gap, and so does the node: the partition fails instead of losing anything.",
        found_at=0,
    ),
    Mutant(
        name="acknowledged_by_sending",
        rule="D2",
        edits=(
            Edit(
                f"{_STORE}/voting.py",
                "        voter.outstanding.append((first, last))\n",
                "        voter.outstanding.append((first, last))\n        voter.durable = last\n",
            ),
        ),
        expected=("acknowledged", "fork", "failed_committed", "logged_error", "unhandled"),
        how="Anything that keeps a frame from reaching two nodes.",
        found_at=13,
    ),
    Mutant(
        name="committed_is_what_one_node_has",
        rule="D1",
        edits=(
            Edit(
                f"{_STORE}/voting.py",
                "        if ahead < self._quorum:\n            return False\n",
                "",
            ),
            Edit(
                f"{_STORE}/voting.py",
                "        self.committed = sorted(listed, key=_durable)[-self._quorum].durable\n",
                "        self.committed = max(voter.durable for voter in listed)\n",
            ),
        ),
        expected=("acknowledged", "lost", "fork", "failed_committed", "client_ahead", "progress"),
        how="A server is in the smaller half of a network with one node: it keeps committing, and the others do too.",
        found_at=28,
    ),
    Mutant(
        name="older_zookeeper_unnoticed",
        rule="A8",
        edits=(
            Edit(
                "libs/cluster/src/waltz_cluster/older_copy.py",
                "    if info.session_id > recorded.session_id:\n",
                "    if info.session_id > recorded.session_id + 10**6:\n",
            ),
            _UNLISTED_PART_PASSES,
        ),
        expected=_CUT_AND_NUMBERED_AGAIN,
        how="The metadata of a partition is restored from a copy of an earlier session: session ids are given out twice, and who took "
        "part in the last one counts as one that dropped out before. Two checks see it, each on its own: both are left out.",
        profile="older-copy",
        found_at=0,
    ),
    Mutant(
        name="forgotten_listing_cut",
        rule="A8",
        edits=(_UNLISTED_PART_PASSES,),
        expected=_CUT_AND_NUMBERED_AGAIN,
        how="The metadata is restored from a copy of the same session, made after its number was taken and before a replica was listed in it.",
        profile="older-copy",
        found_at=1,
    ),
)
