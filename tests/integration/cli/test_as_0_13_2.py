"""Each sub-command and option of release 0.13.2, under its old names, against a live cluster
(docs/compatibility-commands.md)."""

import re
from pathlib import Path

import pytest
import yaml

from tests.integration.cli.live import RAN, Live
from tests.integration.processes import contents
from tests.repo.test_tools_doc import GROUPS, OF_0_13_2

pytestmark = [pytest.mark.timeout(300)]


def elsewhere(live: Live, tmp_path: Path) -> str:
    """A configuration file for another root in the same ZooKeeper."""
    keys = live.keys("client") | {"cluster.root": f"/elsewhere/{tmp_path.name}"}
    path = tmp_path / "elsewhere.yaml"
    path.write_text(yaml.safe_dump(keys))
    return str(path)


def test_zk_create_list_and_delete(live: Live, tmp_path: Path) -> None:
    config = elsewhere(live, tmp_path)
    assert (
        "created demo with 3 partitions" in live.ok("zk", "create", "-c", config, "-n", "demo", "-p", "3").out
    )
    again = live.run("zk", "create", "--cli-config-path", config, "--name", "demo", "--partitions", "3")
    assert "already" in again.error()
    listed = live.ok("zk", "list", "-c", config, "-l").out
    assert "demo" in listed
    assert live.ok("zk", "list", "--cli-config-path", config, "--logger-as-output").out == listed
    assert "'demo', not 'other'" in live.run("zk", "delete", "-c", config, "-n", "other", "--yes").error()
    assert "pass --yes" in live.run("zk", "delete", "-c", config, "-n", "demo").error(2)
    forced = live.ok("zk", "delete", "--cli-config-path", config, "--name", "other", "--force", "--dry-run")
    assert forced.out == "would delete demo\n"
    live.ok("zk", "list", "-c", config)
    live.ok("zk", "delete", "-c", config, "-n", "other", "-f", "--yes")
    assert live.run("zk", "list", "-c", config).code == 1


def test_zk_show_cluster_key(live: Live) -> None:
    key = live.ok("zk", "show-cluster-key", "-c", live.config).out.strip()
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", key)
    assert live.ok("zk", "show-cluster-key", "--cli-config-path", live.config).out.strip() == key


def test_zk_storage_nodes_and_assignments(live: Live, tmp_path: Path) -> None:
    """On a root without servers, so that nothing has to be copied."""
    config = elsewhere(live, tmp_path)
    live.ok("zk", "create", "-c", config, "-n", "demo", "-p", "4")
    live.ok("zk", "add-storage-node", "-c", config, "-s", "h1:7000", "-a", "7001", "-g", "1")
    for host in ("h2", "h3"):
        live.ok(
            *("zk", "add-storage-node", "--cli-config-path", config, "--storage", f"{host}:7000"),
            *("--storage-admin-port", "7001", "--group", host[1:]),
        )
    live.ok("zk", "auto-assign", "-c", config, "-g", "1")
    live.ok("zk", "auto-assign", "--cli-config-path", config, "--group", "2")
    assert live.ok("zk", "assign-partition", "-c", config, "-p", "0-2", "-s", "h3:7000").out == (
        "assigned 0,1,2 to h3:7000\n"
    )
    live.ok("zk", "assign-partition", "--cli-config-path", config, "--partition", "3", "--storage", "h3:7000")
    held = live.ok("zk", "list", "-c", config, "--output", "json").json["storage_nodes"]
    assert [(n["node"], n["group"], n["admin_port"], n["partitions"]) for n in held] == [
        (f"h{number}:7000", number, 7001, [0, 1, 2, 3]) for number in (1, 2, 3)
    ]
    only = live.run("zk", "unassign-partition", "-c", config, "-p", "0", "-s", "h3:7000")
    assert "--drop-group-copy" in only.error()
    live.ok(
        *("zk", "unassign-partition", "--cli-config-path", config, "--partition", "0-3"),
        *("--storage", "h3:7000", "--drop-group-copy"),
    )
    assert (
        "still has partitions" in live.run("zk", "remove-storage-node", "-c", config, "-s", "h2:7000").error()
    )
    live.ok("zk", "remove-storage-node", "--cli-config-path", config, "--storage", "h3:7000")
    live.ok("zk", "delete", "-c", config, "-n", "demo", "--yes")


