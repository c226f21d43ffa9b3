"""Planted bugs in what keeps the numbers of named producers unique (rule E8, ADR 38)."""

from __future__ import annotations

from tests.sim.mutants.mutant import Edit, Mutant

_CLIENT = "client/src/waltz_client/_internal"
_SERVER = "services/server/src/waltz_server/partition"
_TWICE = ("duplicate_req_id", "duplicate", "producer", "failed_committed")

PRODUCER_MUTANTS = (
    Mutant(
        name="number_is_not_searched_for",
        rule="E8",
        edits=(
            Edit(
                f"{_SERVER}/repeats.py",
                "                if ids is not None:\n                    ids.append(transaction_id)\n",
                "                if ids is not None and transaction_id < 0:\n                    ids.append(transaction_id)\n",
            ),
        ),
        expected=_TWICE,
        how="An instance sends again what an earlier one had written: the server takes it as new.",
        profile="producers",
        found_at=0,
    ),
    Mutant(
        name="old_number_searched_for_at_the_end_only",
        rule="E8",
        edits=(
            Edit(
                f"{_CLIENT}/append/sequences.py",
                "        if sequence > self.last:\n",
                "        if sequence > -1:\n",
            ),
        ),
        expected=_TWICE,
        how="An instance begins again below the last number, and says that it has searched all that it received.",
        profile="producers",
        found_at=0,
    ),
    Mutant(
        name="checkpoint_ahead_of_the_log",
        rule="E8",
        edits=(
            Edit(
                f"{_CLIENT}/append/sequences.py",
                "                return Checkpoint(self.origin, mark, last)\n",
                "                return Checkpoint(self.origin, self.mark + 3, last)\n",
            ),
        ),
        expected=(*_TWICE, "client_ahead"),
        how="The next instance does not see the numbers between what was received and the checkpoint.",
        profile="producers",
        found_at=0,
    ),
    Mutant(
        name="mark_of_another_partition",
        rule="E8",
        edits=(
            Edit(
                f"{_CLIENT}/producer.py",
                "            known = self._written.get(partition_id, Checkpoint(-1, -1))\n",
                "            known = self._written.get(0, Checkpoint(-1, -1))\n",
            ),
        ),
        expected=(*_TWICE, "client_ahead"),
        how="An instance begins in each partition where it knows the numbers of the first one.",
        profile="producers",
        found_at=7,
    ),
    Mutant(
        name="number_in_the_feed_taken_for_ones_own",
        rule="E8",
        edits=(
            Edit(
                f"{_CLIENT}/append/sequence_window.py",
                '        """In the feed: says nothing about whose content it is."""\n        return NOTHING\n',
                '        """In the feed: says nothing about whose content it is."""\n'
                "        entry = self._by_seq.get(seq_num)\n"
                "        return NOTHING if entry is None else self._fail_one(seq_num, Cause.COMMITTED, transaction_id)\n",
            ),
        ),
        expected=("acknowledged", *_TWICE),
        how="Two instances have different content for a number; the feed brings that of the other one.",
        profile="producers",
        found_at=2,
    ),
    Mutant(
        name="contents_of_one_number_do_not_meet",
        rule="E8",
        edits=(
            Edit(
                f"{_SERVER}/queued_append.py",
                "    return req_id[:4] + req_id[12:]\n",
                "    return req_id\n",
            ),
            Edit(
                f"{_SERVER}/repeats.py",
                "                ids = wanted.get(record[_CLIENT] + record[_SEQ_NUM])\n",
                "                ids = wanted.get(record[8:24])\n",
            ),
        ),
        expected=_TWICE,
        how="Two instances have different content for a number: request ids are compared whole, with the checksum of the "
        "content, and both are written.",
        profile="producers",
        found_at=6,
    ),
    Mutant(
        name="epoch_is_not_raised",
        rule="E8",
        edits=(
            Edit(
                "libs/cluster/src/waltz_cluster/producers.py",
                "            record = replace(record, epoch=record.epoch + 1)\n",
                "            record = replace(record, epoch=max(record.epoch, 1))\n",
            ),
        ),
        expected=("producer",),
        how="A second instance begins: both have the same epoch, and neither ends the other.",
        profile="producers",
        found_at=0,
    ),
    Mutant(
        name="epoch_given_over_servers_is_not_written",
        rule="E8",
        edits=(
            Edit(
                "services/server/src/waltz_server/producers.py",
                "                return await self._store.raise_epoch(name, epoch)\n",
                "                found = await self._store.find(name)\n"
                "                return found and ProducerRecord(found.client_id, epoch, found.checkpoints)\n",
            ),
        ),
        expected=("producer",),
        how="Two clients that are given servers begin as instances of one producer: a server gives both the same epoch.",
        profile="producers",
        found_at=12,
    ),
)
