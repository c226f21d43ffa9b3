"""Planted bugs in the directory of a cluster: what a server keeps and sends, what a client follows."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_server = bugs_in("services/server/src/waltz_server")
_client = bugs_in("client/src/waltz_client/_internal/directory")
_protocol = bugs_in("libs/protocol/src/waltz_protocol")

DIRECTORY_BUGS = (
    _client(
        "an_older_directory_is_followed",
        "E2",
        "sources.py",
        "        if followed is not None and directory.version < followed.version:\n",
        "        if followed is not None and directory.version < 0:\n",
        "A client changes to a server that is behind, and goes back to owners that were replaced.",
    ),
    _client(
        "one_round_is_enough_to_go_back",
        "E2",
        "sources.py",
        "            if as_new and self._rounds_without >= OLDER_ROUNDS:\n",
        "            if as_new:\n",
        "As before, at the first server that is behind.",
    ),
    _client(
        "a_directory_of_another_cluster_is_followed",
        "E2",
        "sources.py",
        "        if self.cluster_key not in (None, directory.cluster_key) or (\n",
        "        if (\n",
        "The address of a server passes to another cluster, whose partitions have the same numbers.",
    ),
    _client(
        "the_first_directory_is_the_last",
        "E2",
        "discovery.py",
        "        if judgement.follows and (before is None or before.servers != directory.servers):\n",
        "        if judgement.follows and before is None:\n",
        "The client follows no partition that moves.",
    ),
    _client(
        "a_frozen_server_is_watched",
        "E2",
        "discovery.py",
        "                if not session.heard:\n",
        "                if judgement is None:\n",
        "A server that is frozen or cut off pushes no change, and the client waits for one for a minute.",
    ),
    _server(
        "a_change_is_not_pushed",
        "E2",
        "directory.py",
        "        self._owed.update((client, None) for client in self._watchers if client not in self._behind)\n",
        "",
        "Clients learn of a moved partition when they connect again.",
    ),
    _server(
        "who_was_behind_stays_behind",
        "D3",
        "directory.py",
        "            self._owed[behind] = None\n            self._get_in_line()\n",
        "            self._get_in_line()\n",
        "A client that did not read for a moment misses a change for good.",
    ),
    _server(
        "lost_contact_is_not_in_the_directory",
        "E2",
        "server.py",
        "            picture.in_contact,\n",
        "            True,\n",
        "Clients stay with a server that learns of no change.",
    ),
    _server(
        "an_id_for_each_request",
        "D10",
        "directory.py",
        "        given = self._ids.get(client)\n",
        "        given = None\n",
        "One connection uses up the counter of ids.",
    ),
    _protocol(
        "a_partition_with_two_owners",
        "E2",
        "directory.py",
        "            if partition_id in self._placed or not 0",
        "            if not 0",
        "Bytes of a stranger give a partition two owners.",
    ),
    _protocol(
        "parts_of_two_directories_are_mixed",
        "E2",
        "directory.py",
        "        if first is None or part.part != self._received or _head(part) != _head(first):\n",
        "        if first is None or part.part != self._received:\n",
        "Half of the assignment is that of another version.",
    ),
)