def test_storage_list_and_validate(live: Live) -> None:
    everything = live.ok("storage", "list", "-c", live.config, "-l").out
    assert all(live.admin(number) in everything for number in (1, 2, 3))
    for spelling in (("-s", live.admin(2)), ("--storage", live.admin(2), "--logger-as-output")):
        one = live.ok("storage", "list", "--cli-config-path", live.config, *spelling, "--output", "json").json
        assert [(p["node"], p["partition"], p["available"]) for p in one["partitions"]] == [
            (live.admin(2), number, True) for number in range(4)
        ]
    assert all(
        p["works"]
        for p in live.ok("storage", "validate", "-c", live.config, "--output", "json").json["ports"]
    )
    live.ok("storage", "validate", "--cli-config-path", live.config)


def test_storage_partitions_of_a_node(live: Live, tmp_path: Path) -> None:
    with live.spare_node(tmp_path) as spare:
        live.ok("storage", "add-partition", "-s", spare.admin, "-p", "0-1", "-c", live.config)
        live.ok(
            *("storage", "add-partition", "--storage", spare.admin, "--partition", "3"),
            *("--cli-config-path", live.config),
        )

        def held() -> list[tuple[object, object]]:
            listed = live.ok("storage", "list", "-s", spare.admin, "--output", "json").json["partitions"]
            return [(p["partition"], p["available"]) for p in listed]

        assert held() == [(0, True), (1, True), (3, True)]
        live.ok("storage", "availability", "-s", spare.admin, "-p", "1", "-o", "false", "-c", live.config)
        assert held() == [(0, True), (1, False), (3, True)]
        live.ok(
            *("storage", "availability", "--storage", spare.admin, "--partition", "1", "--online", "true"),
            *("--cli-config-path", live.config),
        )
        assert held() == [(0, True), (1, True), (3, True)]
        live.ok("storage", "remove-partition", "-s", spare.admin, "-p", "0", "-c", live.config)
        files = tmp_path / "data"
        assert list((files / "0").glob("*.seg")), "un-assigned, and the files stay"
        for spelling in (
            ("-s", spare.admin, "-p", "1", "-c", live.config, "-d"),
            (
                "--storage",
                spare.admin,
                "--partition",
                "3",
                "--cli-config-path",
                live.config,
                "--delete-storage-files",
            ),
        ):
            assert "pass --yes" in live.run("storage", "remove-partition", *spelling).error(2)
            live.ok("storage", "remove-partition", *spelling, "--yes")
        assert held() == []
        assert not [*(files / "1").glob("*.seg"), *(files / "3").glob("*.seg")]


def test_storage_sync_partitions(live: Live) -> None:
    before = live.ok("storage", "list", "--output", "json").json["partitions"]
    assert live.ok("storage", "sync-partitions", "-c", live.config, "--output", "json").json == {"nodes": []}
    live.ok("storage", "sync-partitions", "--cli-config-path", live.config)
    after = live.ok("storage", "list", "--output", "json").json["partitions"]
    assert [p["session"] for p in before] == [p["session"] for p in after]


