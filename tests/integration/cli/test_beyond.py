"""What the tools of release 0.13.2 did not have, against a live cluster."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.live import Live
from tests.integration.processes import WALTZ

pytestmark = [pytest.mark.timeout(300)]


def lines(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_append_get_and_tail_on_the_standard_streams(live: Live, tmp_path: Path) -> None:
    assert live.ok("append", "-p", "0", stdin=b"one\ntwo\n").out == "0 0\n0 1\n"
    blob = bytes(range(256))
    assert live.ok("append", "-p", "0", "--whole", "--header", "7", stdin=blob).out == "0 2\n"
    first = live.ok("get", "1", "-p", "0").facts
    assert (first["partition"], first["transaction"], first["data"]) == (0, 1, "two")
    assert live.ok("get", "2", "-p", "0", "--raw").raw == blob
    assert live.ok("get", "0", "-p", "0", "--output", "table").out == "0 0 header=0 one\n"
    assert "it ends at 2" in live.run("get", "3", "-p", "0").error()
    assert "partition 9" in live.run("get", "0", "-p", "9").error()
    # What tail prints goes into another partition as it is.
    exported = tail(live, "-p", "0", "--from", "0")
    moved = "\n".join(json.dumps(line | {"partition": 3}) for line in lines(exported))
    assert live.ok("append", "--json-lines", stdin=moved.encode()).out == "3 0\n3 1\n3 2\n"
    again = [
        (line["header"], line.get("data"), line.get("data_base64")) for line in lines(tail(live, "-p", "3"))
    ]
    assert again == [(line["header"], line.get("data"), line.get("data_base64")) for line in lines(exported)]
    by_whom = lines(tail(live, "-p", "0", "--from", "0"))
    chosen = lines(tail(live, "-p", "0", "--from", "0", "--client", str(by_whom[-1]["client"])))
    assert chosen == [line for line in by_whom if line["client"] == by_whom[-1]["client"]] != by_whom
    wrong = live.run("append", "--json-lines", stdin=b'{"data": "x"}\n{"date": 1}\n')
    assert "line 2 of the input is no transaction: it has neither data nor data_base64" in wrong.error(2)
    assert "exclude each other" in live.run("append", "--whole", "--data", "x").error(2)


def tail(live: Live, *arguments: str) -> str:
    return live.ok("tail", *arguments).out


def test_tail_filters_by_header_from_an_id_or_the_last_n(live: Live) -> None:
    many = "\n".join(json.dumps({"data": f"{n}", "header": n, "partition": 1}) for n in range(2500))
    # In bulk: one append at a time would take long.
    script = (
        "import asyncio,sys,json\nfrom waltz_client import Append, WaltzClient\n"
        "async def main():\n"
        "    rows=[json.loads(l) for l in sys.stdin]\n"
        "    async with WaltzClient.connect(sys.argv[1]) as c:\n"
        "        await c.append_many([Append(r['partition'], r['data'].encode(), r['header']) for r in rows])\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", script, live.config], input=many.encode(), check=True, timeout=60)
    assert [line["header"] for line in lines(tail(live, "-p", "1", "-n", "2"))] == [2498, 2499]
    assert [line["transaction"] for line in lines(tail(live, "-p", "1", "--header", "3", "-n", "5"))] == [3]
    last = lines(tail(live, "-p", "1", "--header", "0x5/0xff", "-n", "3", "--headers-only"))
    assert [line["header"] for line in last] == [5 + 256 * n for n in (7, 8, 9)]
    assert "data" not in last[0]
    some = lines(tail(live, "-p", "1", "--header", "0/0x3ff", "--from", "1000"))
    assert [line["header"] for line in some] == [1024, 2048]
    shown = tail(live, "-p", "1", "--header", "77", "--output", "table")
    assert shown == "1 77 header=77 77\n"
    assert tail(live, "-p", "1", "--header", "9999") == ""
    assert "VALUE or VALUE/MASK" in live.run("tail", "--header", "a/b").error(2)


def test_storage_usage_status_and_top_show_the_disks(live: Live) -> None:
    disks = live.ok("storage", "usage", "--output", "json").json["disks"]
    assert {disk["node"] for disk in disks} == {live.admin(number) for number in (1, 2, 3)}
    for disk in disks:
        assert not disk["full"]
        assert isinstance(disk["log_bytes"], int)
        assert disk["log_bytes"] >= 4 * 256
        assert isinstance(disk["free"], int)
    one = live.ok("storage", "usage", "-s", live.admin(2), "--partitions", "--output", "json").json
    logs = [held["log_bytes"] for held in one["partitions"]]
    assert len(logs) == 4
    assert sum(int(str(log)) for log in logs) == one["disks"][0]["log_bytes"]
    table = live.ok("storage", "usage").out
    assert "iB" in table
    status = live.ok("cluster", "status", "--output", "json").json
    assert [set(node) >= {"log_bytes", "disk_free", "days_to_full"} for node in status["storage_nodes"]] == [
        True
    ] * 3
    looks = lines(live.ok("top", "--count", "2", "--interval", "0.2", "--output", "json").out)
    assert len(looks) == 2
    assert "4 partitions" in live.ok("top", "--count", "1").out
    assert live.ok("doctor", "--output", "json").json == {"findings": []}
    told = live.ok("explain", "partition", "3").out
    assert "partition 3 takes writes" in told
    assert "3 replicas, 2 needed for a commit" in told
    assert "there is no partition 4: the cluster has 4" in live.run("explain", "partition", "4").error(2)


FOLLOWER = """
import asyncio, sys
from waltz_client import LockConflictError, LockId, WaltzClient
async def main():
    async with WaltzClient.connect(sys.argv[1]) as one, WaltzClient.connect(sys.argv[1]) as two:
        lock = LockId.of("account", "alice")
        first = await one.append(partition=2, data=b"1", write_locks=[lock])
        try:
            await two.append(partition=2, data=b"2", write_locks=[lock], as_of=-1)
        except LockConflictError:
            print("refused", flush=True)
        async with one.feed(2, after=-1) as feed:
            async for _ in feed:
                pass
