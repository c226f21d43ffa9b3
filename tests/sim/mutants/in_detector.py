"""Bugs planted in servers that watch each other: who would be evicted wrongly, or not at all."""

from __future__ import annotations

from tests.sim.mutants.mutant import Edit, Mutant

_PEERS = "services/server/src/waltz_server/peers"
_CLUSTER = "libs/cluster/src/waltz_cluster"

DETECTOR_MUTANTS = (
    Mutant(
        name="evicted_though_it_has_answered",
        rule="G1",
        edits=(
            Edit(
                f"{_PEERS}/detector.py",
                "                if await self._challenges.unanswered(name) and await self._manager.evict(name):\n",
                "                if await self._manager.evict(name):\n",
            ),
            Edit(f"{_CLUSTER}/eviction.py", "                DeleteOp(paths.challenge(evicted.name)),\n", ""),
        ),
        expected=("evicted",),
        how="Links between servers are cut; whoever is suspected answers in ZooKeeper.",
        guards="the challenge that the eviction deletes",
        profile="detector",
        found_at=1,
    ),
    Mutant(
        name="nobody_answers_challenges",
        rule="G1",
        edits=(
            Edit(
                f"{_PEERS}/detector.py",
                "        if name and self._answering is None:\n",
                "        if name and self._answering is not None:\n",
            ),
        ),
        expected=("evicted",),
        how="Links between servers are cut.",
        profile="detector",
        found_at=7,
    ),
    Mutant(
        name="who_never_answered_is_suspected",
        rule="G1",
        edits=(
            Edit(
                f"{_PEERS}/judgement.py",
                "        return peer.watches is True and (peer.gone or silent)\n",
                "        return peer.gone or silent\n",
            ),
            Edit(
                f"{_PEERS}/judgement.py",
                "            (peer.id for peer in self._peers.values() if peer.watches is not False),\n",
                "            (peer.id for peer in self._peers.values()),\n",
            ),
            Edit(
                f"{_PEERS}/judgement.py",
                "if peer.watches}",
                "}",
            ),
        ),
        expected=("evicted",),
        how="A server as those of release 0.13.2 is in the cluster: it answers no ping and no challenge.",
        profile="detector",
        found_at=8,
    ),
    Mutant(
        name="another_registration_is_evicted",
        rule="G2",
        edits=(
            Edit(
                f"{_CLUSTER}/manager.py",
                "            evicted = next((znode for znode in snapshot.znodes if znode.name == name), None)\n",
                "            evicted = snapshot.znodes[0]\n",
            ),
            Edit(
                f"{_CLUSTER}/eviction.py",
                "                DeleteOp(paths.challenge(evicted.name)),\n",
                "",
            ),
        ),
        expected=("evicted",),
        how="A server is gone; the first one of the list pays for it.",
        guards="the challenge that the eviction deletes",
        profile="detector",
        found_at=1,
    ),
    Mutant(
        name="evictions_without_a_pause_between",
        rule="G3",
        edits=(
            Edit(
                f"{_PEERS}/judgement.py",
                "< self._evicted_at + PACE * self._timeout:",
                "< self._evicted_at:",
            ),
        ),
        expected=("eviction_pace",),
        how="Two of three servers are gone in the same moment.",
        profile="detector",
        found_at=0,
    ),
    Mutant(
        name="who_was_evicted_for_silence_is_not_left_alone",
        rule="G4",
        edits=(
            Edit(
                f"{_PEERS}/judgement.py",
                "        if peer is not None and not peer.gone:\n            self._rest(",
                "        if peer is not None and peer.gone:\n            self._rest(",
            ),
        ),
        expected=("eviction_rest",),
        how="A server freezes again and again.",
        profile="detector",
        found_at=4,
    ),
    Mutant(
        name="rests_stay_as_short_as_the_first",
        rule="G4",
        edits=(
            Edit(
                f"{_PEERS}/judgement.py",
                "2.0 ** min(count, MAX_DOUBLINGS)",
                "1.0",
            ),
        ),
        expected=("eviction_rest",),
        how="A server freezes again and again, for longer than the first rest.",
        profile="detector",
        found_at=4,
    ),
    Mutant(
        name="evicted_server_keeps_its_partitions",
        rule="G6",
        edits=(
            Edit(
                f"{_CLUSTER}/registration.py",
                "                self.deliver({})\n",
                "                return False\n",
            ),
        ),
        expected=("registered",),
        how="A server freezes, is evicted, and runs on.",
        profile="detector",
        found_at=1,
    ),
    Mutant(
        name="refused_connections_say_nothing",
        rule="ADR 35",
        edits=(
            Edit(
                f"{_PEERS}/judgement.py",
                "            peer.gone = True\n",
                "            peer.gone = False\n",
            ),
        ),
        expected=("replaced",),
        how="A server is killed; its partitions wait for the whole timeout.",
        profile="detector",
        found_at=7,
    ),
    Mutant(
        name="reports_are_not_heard",
        rule="ADR 35",
        edits=(
            Edit(
                f"{_PEERS}/judgement.py",
                "        if observer in self._peers:\n",
                "        if observer not in self._peers:\n",
            ),
        ),
        expected=("replaced",),
        how="One of three servers is killed, and nobody believes the judge.",
        profile="detector",
        found_at=0,
    ),
)
