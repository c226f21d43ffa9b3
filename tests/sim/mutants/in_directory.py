"""Planted bugs in the directory of servers, for clients that are given servers in place of ZooKeeper."""

from __future__ import annotations

from tests.sim.mutants.mutant import Edit, Mutant

_CLIENT = "client/src/waltz_client/_internal"
_SERVER = "services/server/src/waltz_server"

DIRECTORY_MUTANTS = (
    Mutant(
        name="directory_change_not_pushed",
        rule="E2",
        edits=(
            Edit(
                f"{_SERVER}/directory.py",
                "        self._owed.update((client, None) for client in self._watchers if client not in self._behind)\n",
                "        self._owed.clear()\n",
            ),
        ),
        expected=("feed_silent", "progress"),
        how="A partition moves while a client watches: the client learns nothing of it.",
        found_at=12,
    ),
    Mutant(
        name="directory_watch_lost_after_fail_over",
        rule="E2",
        edits=(
            Edit(
                f"{_CLIENT}/directory/discovery.py",
                "            if self._judged_well and loop.time() - started >= HEALTHY_SECONDS:\n"
                "                self._backoff.reset()\n",
                "            if self._judged_well:\n                return\n",
            ),
        ),
        expected=("feed_silent", "progress"),
        how="The server that a client watches dies, and partitions move after that.",
        found_at=34,
    ),
    Mutant(
        name="directory_of_one_generation_for_all",
        rule="D4",
        edits=(
            Edit(
                f"{_SERVER}/server.py",
                "            picture.endpoints,\n",
                "            {one: dict.fromkeys(owned, 1) for one, owned in picture.endpoints.items()},\n",
            ),
        ),
        expected=("feed_silent", "progress"),
        how="A server names the right owner with the first generation: after a partition has moved its owner takes no request of "
        "that generation.",
        found_at=23,
    ),
)
