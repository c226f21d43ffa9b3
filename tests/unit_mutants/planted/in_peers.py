"""Planted bugs in servers that watch each other, and in what they do in ZooKeeper."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_peers = bugs_in("services/server/src/waltz_server/peers")
_cluster = bugs_in("libs/cluster/src/waltz_cluster")

PEER_BUGS = (
    _peers(
        "one_observer_is_enough",
        "G1",
        "judgement.py",
        "            elif self._judge(me, name, now) and self._witnessed(name, now):\n",
        "            elif self._judge(me, name, now):\n",
        "A link that is cut on the judge's side alone is taken for a dead server.",
    ),
    _peers(
        "reports_never_grow_old",
        "G1",
        "judgement.py",
        "            if name in self._reports and now - self._reports[name][0] <= SILENT_WAIT * self._timeout\n",
        "            if name in self._reports\n",
        "A server that is no longer there remains a witness of what it once suspected.",
    ),
    _peers(
        "who_was_never_reached_is_suspected",
        "G1",
        "judgement.py",
        "        return peer.watches is True and (peer.gone or silent)\n",
        "        return peer.watches is not False and (peer.gone or silent)\n",
        "A server of 0.13.2 that is slow to say Hello is evicted, and does not know of challenges.",
    ),
    _peers(
        "no_rest_after_an_answer",
        "G4",
        "judgement.py",
        "            return Challenge(peer.id.name) if rest is None or now >= rest.until else None\n",
        "            return Challenge(peer.id.name)\n",
        "A server behind a cut link is challenged all the time, one that flaps loses its partitions each time.",
    ),
    _peers(
        "rests_do_not_grow",
        "G4",
        "judgement.py",
        "        seconds = min(FIRST_REST * self._timeout * 2.0 ** min(count, MAX_DOUBLINGS), MAX_REST_SECONDS)\n",
        "        seconds = FIRST_REST * self._timeout\n",
        "A server that freezes every few seconds moves its partitions every few seconds.",
    ),
    _peers(
        "silence_of_most_evicts",
        "G3",
        "judgement.py",
        "        return 2 * heard >= 1 + len(watching)\n",
        "        return heard >= 1\n",
        "A server that hears from nobody evicts the majority.",
    ),
    _peers(
        "all_at_once",
        "G3",
        "judgement.py",
        "        if now < peer.challenged_at + wait or now < self._evicted_at + PACE * self._timeout:\n",
        "        if now < peer.challenged_at + wait:\n",
        "Several servers are evicted in one moment, by what was seen in one moment.",
    ),
    _peers(
        "a_pause_of_our_own_counts_as_their_silence",
        "G5",
        "judgement.py",
        "            self._was_away(now)\n",
        "            pass\n",
        "A machine that was suspended evicts whoever answered meanwhile.",
    ),
    _peers(
        "a_challenge_is_not_waited_for",
        "G1",
        "judgement.py",
        "        wait = self._timeout * (GONE_WAIT if peer.gone else SILENT_WAIT)\n",
        "        wait = 0.0\n",
        "A server that is silent for half of the timeout has no time to answer.",
    ),
    _peers(
        "whoever_answers_at_the_address_is_the_peer",
        "G1",
        "detector.py",
        "            if name == peer.name:\n",
        "            if name is not None:\n",
        "A new process at the address keeps the descriptor of the dead one alive.",
    ),
    _cluster(
        "evicted_without_its_challenge",
        "G1",
        "eviction.py",
        "                DeleteOp(paths.challenge(evicted.name)),\n",
        "",
        "A server that has answered is evicted all the same.",
    ),
    _cluster(
        "a_living_server_of_the_same_address_is_removed",
        "G2",
        "eviction.py",
        "            await self._store.transaction([DeleteOp(self._paths.challenge(name)), DeleteOp(descriptor)])\n",
        "            await self._store.transaction([DeleteOp(descriptor)])\n",
        "Two servers that were given one address delete each other's descriptors when they start.",
    ),
    _cluster(
        "two_evictions_by_one_view",
        "G2",
        "eviction.py",
        "                SetOp(paths.server_descriptors, assignment.to_bytes(), snapshot.version),\n",
        "                SetOp(paths.server_descriptors, assignment.to_bytes()),\n",
        "Two servers evict each other in the same moment, and nobody is left.",
    ),
    _cluster(
        "the_registration_at_the_address_is_evicted",
        "G2",
        "manager.py",
        "            evicted = next((znode for znode in snapshot.znodes if znode.name == name), None)\n",
        "            evicted = snapshot.znodes[-1]\n",
        "A server that came back is evicted for what its predecessor did not answer.",
    ),
    _cluster(
        "a_stranger_evicts",
        "G3",
        "manager.py",
        "            if evicted is None or not self._registrations.keys() & members.keys():\n",
        "            if evicted is None:\n",
        "A server evicts the last one that serves, itself.",
    ),
    _cluster(
        "an_evicted_server_keeps_its_partitions",
        "G6",
        "registration.py",
        "                self.deliver({})\n",
        "                pass\n",
        "It answers from partitions that others have, until the next assignment.",
    ),
)