def test_storage_offline_copy(live: Live, tmp_path: Path) -> None:
    """The copy ends at the source's local low-water mark, which a new store session raises."""
    for number in range(30):
        live.ok("append", "-p", "2", "--data", f"copied {number}")
    tls = tmp_path / "one-side.yaml"
    tls.write_text("ssl.enabled: true\nssl.allowUnverified: true\n")
    with live.spare_node(tmp_path) as spare:
        live.ok("storage", "add-partition", "-s", spare.admin, "-p", "2")
        live.ok("storage", "availability", "-s", spare.admin, "-p", "2", "-o", "false")
        copied = live.ok(
            *("storage", "recover-partition", "-s", live.admin(1), "-d", spare.admin, "-dp", str(spare.port)),
            *(
                "-p",
                "2",
                "-b",
                "7",
                "-c",
                live.config,
                "-sssl",
                str(tls),
                "-dssl",
                str(tls),
                "--output",
                "json",
            ),
        ).facts
        assert copied["current"] == copied["target"]
        again = live.ok(
            *("storage", "recover-partition", "--source-storage", live.admin(1)),
            *("--destination-storage", spare.admin, "--destination-storage-port", str(spare.port)),
            *("--partition", "2", "--batch-size", "50", "--cli-config-path", live.config),
            *("--source-ssl-config-path", str(tls), "--destination-ssl-config-path", str(tls)),
        )
        assert again.out.startswith("copied 0 records")
        for spelling in (
            ("-s", spare.admin, "-sp", str(spare.port), "-p", "2", "-c", live.config, "-o"),
            ("--storage", spare.admin, "--storage-port", str(spare.port), "--partition", "2", "--offline"),
        ):
            highest = live.ok("storage", "max-transaction-id", *spelling, "--cli-config-path", live.config)
            assert highest.out == f"Max Transaction ID: {copied['current']}\n"
        online = live.run(
            "storage", "max-transaction-id", "-s", spare.admin, "-sp", str(spare.port), "-p", "2"
        )
        assert "not available" in online.error()


def test_server_list_and_preferences(live: Live) -> None:
    listed = live.ok("server", "list", "-s", live.http(1), "-l").out
    assert live.storage_nodes[0] in listed
    live.ok("server", "list", "--server", live.http(2), "--logger-as-output")
    first, second = live.servers
    live.ok("server", "add-preferred-partition", "-s", first, "-p", "0,2", "-c", live.config)
    assert _preferred(live) == {first: [0, 2], second: []}
    live.ok(
        *("server", "add-preferred-partition", "--server", second, "--partition", "1"),
        *("--cli-config-path", live.config),
    )
    assert _preferred(live) == {first: [0, 2], second: [1]}
    live.ok("server", "remove-preferred-partition", "-s", first, "-p", "0-2", "-c", live.config)
    live.ok(
        *("server", "remove-preferred-partition", "--server", second, "--partition", "1"),
        *("--cli-config-path", live.config),
    )
    assert _preferred(live) == {first: [], second: []}


def _preferred(live: Live) -> dict[str, object]:
    servers = live.ok("zk", "list", "--output", "json").json["servers"]
    return {str(server["endpoint"]): server["preferred_partitions"] for server in servers}


def test_cluster_verify_and_check_connectivity(live: Live) -> None:
    assert "28 checks: Passed" in live.until("cluster", "verify", "-c", live.config, "-t", "20", "-l").out
    for spelling in (("-p", "3", "--timeout", "20"), ("--partition", "3", "--logger-as-output")):
        one = live.ok(
            "cluster", "verify", "--cli-config-path", live.config, *spelling, "--output", "json"
        ).json
        assert {check["partition"] for check in one["checks"]} == {3}
    reached = live.ok("cluster", "check-connectivity", "-c", live.config, "--output", "json").json[
        "connectivity"
    ]
    assert len(reached) == 6
    assert all(pair["reached"] for pair in reached)
    live.ok("cluster", "check-connectivity", "--cli-config-path", live.config)


def test_disk_files_are_read_and_not_changed(live: Live) -> None:
    """While the node runs, which release 0.13.2 could not."""
    live.ok("append", "-p", "1", "--data", "a record", "--header", "5")
    directory = live.data(2)
    control = str(directory / "waltz-storage.ctl")
    before = contents(directory)
    everything = live.ok("disk", "dump-control-file", control, "--output", "json").json["partitions"]
    assert len(everything) == 4
    one = live.ok("disk", "dump-control-file", "-p", "1", "-a", "true", control, "--output", "json").json
    assert [entry["partition"] for entry in one["partitions"]] == [1]
    none = live.ok("disk", "dump-control-file", "--partition", "1", "--assigned", "false", control)
    assert "cluster key" in none.out
    segment = str(next((directory / "1").glob("*.seg")))
    dumped = live.ok("disk", "dump-segment", "-m", "-r", "-t", "0", segment)
    assert "partition 1, first transaction 0" in dumped.out
    assert "61 20 72 65 63 6f 72 64" in dumped.out
    text = live.ok(
        *("disk", "dump-segment", "--metadata", "--record", "--transaction", "0"),
        *("--deserializer", "waltz_client.serializers:StringSerializer", segment),
    )
    assert "a record" in text.out
    assert "a record" in live.ok("disk", "dump-segment", "-r", "-d", "codecs:utf_8_decode", segment).out
    assert "0 failures" in live.ok("disk", "verify-segment", segment).out
    live.ok("disk", "verify-segment", "-t", "0", segment)
    live.ok("disk", "verify-segment", "--transaction", "0", segment)
    assert "records" in live.ok("disk", "segment-statistic", segment).out
    assert contents(directory) == before


