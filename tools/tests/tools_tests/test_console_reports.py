"""The pages that are made of the servers' reports: locks, clients, latency."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tools_tests.console_rig import Source, cluster, console
from waltz_admin.kept_reports import ASK_AGAIN_SECONDS
from waltz_admin.latency import Latency
from waltz_admin.reports import (
    CLIENTS,
    DOES_NOT_REPORT,
    LATENCY,
    LOCKS,
    ClientRow,
    Following,
    LockRow,
    PairRow,
    ServerReport,
    WaitingRow,
)
from waltz_cluster.store import ZooKeeperStore
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.locks import LockId
from waltz_protocol.types import Endpoint
from waltz_tools.cli.figures import Duration
from waltz_tools.cli.transactions import parse_lock
from waltz_tools.console.reports import NOTHING_SINCE, since
from waltz_tools.console.source import ClusterSource
from waltz_tools.errors import UsageError
from waltz_tools.lock_names import hashes_of, lock_text, names_by_hash

SERVER = Endpoint("server-0", 7)
ALICE = LockId.of("account", "alice").hash


def report(count: int, *, server_id: int = 0, refused: int | None = None) -> ServerReport:
    """With `count` conflicts of one lock, and as many appends of two milliseconds each."""
    return ServerReport(
        server_id,
        SERVER,
        clients=(
            ClientRow(SERVER, 7, "10.0.0.1:5", 4, 0, 1, "0", 1, 0, (Following(0, 9, 0, "up to date"),)),
            ClientRow(SERVER, 8, "10.0.0.2:5", 4, 9, 1, "0", 1, 5, (Following(0, 4, 5, "does not read"),)),
        ),
        connections=3,
        refused=count if refused is None else refused,
        locks=(LockRow(0, ALICE, count, 1, 0, 9, 7, 8),),
        pairs=(PairRow(0, ALICE, 7, 8, count, 0),),
        waiting=(WaitingRow(0, ALICE, 7, (8,), 1),),
        latency=Latency((0.001, 0.002, 0.004), (0, 0, count), count),
        appends={0: (count, count * 0.003)},
    )


def test_rates_and_latency_are_those_between_two_observations() -> None:
    found = since([report(10)], [report(30)], 4.0)
    assert found.refused == 5.0
    assert found.conflicts == {(0, 0, ALICE): 5.0}
    assert found.means == {0: pytest.approx(0.003)}
    assert found.p50_seconds == pytest.approx(0.003)
    assert found.p99_seconds == pytest.approx(0.00398)


def test_without_an_earlier_report_of_the_same_server_there_is_no_rate() -> None:
    assert since([], [report(10)], 4.0) is NOTHING_SINCE
    assert since([report(10)], [report(30, server_id=1)], 4.0) is NOTHING_SINCE
    assert since([report(10)], [replace(report(30), problem=DOES_NOT_REPORT)], 4.0) is NOTHING_SINCE
    again = since([report(30)], [report(10)], 4.0)
    assert (again.refused, again.conflicts) == (0.0, {}), (
        "a server that lost partitions counts less, not backwards"
    )


def test_a_part_that_was_not_asked_for_before_gives_no_rate() -> None:
    """Its first counts are those of hours."""
    without = replace(report(0), refused=None, locks=())
    found = since([without], [report(1000)], 2.0)
    assert (found.refused, found.conflicts) == (None, {})


async def test_pages_ask_servers_for_what_they_show_and_only_then() -> None:
    asked: list[int] = []
    silent = ServerReport(1, Endpoint("server-1", 7), DOES_NOT_REPORT)

    async def reports(servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        assert [one for one, _ in servers] == [0, 1]
        asked.append(parts)
        return [report(10 * len(asked)), silent]

    async with console(report=reports) as rig:
        await rig.page("/api/overview")
        await rig.collector.changed(rig.collector.number + 1, 5.0)
        assert set(asked) == {LATENCY}
        clients = await rig.page("/api/clients")
        assert asked[-1] & CLIENTS
        assert not asked[-1] & LOCKS
        rows = clients["rows"]
        assert isinstance(rows, list)
        assert [row["client"] for row in rows] == [8, 7], "who is furthest behind comes first"
        assert rows[0]["server"] == "server-0:7"
        assert clients["without"] == [{"server": "server-1:7", "problem": DOES_NOT_REPORT}]
        locks = await rig.page("/api/locks")
        assert asked[-1] & LOCKS
        assert isinstance(locks["rows"], list)
        assert locks["rows"][0]["hash"] == f"{ALICE & 0xFFFFFFFF:#010x}"
        assert isinstance(locks["waiting"], list)
        assert locks["waiting"][0]["clients"] == [8] or locks["waiting"][0]["clients"] == (8,)
        await rig.collector.changed(rig.collector.number, 5.0)
        overview = await rig.page("/api/overview")
        assert isinstance(overview["latency"], dict)
        assert overview["latency"]["p50_seconds"] == pytest.approx(0.003)
        partitions = (await rig.page("/api/partitions"))["rows"]
        assert isinstance(partitions, list)
        assert partitions[0]["latency_seconds"] == pytest.approx(0.003)


async def test_servers_that_cannot_be_asked_are_no_reason_to_observe_nothing() -> None:
    async def reports(servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        raise RuntimeError("a defect")

    async with console(report=reports) as rig:
        await rig.page("/api/overview")
        number = rig.collector.number
        await rig.collector.changed(number + 1, 5.0)
        assert rig.collector.error == ""
        assert (await rig.page("/api/clients"))["rows"] == []


async def test_names_are_resolved_to_hashes() -> None:
    async with console() as rig:
        found = await rig.page("/api/hashes?name=account/alice&name=seat/12")
        assert found == {
            "account/alice": [ALICE],
            "seat/12": [LockId.of("seat", "12").hash, LockId("seat", 12).hash],
        }
        status, body = await rig.get("/api/hashes?name=nonsense")
        assert status == 400
        assert "NAME/KEY" in str(body["error"])


def test_names_of_locks() -> None:
    known = names_by_hash(["account/alice", "a/b/c"])
    assert lock_text(ALICE, known) == f"account/alice ({ALICE & 0xFFFFFFFF:#010x})"
    assert lock_text(5, known) == "0x00000005"
    assert hashes_of("a/b/c") == (LockId.of("a", "b/c").hash,)
    assert len(hashes_of(f"a/{1 << 63}")) == 1, "no id has that many bits"
    as_given = os.fsdecode(b"account/\xff")
    assert hashes_of(as_given) == (parse_lock(as_given).hash,), "a key has any bytes, as at `append --lock`"
    for wrong in ("", "a", "a/", "/b"):
        with pytest.raises(UsageError):
            hashes_of(wrong)


async def test_a_server_without_reports_is_asked_again_after_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of release 0.13.2 closes a connection for each question, and writes about it."""
    asked: list[list[int]] = []

    async def read(servers: Sequence[tuple[int, Endpoint]], *_: object, **__: object) -> list[ServerReport]:
        asked.append([one for one, _ in servers])
        return [ServerReport(one, at, DOES_NOT_REPORT if one == 2 else "") for one, at in servers]

    async def never() -> ZooKeeperStore:
        raise AssertionError("reports need no ZooKeeper")

    now = 1000.0
    monkeypatch.setattr("waltz_admin.kept_reports.ask_reports", read)
    monkeypatch.setattr("time.monotonic", lambda: now)
    source = ClusterSource(never, "/", TlsSettings(enabled=False), question_seconds=1.0)
    servers = [(1, SERVER), (2, SERVER)]
    for _ in range(3):
        found = await source.reports(servers, LATENCY)
        assert {one.server_id: one.silent for one in found} == {1: False, 2: True}
    assert asked == [[1, 2], [1], [1]]
    now += ASK_AGAIN_SECONDS + 1
    await source.reports(servers, LATENCY)
    assert asked[-1] == [1, 2]


def test_short_times_are_read_with_their_unit() -> None:
    assert list(map(str, map(Duration, (0.00084, 0.0124, 1.25)))) == ["0.84 ms", "12 ms", "1.2 s"]


async def test_a_page_does_not_wait_for_reports_when_no_server_answers() -> None:
    """It would be overtaken by the next observation, and the page would never show that no server is."""

    async def reports(servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        raise AssertionError("there is no server to ask")

    async with console(Source(replace(cluster(2), servers=())), report=reports) as rig:
        await rig.page("/api/overview")
        await rig.collector.changed(rig.collector.number + 1, 5.0)
        rig.collector._interval_seconds = 1000.0
        await rig.collector.changed(rig.collector.number, 5.0)
        asked = rig.source.asked
        for page in ("overview", "findings", "locks", "clients"):
            await rig.page(f"/api/{page}")
        await rig.page("/api/locks")
        assert rig.source.asked <= asked + 2, (
            "once for locks and once for clients, which nobody wanted before"
        )
