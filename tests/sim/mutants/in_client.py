"""Planted bugs in the client library."""

from __future__ import annotations

from tests.sim.mutants.mutant import Edit, Mutant

_INTERNAL = "client/src/waltz_client/_internal"

CLIENT_MUTANTS = (
    Mutant(
        name="flush_not_deferred",
        rule="E1",
        edits=(
            Edit(
                f"{_INTERNAL}/append/transaction_monitor.py",
                "        if self.high_water_mark >= mark:\n            return self._flush(seq_num, mark)\n",
                "        if self.high_water_mark >= -1:\n            return self._flush(seq_num, mark)\n",
            ),
        ),
        expected=("failed_committed", "duplicate"),
        how="A flush response overtakes the feed (the feed is behind, or its credit is used up) that would have brought the "
        "append.",
        profile="network",
        found_at=29,
    ),
    Mutant(
        name="lock_failure_not_deferred",
        rule="E1",
        edits=(
            Edit(
                f"{_INTERNAL}/append/transaction_monitor.py",
                "        if self.high_water_mark >= mark:\n            return entry, self._fail_one(",
                "        if self.high_water_mark >= -1:\n            return entry, self._fail_one(",
            ),
        ),
        expected=("own_view",),
        how="A lock failure overtakes the feed; its caller tries again at once and leaves the view to the client, which has "
        "not received what was in the way. Of our servers a lock failure says for certain that the append is not in the log "
        "(it was never given to the store), so nothing else depends on the deferral.",
    ),
    Mutant(
        name="lost_connection_counts_as_failure",
        rule="E1",
        edits=(
            Edit(
                f"{_INTERNAL}/stream/partition.py",
                '        self._unmount(MountEvent.DETACHED, f"the connection to {session.endpoint} was lost")\n',
                '        self._unmount(MountEvent.DETACHED, f"the connection to {session.endpoint} was lost")\n'
                "        if self.window.monitor.newest is not None:\n"
                "            newest = self.window.monitor.newest\n"
                "            self.window.deliver(self.window.monitor._flush(newest.seq_num, self.received))\n",
            ),
        ),
        expected=("failed_committed", "duplicate"),
        how="A connection breaks after an append was sent: it is tried again, and both are in the log.",
        found_at=5,
    ),
    Mutant(
        name="foreign_request_id_taken_for_ones_own",
        rule="A4",
        edits=(
            Edit(
                f"{_INTERNAL}/stream/partition.py",
                "            if fields[0] == self.client_id:\n",
                "            if window.monitor.outstanding:\n",
            ),
            Edit(
                f"{_INTERNAL}/stream/partition.py",
                "                else:\n                    window.not_awaited(fields)\n",
                "",
            ),
            Edit(
                f"{_INTERNAL}/req_ids.py",
                "self._seq_num = self._before = self._draw()",
                "self._seq_num = self._before = 0",
            ),
            Edit(f"{_INTERNAL}/append/transaction_monitor.py", " or entry.header != header", ""),
        ),
        expected=("acknowledged", "duplicate"),
        how="Two clients of a partition use the same sequence number: each takes the other's commit for its own.",
        found_at=0,
    ),
    Mutant(
        name="request_ids_count_from_one",
        rule="E5",
        edits=(
            Edit(
                f"{_INTERNAL}/req_ids.py",
                "self._seq_num = self._before = self._draw()",
                "self._seq_num = self._before = 0",
            ),
            Edit(f"{_INTERNAL}/append/transaction_monitor.py", " or entry.header != header", ""),
            Edit(
                "services/server/src/waltz_server/partition/owned_partition.py",
                "        if mount.elders and not mount.may_use(append.req_id):\n",
                "        if mount.seq_num < 0:\n",
            ),
        ),
        expected=("acknowledged", "duplicate_req_id", "duplicate"),
        how="The counter of client ids goes back; a client that starts then has the id of a living one, and both make the same "
        "request ids.",
        guards="the comparison of headers; the server, which keeps the numbers of the client that was there before",
        profile="identity",
        found_at=0,
    ),
    Mutant(
        name="views_beyond_the_log",
        rule="D9",
        edits=(
            Edit(
                f"{_INTERNAL}/append/request.py",
                "            view,\n            self.write_locks,\n",
                "            view + 1000,\n            self.write_locks,\n",
            ),
            Edit(
                "services/server/src/waltz_server/partition/append.py",
                "        if view > self._mark.txid and (write or read):\n",
                "        if view < -1:\n",
            ),
        ),
        expected=("serializable", "linearizable", "lost", "own_view"),
        how="A client claims to have seen more than there is, and the server does not look: no lock ever conflicts.",
        guards="the client's own comparison is passed by: the view is raised behind it",
        found_at=0,
    ),
    Mutant(
        name="request_id_used_again_after_a_reconnect",
        rule="E2",
        edits=(
            Edit(
                f"{_INTERNAL}/stream/partition.py",
                "        self._not_ready.reset()\n        self._begin_mount()\n\n    def session_lost",
                "        self._not_ready.reset()\n        self.req_ids._seq_num = self.req_ids._before\n        self._begin_mount()\n\n    def session_lost",
            ),
        ),
        expected=("duplicate_req_id", "duplicate", "acknowledged", "outcome_given"),
        how="A client connects again and appends: its request ids are in the log already.",
        profile="network",
        found_at=25,
    ),
    Mutant(
        name="remounts_at_the_end_of_the_log",
        rule="E1",
        edits=(
            Edit(
                f"{_INTERNAL}/stream/partition.py",
                '        self._unmount(MountEvent.DETACHED, f"the connection to {session.endpoint} was lost")\n        self.session = None\n',
                '        self._unmount(MountEvent.DETACHED, f"the connection to {session.endpoint} was lost")\n        self.session = None\n'
                "        self.received = NOT_STARTED\n        self.state = MountState.STARTING\n",
            ),
        ),
        expected=("feed_order", "failed_committed"),
        how="A client loses its connection; what commits before it is back is never shown to it.",
        found_at=1,
    ),
    Mutant(
        name="delivers_again_after_a_remount",
        rule="E1",
        edits=(
            Edit(
                f"{_INTERNAL}/stream/partition.py",
                '        self._unmount(MountEvent.DETACHED, f"the connection to {session.endpoint} was lost")\n        self.session = None\n',
                '        self._unmount(MountEvent.DETACHED, f"the connection to {session.endpoint} was lost")\n        self.session = None\n'
                "        self.received = max(self.received - 1, -1)\n",
            ),
            Edit(
                f"{_INTERNAL}/stream/feed_cursor.py",
                "        if skip > 0:  # a reader",
                "        if skip > 1:  # a reader",
            ),
        ),
        expected=("feed_order",),
        how="A client loses its connection and mounts one transaction too early.",
        guards="a reader drops what it has seen",
        found_at=0,
    ),
    Mutant(
        name="unknown_outcome_tried_again",
        rule="E1",
        edits=(
            Edit(
                f"{_INTERNAL}/appender.py",
                "            if isinstance(outcome, _FINAL):\n                raise outcome\n",
                "            if isinstance(outcome, LockConflictError):\n                raise outcome\n"
                "            if isinstance(outcome, OutcomeUnknownError):\n"
                "                if attempts > 2:\n                    raise outcome\n"
                "                deadline += seconds\n",
            ),
        ),
        expected=("duplicate",),
        how="An append's deadline comes while it is on its way: it is sent again, and both are in the log.",
        found_at=3,
    ),
    Mutant(
        name="older_generation_mounted",
        rule="E2",
        edits=(
            Edit(
                f"{_INTERNAL}/partitions.py",
                "                elif generation < source.generation:\n",
                "                elif generation < source.generation and source.raise_generation(generation):\n",
            ),
            Edit(
                f"{_INTERNAL}/req_ids.py",
                "        if generation <= self.generation:\n            return False\n",
                "        if generation == self.generation:\n            return False\n",
            ),
            Edit(
                "services/server/src/waltz_server/store/quorum_store.py",
                "        await self._open_session().confirmations.ask()\n",
                "        await asyncio.sleep(0)\n",
            ),
        ),
        expected=("failed_committed", "client_ahead"),
        how="ZooKeeper shows a client an older assignment than it has seen, and the old owner does not know yet that it has "
        "been replaced.",
        guards="the old owner asks a quorum before it answers a mount",
        found_at=1,
    ),
    Mutant(
        name="a_retry_takes_a_newer_view",
        rule="D6",
        edits=(
            Edit(
                f"{_INTERNAL}/appender.py",
                "                request = request._replace(as_of=view)\n",
                "                pass\n",
            ),
        ),
        expected=("lost_update",),
        how="An append under a lock, its view left to the client, fails because its partition moves; a rival commits, the client "
        "receives that and tries again with a view that has it.",
    ),
)
