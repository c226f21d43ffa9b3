"""The tools of each implementation on a cluster of the other one."""

import re
from pathlib import Path

import pytest

from tests.interop.live.mix import NODES, OURS, RELEASE, SERVERS, Mix, open_mix
from tests.interop.live.release import Release

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_tools_of_each_understand_the_other(release: Release, tmp_path: Path) -> None:
    with open_mix(tmp_path, release) as mix:
        mix.up(dict.fromkeys(NODES, OURS), dict.fromkeys(SERVERS, OURS), by=RELEASE)
        mix.complete()
        theirs_on_ours(mix)  # first: their `validate` wants a log that holds nothing but its own transactions
        for name in (*NODES, *SERVERS):
            mix.swap(name, RELEASE)
        mix.complete()
        ours_on_theirs(mix)


def ours_on_theirs(mix: Mix) -> None:
    """Each ends with 0: nothing is unhealthy for being of 0.13.2."""
    server, admin = mix.address("h1", "8001"), mix.address("s1", "7001")
    for words in (
        "cluster verify", "cluster status", "cluster check-connectivity", "doctor", "storage validate", "storage usage",
        "zk list", "zk show-cluster-key", f"server list -s {server}", f"storage list -s {admin}",
        f"server add-preferred-partition -s {mix.address('h1', '8000')} -p 1",
        f"server remove-preferred-partition -s {mix.address('h1', '8000')} -p 1",
        f"storage availability -s {admin} -p 0 -o false", f"storage availability -s {admin} -p 0 -o true",
        "client validate -tpc 20 -nc 2 -i 1", "client high-water-mark -p 0", "cluster verify --wait 120",
    ):  # fmt: skip
        mix.waltz(*words.split())


def theirs_on_ours(mix: Mix) -> None:
    """Each says what it should. Their tools end with 0 whatever they find."""
    config = ("-c", str(mix.config("tools")))
    admin, client_port = mix.address("s1", "7001"), mix.address("h1", "8000")
    reached = r"\{" + ", ".join([r"127\.0\.0\.1:\d+=true"] * len(NODES)) + r"\}"
    for name, words, expected in (
        ("ClusterCli", ["verify", *config], ""),
        ("ClusterCli", ["check-connectivity", *config], reached),
        ("StorageCli", ["list", *config, "-s", admin], r"(?s)id: 3.*isAssigned: true.*isAvailable: true"),
        ("StorageCli", ["validate", *config], ""),
        ("StorageCli", ["availability", *config, "-s", admin, "-p", "0", "-o", "false"], ""),
        ("StorageCli", ["availability", *config, "-s", admin, "-p", "0", "-o", "true"], ""),
        ("ZooKeeperCli", ["list", *config], r"closingHighWaterMark: UNRESOLVED"),
        ("ZooKeeperCli", ["show-cluster-key", *config], r"[0-9a-f]{8}-[0-9a-f]{4}"),
        ("ServerCli", ["add-preferred-partition", *config, "-s", client_port, "-p", "1"], ""),
        ("ServerCli", ["remove-preferred-partition", *config, "-s", client_port, "-p", "1"], ""),
        ("ClientCli", ["validate", *config, "-tpc", "20", "-nc", "1", "-i", "1", "-ap", "4"], ""),
        ("ClientCli", ["high-water-mark", *config, "-p", "0"], r"high watermark: -?\d"),
        ("ServerCli", ["list", "-s", mix.address("h1", "8001")], r"(?s)There are \d p.*partition \d: \[127"),
    ):
        done = mix.tool(name, *words)
        assert re.search(expected, done.out), (name, words, done)
        assert not re.search("(?i)error|exception|fail", done.out), (name, words, done)
    mix.complete()