def test_client_validate(live: Live) -> None:
    for spelling in (
        ("-tpc", "5", "-nc", "2", "-i", "1", "-c", live.config, "-ap", "2"),
        (
            *(
                "--txn-per-client",
                "5",
                "--num-clients",
                "2",
                "--interval",
                "1",
                "--cli-config-path",
                live.config,
            ),
            *("--num-active-partitions", "2"),
        ),
    ):
        assert live.ok("client", "validate", *spelling).out == "10 transactions are right\n"


def test_client_producer_consumer_and_high_water_mark(live: Live) -> None:
    live.ok("client", "create-producer", "-tpc", "4", "-i", "1", "-c", live.config, "-ap", "2")
    live.ok("client", "create-consumer", "-tpc", "4", "-c", live.config, "-ap", "2")
    live.ok(
        *("client", "create-producer", "--txn-per-client", "3", "--interval", "1"),
        *("--cli-config-path", live.config, "--num-active-partitions", "2"),
    )
    checked = live.ok(
        *("client", "create-consumer", "--txn-per-client", "7", "--cli-config-path", live.config),
        *("--num-active-partitions", "2"),
    )
    assert checked.out == "7 transactions are right\n"
    marks = [
        live.ok("client", "high-water-mark", *spelling).out
        for spelling in (
            ("-p", "0", "-c", live.config),
            ("--partition", "0", "--cli-config-path", live.config),
        )
    ]
    assert re.fullmatch(r"High-water Mark: \d+\n", marks[0])
    assert marks[0] == marks[1]


def test_perf_producers_and_consumers(live: Live) -> None:
    producers: list[tuple[str, ...]] = [
        ("-s", "20", "-p", "5", "-t", "2", "-i", "0", "-c", live.config, "-ap", "2", "-l", "3", "-ml"),
        (
            *("--txn-size", "20", "--txn-per-thread", "5", "--num-thread", "2", "--interval", "0"),
            *("--cli-config-path", live.config, "-ap", "2", "--lock-pool-size", "3", "--mount_from_latest"),
        ),
    ]
    for spelling in producers:
        assert live.ok("perf", "test-producers", *spelling, "--output", "json").facts["transactions"] == 10
    consumers: list[tuple[str, ...]] = [
        ("-s", "20", "-t", "8", "-c", live.config, "-ap", "2", "-ml"),
        (
            *("--txn-size", "20", "--num-txn", "8", "--cli-config-path", live.config),
            *("-ap", "2", "--mount_from_latest"),
        ),
    ]
    for spelling in consumers:
        assert live.ok("perf", "test-consumers", *spelling, "--output", "json").facts["transactions"] == 8


def test_usage_of_every_group(live: Live) -> None:
    for group in ("zk", "storage", "server", "cluster", "disk", "client", "perf"):
        for flag in ("-h", "--help"):
            assert "Usage: waltz" in live.ok(group, flag).out
        assert "No such command 'nonsense'" in live.run(group, "nonsense").error(2)


def test_every_option_was_given_in_every_spelling(request: pytest.FixtureRequest) -> None:
    """Seen while the tests above ran: each command of 0.13.2, each of its options, short and long."""
    chosen = {item.name for item in request.session.items if item.path == request.path}
    if chosen != set(re.findall(r"^def (test_\w+)", request.path.read_text(), re.MULTILINE)):
        pytest.skip("only some tests of this file were chosen")
    missing = {
        f"{tool} {command}": lacking
        for tool, found in OF_0_13_2.items()
        for command, options in found.items()
        if (
            lacking := {spelling for option in options for spelling in option.split("/")}
            - RAN.get(f"{GROUPS[tool]} {command}", set())
        )
    }
    assert missing == {}
