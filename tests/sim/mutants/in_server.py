"""Planted bugs in the server around its store: locks, append queue, feeds, mounts, ownership."""

from __future__ import annotations

from tests.sim.mutants.mutant import Edit, Mutant

_PARTITION = "services/server/src/waltz_server/partition"
_CLUSTER = "libs/cluster/src/waltz_cluster"

SERVER_MUTANTS = (
    Mutant(
        name="lock_table_of_a_new_owner_starts_empty",
        rule="D5",
        edits=(
            Edit(
                f"{_PARTITION}/hand_over.py",
                "    return LockTable(size, high_water_mark)\n",
                "    return LockTable(size, -1)\n",
            ),
        ),
        expected=("serializable", "linearizable", "lost"),
        how="A partition moves; an append whose view is older than a commit under the first owner is taken by the second.",
        found_at=4,
    ),
    Mutant(
        name="settled_commits_leave_their_locks",
        rule="D5",
        edits=(
            Edit(
                f"{_PARTITION}/append.py",
                "                locks.commit(slots, entry.transaction_id)\n",
                "                if self._open:\n                    locks.commit(slots, entry.transaction_id)\n",
            ),
        ),
        expected=("serializable", "linearizable", "lost"),
        how="A session ends with an append in flight that its successor finds in the log; another append with the same "
        "lock and an older view waits in the queue meanwhile and is taken.",
        found_at=12,
    ),
    Mutant(
        name="read_locks_do_not_wait",
        rule="D6",
        edits=(
            Edit(
                f"{_PARTITION}/append.py",
                "self._marked.isdisjoint, append[3:6]))",
                "self._marked.isdisjoint, (append[3], append[5])))",
            ),
        ),
        expected=("serializable", "linearizable", "lost"),
        how="An append with a read lock arrives while one with a write lock of the same name is in flight.",
        found_at=5,
    ),
    Mutant(
        name="write_locks_do_not_wait",
        rule="D5",
        edits=(
            Edit(
                f"{_PARTITION}/append.py",
                "        if write or extra:\n            item.marked = write + extra\n",
                "        if write or extra:\n            item.marked = ()\n",
            ),
        ),
        expected=("serializable", "linearizable", "lost"),
        how="Two appends with the same write lock and the same view arrive within the time of one commit.",
        found_at=0,
    ),
    Mutant(
        name="flush_does_not_wait",
        rule="D5",
        edits=(
            Edit(
                f"{_PARTITION}/pending_answers.py",
                " if 0 <= marker.barrier <= resolved]\n",
                " if 0 <= marker.barrier]\n",
            ),
        ),
        expected=("failed_committed", "duplicate"),
        how="A client asks for a flush while an append of its own is in flight: it is informed that it has failed, and then "
        "it commits.",
        found_at=12,
    ),
    Mutant(
        name="append_of_an_old_connection_after_the_new_mount",
        rule="13.9",
        edits=(
            Edit(
                f"{_PARTITION}/append.py",
                "        if item.mount.fenced:\n            self._metrics.append_dropped_fenced.inc()\n            self._outcomes.refused(item, Verdict.NOT_MOUNTED)\n            return True\n",
                "",
            ),
            Edit(
                f"{_PARTITION}/append.py",
                "        self._queue.append(marker)\n",
                "        self._queue.appendleft(marker)\n",
            ),
        ),
        expected=("failed_committed", "duplicate"),
        how="An append waits in the queue (a lock, a recovery) when its connection breaks; the client mounts again, the "
        "append is reported as failed, and then it commits.",
        guards="a mount waits for all appends that arrived before it, and connections it replaced are fenced",
        found_at=12,
    ),
    Mutant(
        name="repeated_append_is_not_looked_for",
        rule="E6",
        edits=(
            Edit(
                f"{_PARTITION}/repeats.py",
                "                if searched + 1 < first:\n",
                "                if on_end is not None:\n                    on_end(NOT_THERE)\n                elif searched + 1 < first:\n",
            ),
        ),
        expected=("duplicate", "duplicate_req_id", "unhandled"),
        how="An append that has committed is sent again.",
        found_at=1,
    ),
    Mutant(
        name="append_older_than_the_window_is_new",
        rule="E6",
        edits=(
            Edit(
                f"{_PARTITION}/repeats.py",
                "Found(refusal=Verdict.REPEAT_TOO_OLD, number=first)",
                "NOT_THERE",
            ),
        ),
        expected=("duplicate", "duplicate_req_id", "unhandled"),
        how="An append that has committed is sent again when hundreds of others have followed it.",
        found_at=3,
    ),
    Mutant(
        name="search_begins_with_what_this_owner_has_seen",
        rule="E6",
        edits=(
            Edit(
                f"{_PARTITION}/repeats.py",
                "records = (await self._store.read(position, count)).records",
                "records = [bytes(36)] * count",
            ),
        ),
        expected=("duplicate", "duplicate_req_id", "unhandled"),
        how="An append is sent again to another owner of the partition, whose caches do not hold it.",
        found_at=1,
    ),
    Mutant(
        name="committed_is_answered_before_it_is_durable",
        rule="E7",
        edits=(
            Edit(
                f"{_PARTITION}/append.py",
                "        self.handed += len(batch)\n        return True\n",
                "        self.handed += len(batch)\n        self._outcomes.committed(batch, now)\n        return True\n",
            ),
        ),
        expected=("unhandled",),
        how="A session ends with an append in flight that its successor does not find; another transaction gets its id.",
        found_at=6,
    ),
    Mutant(
        name="repeated_append_is_answered_with_the_end_of_the_log",
        rule="E6",
        edits=(
            Edit(
                f"{_PARTITION}/repeats.py",
                "                return Found(transaction_id)\n",
                "                return Found(self._mark.txid)\n",
            ),
        ),
        expected=("unhandled",),
        how="An append that has committed is sent again when others have followed it.",
        found_at=1,
    ),
    Mutant(
        name="failed_read_cached",
        rule="13.13",
        edits=(
            Edit(
                f"{_PARTITION}/data_reads.py",
                "        self._one_by_one = SINGLE_READS_AFTER_FAILURE\n",
                "        self._one_by_one = SINGLE_READS_AFTER_FAILURE\n"
                "        self._bad = {**getattr(self, '_bad', {}), **dict.fromkeys(range(first, end), text)}\n",
            ),
            Edit(
                f"{_PARTITION}/data_reads.py",
                "        if self._closed or not self._mark.known:\n",
                "        if transaction_id in getattr(self, '_bad', {}):\n"
                "            self._fail(client, req_id, transaction_id, self._bad[transaction_id])\n"
                "            return\n"
                "        if self._closed or not self._mark.known:\n",
            ),
        ),
        expected=("progress",),
        how="A read fails because too few nodes are there; when they are back, the data is still refused.",
        found_at=8,
    ),
    Mutant(
        name="lost_zookeeper_session_keeps_serving",
        rule="D8",
        edits=(
            Edit(
                f"{_CLUSTER}/manager.py",
                "            registration.deliver({})\n        if self._picture",
                "            pass\n        if self._picture",
            ),
        ),
        expected=("ownership",),
        how="A server is cut off from ZooKeeper for longer than its session may live, and keeps its partitions.",
        found_at=4,
    ),
    Mutant(
        name="suspended_session_never_ends",
        rule="D8",
        edits=(
            Edit(
                f"{_CLUSTER}/lease.py",
                "        return self._store.last_contact + self._store.session_timeout_seconds\n",
                "        return self._store.last_contact + self._store.session_timeout_seconds + 3600.0\n",
            ),
        ),
        expected=("ownership",),
        how="A server is cut off from ZooKeeper and hears nothing at all for longer than its session may live.",
        found_at=0,
    ),
    Mutant(
        name="feed_served_from_a_gap",
        rule="D1",
        edits=(
            Edit(
                f"{_PARTITION}/feed.py",
                "            elif feed.position != first - 1 or not (client.writable or client in written):\n",
                "            elif not (client.writable or client in written):\n",
            ),
            Edit(
                f"{_PARTITION}/feed.py",
                "        elif feed.position >= self._mark.txid:\n            self._tip[feed] = None\n",
                "        elif feed.position >= self._mark.txid - 1:\n            self._tip[feed] = None\n",
            ),
        ),
        expected=("feed_order", "progress"),
        how="A feed that is one transaction behind is taken for one at the end and misses it.",
        found_at=5,
    ),
    Mutant(
        name="replica_change_not_checked",
        rule="A6",
        edits=(
            Edit(
                "libs/cluster/src/waltz_cluster/replica_rules.py",
                "    if len(live) >= needed or (allow_pause",
                "    if len(live) >= 0 or (allow_pause",
            ),
        ),
        expected=("acknowledged", "progress", "fork", "replicas_settle"),
        how="A replica is taken away while another one has not caught up: what is left is no majority of those who have the "
        "log.",
        profile="operations",
        found_at=14,
    ),
    Mutant(
        name="forgetting_writes_over_what_others_wrote",
        rule="A1",
        edits=(
            Edit(
                "libs/admin/src/waltz_admin/forget.py",
                "                await self._metadata.write_partition(partition, changed, version)\n",
                "                _, version = await self._metadata.read_partition(partition)\n"
                "                await self._metadata.write_partition(partition, changed, version)\n",
            ),
        ),
        expected=("progress", "process_ended", "replicas_settle", "logged_error"),
        how="Two administrators give up a node, or one does while its partition gets a new session: the later write puts the "
        "session number back.",
        profile="outside",
    ),
)