asyncio.run(main())
"""


def test_who_is_connected_and_which_locks_are_contended(live: Live) -> None:
    command = [sys.executable, "-c", FOLLOWER, live.config]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "refused\n"
            found = live.ok("locks", "--name", "account/alice", "--name", "seat/12", "--output", "json").json
            (lock,) = [row for row in found["locks"] if row["partition"] == 2]
            assert str(lock["lock"]).startswith("account/alice (0x")
            assert (lock["conflicts"], lock["transaction"]) == (1, 0)
            assert lock["won"] != lock["refused"]
            assert [row["conflicts"] for row in found["pairs"]] == [1]
            assert "1 contended lock, 1 append refused" in live.ok("locks", "-p", "2").out
            clients = live.ok("client", "list", "-p", "2", "--output", "json").json["clients"]
            assert lock["won"] in {row["client"] for row in clients}
            assert all(str(row["address"]).startswith("127.0.0.1:") for row in clients)
            assert "up to date" in live.ok("client", "list", "--timeout", "20").out
        finally:
            process.kill()
    assert "NAME/KEY" in live.run("locks", "-n", "nonsense", "-t", "5").error(2)
    for asked in (["locks"], ["client", "list"]):
        assert "there is no partition 99: the cluster has" in live.run(*asked, "-p", "99").error(2)


def test_the_load_of_servers_and_partitions_is_shown(live: Live) -> None:
    found = live.ok("server", "load", "--minutes", "1", "--output", "json").json
    assert {str(row["server"]) for row in found["servers"]} == set(live.servers)
    assert all(
        isinstance(row["load"], float) and row["load"] >= 0 and row["problem"] is None
        for row in found["servers"]
    )
    assert "over 5 min" in live.ok("server", "load").out
    assert "1, 5 and 15" in live.run("server", "load", "-m", "2").error(2)


def test_dry_runs_change_nothing(live: Live) -> None:
    before = live.ok("zk", "list").out
    node = live.storage_nodes[2]
    assert live.ok(
        "zk", "unassign-partition", "-s", node, "-p", "0-3", "--drop-group-copy", "--dry-run"
    ).out == (f"would unassign 0,1,2,3 from {node}\n")
    assert live.ok("zk", "assign-partition", "-s", node, "-p", "0", "--dry-run").out == (
        f"would assign nothing new to {node}\n"
    )
    assert "still has partitions" in live.run("zk", "remove-storage-node", "-s", node, "--dry-run").error()
    name = live.ok("zk", "list", "--output", "json").json["cluster"][0]["name"]
    assert "2 servers are registered" in live.run("zk", "delete", "-n", str(name), "--dry-run").error()
    told = live.ok("storage", "remove-partition", "-s", live.admin(3), "-p", "0,1", "-d", "--dry-run").out
    assert told.startswith(f"would remove partitions 0,1 from {live.admin(3)} and delete ")
    assert live.ok(
        "storage", "sync-partitions", "--remove-surplus", "--dry-run", "--output", "json"
    ).json == {"nodes": []}
    unknown = live.run("storage", "remove-partition", "-s", live.admin(3), "-p", "77", "-d", "--dry-run")
    assert unknown.error() == "there is no partition 77: the cluster has 4"
    reset = live.run("storage", "restore-reset", str(live.data(3)), "--dry-run")
    assert "another process is using this directory" in reset.error()
    for what in ("--dry-run", "--accept-data-loss"):
        forget = live.run("storage", "forget", "-s", node, "-p", "0", what)
        assert f"{node} answers and holds what it should" in forget.error()
    assert "--accept-data-loss" in live.run("storage", "forget", "-s", node, "-p", "0").error(2)
    nothing = live.run("zk", "accept-restored", "-p", "0-3", "--dry-run")
    assert nothing.error() == "no node knows more than ZooKeeper in partitions 0,1,2,3: nothing to accept"
    assert "there is no partition 9" in live.run("zk", "accept-restored", "-p", "9").error()
    lower = live.run("storage", "lower-fence", str(live.data(3)), "-p", "0", "--dry-run")
    assert "another process is using this directory" in lower.error()
    assert live.ok("zk", "list").out == before
    live.ok("cluster", "verify")


@pytest.mark.long
def test_a_node_that_hangs_is_named_with_exit_code_3(live: Live) -> None:
    pid = live.pids["storage-2"]
    os.kill(pid, signal.SIGSTOP)
    try:
        status = live.run("cluster", "status", "-t", "4", "--output", "json")
        doctor = live.run("doctor", "-t", "4", "--output", "json")
        explained = live.run("explain", "partition", "3", "-t", "4", "--output", "json")
        listed = live.run("storage", "list")
    finally:
        os.kill(pid, signal.SIGCONT)
    hanging = live.storage_nodes[1]
    problems = {node["node"]: node["problem"] for node in status.json["storage_nodes"]}
    assert "no answer within 4 s" in status.error(3)
    assert "no answer within 4 s" in str(problems.pop(hanging))
    assert set(problems.values()) == {None}
    assert [server["server"] for server in status.json["servers"]] == sorted(live.servers)
    assert "1 finding: storage node" in doctor.error(3)
    assert doctor.json["findings"][0]["next_step"]
    assert doctor.json["findings"][0]["rule"] == "node-silent"
    assert f"storage node {hanging} does not answer" in explained.error(3)
    assert explained.facts["takes_writes"] is True
    votes = {vote["node"]: vote["votes"] for vote in explained.json["replicas"]}
    assert votes == {node: node != hanging for node in live.storage_nodes}
    assert [one["rule"] for one in explained.json["findings"]] == ["node-silent"]
    assert "1 of 3 storage nodes did not answer" in listed.error(3)
    live.until("cluster", "verify")


def test_nobody_reads_the_output_any_more(live: Live) -> None:
    """`tail | head` has what it wanted; an append that cannot say what it did has failed."""
    waltz = " ".join(map(shlex.quote, WALTZ))
    environment = {**os.environ, "WALTZ_CONFIG": live.config}

    def shell(line: str) -> tuple[list[str], str]:
        done = subprocess.run(
            ["bash", "-c", f"{line} > /dev/null; echo ${{PIPESTATUS[@]}}"],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout.split(), done.stderr

    live.ok("append", "-p", "2", stdin=b"x" * 60_000 + b"\n" + b"y" * 60_000 + b"\n" + b"z" * 60_000 + b"\n")
    assert shell(f"{waltz} tail -p 2 --from 0 | true") == (["0", "0"], "")
    codes, error = shell(f"seq 100000 | {waltz} append -p 2 | head -1")
    assert codes[1:] == ["1", "0"]
    assert "Error: standard output was closed by its reader: ended after transaction" in error
    assert shell(f"{waltz} cluster status | true") == (["0", "0"], "")
    codes, error = shell(f"({waltz} append -p 2 --data x > /dev/full) | true")
    assert codes == ["1", "0"]
    assert re.fullmatch(
        r"Error: .*No space left on device: ended after transaction \d+ of partition 2, which is committed\n",
        error,
    )


def test_disk_check_reads_a_whole_directory(live: Live) -> None:
    assert live.ok("disk", "check", str(live.data(1)), "--output", "json").json["segments"]


def test_completion_is_installed_and_completes(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = f"{sys.executable} -m waltz_tools --install-completion; true"
    subprocess.run(["bash", "-c", command], env=environment, check=True, capture_output=True, timeout=60)
    scripts = list((tmp_path / ".bash_completions").glob("waltz*.sh"))
    assert scripts
    assert "complete" in scripts[0].read_text()
    assert str(scripts[0]) in (tmp_path / ".bashrc").read_text()
    words = {
        "waltz sto": "storage",
        "waltz storage us": "usage",
        "waltz storage replace --new-": "--new-admin-port",
    }
    for typed, completed in words.items():
        asked = environment | {
            "_WALTZ_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
        }
        done = subprocess.run(WALTZ, env=asked, check=True, capture_output=True, text=True, timeout=60)
        assert completed in done.stdout.split()
