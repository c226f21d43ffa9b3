"""Planted bugs in the client: answers to appends, and what is sent again."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("client/src/waltz_client/_internal")

ANSWER_BUGS = (
    _bug(
        "refusal_of_an_earlier_sending_decides",
        "E6",
        "stream/partition.py",
        "        if self._mount is None and answer.verdict is not Verdict.COMMITTED:\n",
        "        if self._mount is None and answer.verdict is None:\n",
        "What the server in between committed is called failed, and its caller appends it once more.",
    ),
    _bug(
        "sent_again_to_a_server_of_an_older_version",
        "E6",
        "stream/partition.py",
        "        if session.version >= FIRST_VERSION:\n            self.window.send_again",
        "        if session.version >= 0:\n            self.window.send_again",
        "A server that knows no repeated appends takes the copy for a new one, or ends the connection.",
    ),
    _bug(
        "what_was_given_up_is_sent_again",
        "E6",
        "append/window.py",
        "            if frame is None or (entry.given_up and searched == received):\n",
        "            if frame is None:\n",
        "What its caller gave up long ago comes into the log.",
    ),
    _bug(
        "flush_of_before_counts_for_what_was_sent_again",
        "E1",
        "append/window.py",
        "        if self._stale_flushes:\n",
        "        if self._stale_flushes < 0:\n",
        "An append is called failed by the answer to a flush that came before it was sent again, and commits.",
    ),
    _bug(
        "skipped_part_of_the_log_counts_as_searched",
        "E6",
        "append/window.py",
        "            searched = received if entry.searched is None else entry.searched\n",
        "            searched = received\n",
        "An append that committed while the partition was let go is appended a second time.",
    ),
    _bug(
        "generation_of_the_first_sending_travels",
        "E6",
        "append/window.py",
        "            repeated = Repeated(self._req_ids.generation, searched)\n",
        "            repeated = Repeated(entry.generation, searched)\n",
        "What was under way when a partition moved is refused for good.",
    ),
    _bug(
        "committed_answer_that_overtakes_the_feed_counts",
        "E7",
        "append/window.py",
        "            if not self._skipped:\n",
        "            received = 2**63\n            if not answer:\n",
        "The next append of the same caller loses to its own transaction.",
    ),
    _bug(
        "committed_answer_counts_never",
        "E7",
        "append/window.py",
        "                entry.searched, self._skipped = received, True\n",
        "                entry.searched = received\n",
        "An append that committed in a part of the log which the feed has skipped has no outcome.",
    ),
    _bug(
        "answer_of_one_partition_counts_for_another",
        "E7",
        "stream/session.py",
        "            partition = self._partitions.get(answer.partition_id)\n            if (\n",
        "            partition = next(iter(self._partitions.values()), None)\n            if (\n",
        "An append is called failed because one with the same number failed in another partition.",
    ),
    _bug(
        "silence_of_a_feed_that_skipped_fails",
        "E1",
        "append/window.py",
        "            if entry.searched is not None and cause in _OF_THE_FEED:\n",
        "            if entry.searched is not None and cause is None:\n",
        "An append is called failed that committed in a part of the log which the feed has skipped.",
    ),
    _bug(
        "large_append_shares_a_frame_with_others",
        "E6",
        "stream/session.py",
        "        if batch and self._batch_bytes + len(frame) > BATCH_BYTES:\n",
        "        if batch and self._batch_bytes > BATCH_BYTES:\n",
        "A connection breaks again and again over a frame that its server does not take.",
    ),
)
