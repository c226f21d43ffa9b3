"""Planted bugs in named producers: fence, epochs, checkpoints, whose content has a number."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_server = bugs_in("services/server/src/waltz_server/partition")
_cluster = bugs_in("libs/cluster/src/waltz_cluster")
_client = bugs_in("client/src/waltz_client/_internal")

PRODUCER_BUGS = (
    _server(
        "fence_of_producers_ignored",
        "E8",
        "mounts.py",
        "        return 0 < epoch < self._newest_epoch(client.client_id)\n",
        "        return 0 < epoch < 0\n",
        "A server mounts an older instance again though it has had a newer one.",
    ),
    _server(
        "living_instance_forgotten_with_its_epoch",
        "E8",
        "mounts.py",
        "        return max(self._epochs.get(client_id, 0), *living, 0)\n",
        "        return self._epochs.get(client_id, 0)\n",
        "An older instance mounts next to a newer one that lives, when the server has seen many producers since.",
    ),
    _server(
        "older_instance_keeps_its_mount",
        "E8",
        "mounts.py",
        "            if mount.epoch >= epoch:\n",
        "            if mount.epoch >= 0:\n",
        "A newer instance mounts, and the server takes the appends of the older one all the same.",
    ),
    _server(
        "copies_recognised_by_the_whole_request_id",
        "E8",
        "queued_append.py",
        "    return req_id[:4] + req_id[12:]\n",
        "    return req_id\n",
        "Another content under a number that is in flight is written too.",
    ),
    _server(
        "search_of_a_lost_session_counts_in_the_next",
        "E8",
        "queued_append.py",
        "            one.again.waiter = one.again.found = one.again.search = None\n",
        "            one.again.waiter = None\n",
        "What another server wrote between two sessions of this one is not looked for.",
    ),
    _server(
        "ready_without_a_mount_behind_it",
        "E8",
        "owned_partition.py",
        "        state = MountState.READY if self._mounts.valid(client) else MountState.NOT_READY\n",
        "        state = MountState.READY\n",
        "An instance whose place was taken during its catch-up is answered READY.",
    ),
    _cluster(
        "epoch_of_a_producer_is_not_raised",
        "E8",
        "producers.py",
        "epoch=record.epoch + 1)\n",
        "epoch=max(record.epoch, 1))\n",
        "Two instances have one epoch, and neither ends the other.",
    ),
    _cluster(
        "older_instance_writes_checkpoints",
        "E8",
        "producers.py",
        "    if found > epoch:\n        raise NewerEpochError",
        "    if found < 0:\n        raise NewerEpochError",
        "An instance that a newer one has ended still writes how far it has come.",
    ),
    _client(
        "fenced_producer_appends_on",
        "E8",
        "appender.py",
        "            producer.check(request.partition_id)\n",
        "            pass\n",
        "An instance that knows of a newer one appends.",
    ),
    _client(
        "who_waits_behind_the_fence_waits_for_ever",
        "E8",
        "stream/partition.py",
        "        if self.window.ended_by is not None:\n            raise self.window.ended_by\n",
        "",
        "A batch that asks about a view when a newer instance begins never ends.",
    ),
    _client(
        "content_of_a_number_taken_from_the_feed",
        "E8",
        "append/sequence_window.py",
        "        return NOTHING\n\n    def committed_by_answer",
        "        entry = self._by_seq.get(seq_num)\n"
        "        return NOTHING if entry is None else self._fail_one(seq_num, Cause.COMMITTED, transaction_id)\n"
        "\n    def committed_by_answer",
        "The number of another instance's append in the feed commits this one's, with other content.",
    ),
    _client(
        "too_large_here_is_taken_for_written_nowhere",
        "E8",
        "append/sequence_window.py",
        "                outcome=Outcome.UNKNOWN,  # the server has not looked for it\n",
        "",
        "A number that another instance has written is reported as certainly not in the log.",
    ),
    _client(
        "answer_of_a_number_does_not_wait_for_the_feed",
        "E8",
        "append/sequence_window.py",
        "        if self.high_water_mark >= transaction_id:\n",
        "        if self.high_water_mark >= -1:\n",
        "Its caller's next append is decided on a view that lacks it.",
    ),
    _client(
        "mark_covers_the_number_it_precedes",
        "E8",
        "append/sequences.py",
        "        self._milestones.append((transaction_id - 1, self.last))\n",
        "        self._milestones.append((transaction_id, self.last))\n",
        "A number that is sent again is looked for behind its place, and written twice.",
    ),
    _client(
        "beginning_of_a_producer_moves_over_its_numbers",
        "E8",
        "append/sequences.py",
        "        if self.last < 0 and self.mark > self.origin + CHECKPOINT_LAG:\n",
        "        if self.mark > self.origin + CHECKPOINT_LAG:\n",
        "A number that is sent again is looked for behind its place, and written twice.",
    ),
    _client(
        "producer_begins_at_the_end_of_the_log",
        "E8",
        "partitions.py",
        "            return self._producer.marks_of(partition_id).mark\n",
        "            return await self.server_high_water_mark(partition_id, START_MARK_DEADLINE_SECONDS)\n",
        "An instance does not learn the numbers since the checkpoint.",
    ),
)
