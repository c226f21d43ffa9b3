"""Planted bugs in the findings and in the console: what is wrong, and who may see it."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_find = bugs_in("libs/admin/src/waltz_admin/findings")
_console = bugs_in("tools/src/waltz_tools/console")
_cli = bugs_in("tools/src/waltz_tools/cli")
_tools = bugs_in("tools/src/waltz_tools")
_local = bugs_in("tools/src/waltz_tools/local")

TOOLS_BUGS = (
    # ---- findings
    _find(
        "forgetting_is_advised_while_a_node_is_only_away",
        "A1",
        "undecided.py",
        "    if not any(map(_was_set_back, partition.replicas)):\n",
        "    if not partition.replicas:\n",
        "An administrator is shown how to give up a copy that only has to be started.",
    ),
    _find(
        "every_replica_is_given_up_one_by_one",
        "A1",
        "undecided.py",
        "    if any(map(_holds, partition.replicas)):\n",
        "    if partition.replicas:\n",
        "Where no copy is left that can decide, the last command of the advice is refused and nothing opens the log.",
    ),
    _find(
        "the_last_replica_listed_is_waited_for",
        "A1",
        "undecided.py",
        " or (bool(listed) and is_short(listed))\n",
        "\n",
        "While the only replica that ZooKeeper lists was set back, the advice is to wait, without an end.",
    ),
    _find(
        "an_older_zookeeper_is_a_lost_quorum",
        "A8",
        "rules.py",
        "    if partition.ahead:\n",
        "    if partition.ahead and not partition.replicas:\n",
        "The step for a lost quorum is advised where ZooKeeper has to be repaired first.",
    ),
    _find(
        "a_partition_without_writes_is_left_out",
        "findings",
        "rules.py",
        "        if partition.replicas and partition.closed:\n",
        "        if partition.current and partition.closed:\n",
        "A partition none of whose replicas is current has no finding.",
    ),
    _find(
        "a_node_that_cannot_be_asked_is_to_be_restarted",
        "findings",
        "rules.py",
        "    if node.turned_away:\n        return STEP_OF_TURNED_AWAY\n",
        "    if node.turned_away and node.refused:\n        return STEP_OF_TURNED_AWAY\n",
        "With expired certificates everywhere the restart that is advised stops what still runs.",
    ),
    _find(
        "a_copy_that_is_away_votes",
        "findings",
        "explain.py",
        "        replica.votes,\n        replica.standing,",
        "        not replica.unable,\n        replica.standing,",
        "A copy that is behind is shown as one that counts for a commit.",
    ),
    # ---- local clusters
    _local(
        "a_directory_of_something_else_is_taken",
        "local",
        "state.py",
        "            if self._holds_something_else() and self.load() is None:\n",
        "            if self._holds_something_else() and self.load() is not None:\n",
        "A cluster that is started in a directory of its user overwrites and deletes files there.",
    ),
    _local(
        "a_pid_file_of_anything_is_deleted",
        "local",
        "state.py",
        "            if not _ROLE.fullmatch(file.name):\n",
        "            if not file.name:\n",
        "A file in pids/ that no cluster wrote is deleted.",
    ),
    _local(
        "an_interrupted_join_is_forgotten",
        "local",
        "cluster.py",
        "            self.state.joining += new\n",
        "            self.state.joining = new\n",
        "A node that was added by an interrupted start runs without a replica, and the next start reports success.",
    ),
    # ---- certificates
    _tools(
        "a_key_of_another_certificate_is_there",
        "tls",
        "certificates.py",
        "        if problem := _key_problem(path):\n",
        "        if problem := _key_problem(path.parent):\n",
        "After a renewal that was interrupted `waltz tls init` reports that all is there, and no process starts with it.",
    ),
    _tools(
        "a_key_is_replaced_before_its_certificate_is_written",
        "tls",
        "certificates.py",
        "            prepared.append((beside, path))\n        for beside, path in prepared:\n",
        "            prepared.append((beside, path))\n            beside, path = prepared[-1]\n",
        "A full disk leaves a new key and the certificate of the one before.",
    ),
    # ---- exports
    _cli(
        "exports_share_a_name",
        "export",
        "zk_tree.py",
        'descriptor, part = tempfile.mkstemp(prefix=".waltz-export-", suffix=".part", dir=file.parent)',
        'part = f"{file.parent}/.{file.name}.part"; descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)',
        "Of two exports at once the one that fails empties what the other one puts in place of a good export.",
    ),
    _cli(
        "export_reported_before_it_lasts",
        "export",
        "zk_tree.py",
        "    _sync_directory(file.parent)\n",
        "",
        "After a power loss the export that was reported is missing.",
    ),
    # ---- the console
    _console(
        "any_name_is_a_name_of_the_console",
        "console",
        "safety.py",
        '    if name == "localhost" or name in',
        "    if name or name in",
        "A page whose name was given the console's address reads it (DNS rebinding).",
    ),
    _console(
        "other_sites_may_ask",
        "console",
        "safety.py",
        '    if site is not None and site not in ("same-origin", "none"):',
        '    if site is not None and site not in ("same-origin", "none", "cross-site", "same-site"):',
        "A page of another site makes requests with the session of its reader.",
    ),
    _console(
        "an_origin_is_not_compared",
        "console",
        "safety.py",
        "    if origin is not None and origin not in own:",
        "    if origin is not None and not own:",
        "A browser that sends no Sec-Fetch-Site makes requests for other pages.",
    ),
    _console(
        "sessions_last_forever",
        "console",
        "safety.py",
        "        if self._until[name] < self._clock():",
        "        if self._until[name] < 0:",
        "A session that was left open on a foreign machine remains.",
    ),
    _console(
        "others_reach_it_without_a_token_of_theirs",
        "console",
        "settings.py",
        "    if not has_token_file:\n",
        "    if not has_token_file and not has_tls:\n",
        "A console for others starts with a token that nobody else knows.",
    ),
    _console(
        "pages_without_a_session",
        "console",
        "app.py",
        '    return path.startswith("/api/") and path != "/api/login"',
        '    return path.startswith("/api/partitions") and path != "/api/login"',
        "Whoever reaches the port reads records.",
    ),
    _console(
        "payloads_without_permission",
        "console",
        "app.py",
        "    async def _record(self, request: web.Request) -> web.Response:\n        self._check_data()\n",
        "    async def _record(self, request: web.Request) -> web.Response:\n",
        "A console that is to show no data shows single transactions.",
    ),
    _console(
        "a_log_that_is_refilled_is_appended_to",
        "console",
        "history.py",
        "        if voted and votes:\n",
        "        if votes:\n",
        "A copy that is refilled, while the others do not answer, makes a rate of the whole log.",
    ),
    _console(
        "a_cut_connection_makes_a_gap",
        "console",
        "records.py",
        "            start = max(seen, end - MAX_MISSED)\n",
        "            start = max(seen, end)\n",
        "What was appended while the connection of a page that follows was cut is missing on it.",
    ),
    _console(
        "asked_without_a_viewer",
        "console",
        "collector.py",
        "            if self._clock() > self._until:\n                self._wanted.clear()",
        "            if self._clock() < 0:\n                self._wanted.clear()",
        "A console in a forgotten terminal asks the cluster forever.",
    ),
)
