"""What servers report about clients, locks and latency, read by the tools."""

from __future__ import annotations

import json

import pytest

from admin_tests.fake_processes import FakeServer
from waltz_admin import node_state
from waltz_admin.errors import AdminError
from waltz_admin.latency import Latency, added
from waltz_admin.not_open import NotOpen
from waltz_admin.reports import (
    CLIENTS,
    DOES_NOT_REPORT,
    LATENCY,
    LOCKS,
    NOT_OPEN,
    REPLICAS,
    RefusedReplica,
    parse_report,
    read_reports,
)
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

PLAIN = TlsSettings(enabled=False)
SERVER = Endpoint("server-1", 7)
CLIENT = {
    "client": 3, "address": "10.0.0.1:55", "version": 4, "unsent_bytes": 9, "mounted": 2, "partitions": "0-1",
    "following": 1, "behind": 5, "furthest": [{"partition": 1, "sent": 4, "behind": 5, "state": "catching up"}],
}  # fmt: skip
LOCK = {
    "partition": 1, "lock": -7, "conflicts": 2, "waits": 1, "over": 0, "transaction": 5, "winner": None, "loser": 3,
}  # fmt: skip
REPORT = {
    "format": 1,
    "clients": {"connections": 2, "left_out": 0, "rows": [CLIENT]},
    "locks": {
        "refused": 2,
        "rows": [LOCK],
        "pairs": [{"partition": 1, "lock": -7, "winner": None, "loser": 3, "conflicts": 2, "over": 0}],
        "waiting": [{"partition": 1, "lock": -7, "holder": 3, "clients": [4, 5], "count": 2}],
    },
    "latency": {"bounds_seconds": [0.5, 1.0], "count": 4, "at_most": [3, 4], "partitions": {"1": [4, 2.0]}},
    "replicas": {"left_out": 7, "refused": [{"partition": 1, "node": "a:1", "reason": "a fork"}]},
    "not_open": {"left_out": 7, "rows": [{"partition": 2, "state": "fault", "reason": "why"}]},
}


async def test_every_server_is_asked_and_who_has_no_report_says_so() -> None:
    async with (
        FakeServer(partitions=(0,), report=json.dumps(REPORT)).running() as new,
        FakeServer(partitions=(1,)).running() as old,
        FakeServer(silent=True).running() as hangs,
    ):
        servers = [(1, new.endpoint), (2, old.endpoint), (3, hangs.endpoint), (4, Endpoint("127.0.0.1", 1))]
        one, two, three, four = await read_reports(
            servers, CLIENTS | LOCKS | LATENCY | REPLICAS | NOT_OPEN, tls=PLAIN, timeout_seconds=0.5
        )
    assert (one.problem, two.problem, two.silent) == ("", DOES_NOT_REPORT, True)
    assert all(one.problem for one in (three, four))
    assert not any(one.silent for one in (three, four))
    (row,) = one.clients
    assert (row.client, row.server, row.behind, row.furthest[0].state) == (3, new.endpoint, 5, "catching up")
    assert (one.locks[0].lock, one.locks[0].winner, one.pairs[0].conflicts) == (-7, None, 2)
    assert (one.waiting[0].holder, one.waiting[0].clients) == (3, (4, 5))
    assert one.latency == Latency((0.5, 1.0), (3, 4), 4)
    assert one.appends == {1: (4, 2.0)}
    assert one.refused_replicas == (RefusedReplica(1, "a:1", "a fork"),)
    assert one.not_open == (NotOpen(2, "fault", "why"),)
    assert new.parts == [CLIENTS | LOCKS | LATENCY | REPLICAS | NOT_OPEN]


def test_a_reader_leaves_out_parts_and_members_that_it_does_not_know_and_lacks_those_that_are_not_there() -> (
    None
):
    """An older tool and a newer server, and the other way round."""
    without = {name: part for name, part in REPORT.items() if name != "not_open"}
    older = parse_report(1, SERVER, json.dumps(without))
    assert (older.problem, older.not_open) == ("", ())
    assert older.refused_replicas == (RefusedReplica(1, "a:1", "a fork"),)
    row = {"partition": 2, "state": "a state to come", "reason": "why", "since": 5}
    newer = {**REPORT, "format": 2, "to_come": [1], "not_open": {"rows": [row], "more": {}}}
    assert parse_report(1, SERVER, json.dumps(newer)).not_open == (NotOpen(2, "a state to come", "why"),)
    assert str(NotOpen(2, "starting", "")) == "starting"
    assert str(NotOpen(2, "fault", "why")) == "fault: why"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        "[" * 100_000,
        json.dumps({"clients": {"rows": [{**CLIENT, "address": 7}, {"client": 1}, 7]}, "locks": []}),
        json.dumps(
            {"replicas": {"refused": [7, {"partition": 1, "node": 2, "reason": ""}, {"node": "a:1"}]}}
        ),
        json.dumps({"replicas": [{"partition": 1, "node": "a:1", "reason": "a fork"}]}),
        json.dumps({"not_open": [{"partition": 1, "state": "fault", "reason": "why"}]}),
        json.dumps({"not_open": {"rows": {"1": "fault"}}}),
        json.dumps({"not_open": {"rows": [7, {}, {"partition": 1, "state": "fault", "reason": None}]}}),
        json.dumps({"not_open": {"rows": [{"partition": "1", "state": 3, "reason": "why"}]}}),
        json.dumps({"locks": {"rows": [{**LOCK, "lock": None}], "pairs": 3, "waiting": [{}]}}),
        json.dumps(
            {"latency": {"bounds_seconds": [1], "at_most": [], "count": 1, "partitions": {"x": 1, "1": [1]}}}
        ),
    ],
)
def test_what_cannot_be_read_is_left_out(text: str) -> None:
    found = parse_report(1, SERVER, text)
    assert (found.clients, found.locks, found.pairs, found.waiting) == ((), (), (), ())
    assert (found.latency, found.appends, found.refused_replicas, found.not_open) == (None, {}, (), ())


HUGE = "9" * 400
BEYOND = [
    HUGE,
    f"-{HUGE}",
    "1e400",
    "1e300",
    str(1 << 63),
    str(-(1 << 63) - 1),
    "NaN",
    "Infinity",
    "-Infinity",
]


@pytest.mark.parametrize("number", BEYOND)
@pytest.mark.parametrize(
    "text",
    [
        '{"latency": {"bounds_seconds": [1], "at_most": [N], "count": 1, "partitions": {}}}',
        '{"latency": {"bounds_seconds": [N], "at_most": [1], "count": 1, "partitions": {}}}',
        '{"latency": {"bounds_seconds": [1], "at_most": [1], "count": N, "partitions": {}}}',
        '{"latency": {"partitions": {"0": [1, N]}}}',
        '{"locks": {"refused": N}}',
        '{"load": {"measured_seconds": N}}',
    ],
)
def test_a_number_beyond_64_bits_makes_a_server_report_unreadable(text: str, number: str) -> None:
    found = parse_report(1, SERVER, text.replace("N", number))
    assert found.problem.startswith("its report cannot be read: ")
    assert (found.latency, found.appends, found.refused, found.load) == (None, {}, None, None)


@pytest.mark.parametrize("name", [HUGE, "9" * 5000])
def test_a_partition_number_beyond_64_bits_makes_a_server_report_unreadable(name: str) -> None:
    rates = {name: [[1, 1, 1]] * 3}
    for found in (
        parse_report(1, SERVER, json.dumps({"latency": {"partitions": {name: [1, 1.0]}}})),
        parse_report(
            1, SERVER, json.dumps({"load": {"measured_seconds": 1, "cpu": [1, 1, 1], "partitions": rates}})
        ),
    ):
        assert found.problem.startswith("its report cannot be read: ")
        assert (found.appends, found.load) == ({}, None)


@pytest.mark.parametrize("number", BEYOND)
@pytest.mark.parametrize(
    "text",
    [
        '{"partitions": {"0": [5, N, 1, 5, 1, 1, 10, 0]}, "gone": [], "disk": {}}',
        '{"partitions": {"0": [5, 1, 1, 5, 1, N, 10, 0]}, "gone": [], "disk": {}}',
        '{"partitions": {"N": null}, "gone": [], "disk": {}}',
        '{"partitions": {}, "gone": [N], "disk": {}}',
        '{"partitions": {}, "gone": [], "disk": {"log-growth-bytes-per-day": N}}',
        '{"partitions": {}, "gone": [], "disk": {"disk-size-bytes": N}}',
    ],
)
def test_a_number_beyond_64_bits_makes_a_node_report_unreadable(text: str, number: str) -> None:
    with pytest.raises(AdminError, match=r"^storage node server-1:7: its report cannot be read: "):
        node_state.parse_report(SERVER, text.replace("N", number))


def test_the_largest_numbers_of_64_bits_are_read() -> None:
    most, least = (1 << 63) - 1, -(1 << 63)
    text = json.dumps({"partitions": {"0": [5, least, 1, 5, 1, most, 10, 0]}, "gone": [], "disk": {}})
    (one,) = node_state.parse_report(SERVER, text).partitions
    assert (one.low_water_mark, one.max_transaction_id) == (least, most)


class OlderNode:
    """A storage node that answers with metrics."""

    endpoint, reports = SERVER, False

    def __init__(self, growth: object, mark: int) -> None:
        figures = {f"partition-0.{name}": 1 for name in ("flags", "session-id", "local-low-water-mark")}
        figures |= {"partition-0.low-water-mark": mark, "disk-full": 0}
        gauges: dict[str, object] = {f"waltz-storage.{name}": {"value": one} for name, one in figures.items()}
        gauges["waltz-storage.waltz-storage-partition-ids"] = {"value": [0]}
        gauges["waltz-storage.log-growth-bytes-per-day"] = {"value": growth}
        self._gauges = gauges

    async def metrics(self) -> dict[str, object]:
        return {"gauges": self._gauges}

    async def partition_status(self) -> dict[int, bool]:
        return {0: True}


@pytest.mark.parametrize(
    ("growth", "mark"), [(10**400, 1), (1e300, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 10**400)]
)
async def test_a_number_beyond_64_bits_makes_metrics_unreadable(growth: object, mark: int) -> None:
    with pytest.raises(AdminError):
        await node_state.read_state(OlderNode(growth, mark))  # type: ignore[arg-type]
    assert (await node_state.read_state(OlderNode(1.0, 1))).disk is not None  # type: ignore[arg-type]


def test_quantiles_are_those_of_what_came_between() -> None:
    before = Latency((0.001, 0.002, 0.004), (100, 100, 100), 100)
    after = Latency((0.001, 0.002, 0.004), (100, 150, 200), 200)
    found = after.since(before)
    assert (found.at_most, found.count) == ((0, 50, 100), 100)
    assert found.quantile(0.5) == pytest.approx(0.002)
    assert found.quantile(0.75) == pytest.approx(0.003)
    assert found.quantile(0.25) == pytest.approx(0.0015)
    assert after.since(None) is after
    assert before.since(after) is before, "the counts began anew: a server was started again"
    assert after.since(Latency((1.0,), (1,), 1)) is after
    assert Latency((0.001,), (0,), 0).quantile(0.5) is None
    assert Latency((0.001,), (0,), 10).quantile(0.5) == 0.001, (
        "all of them took longer than the highest bound"
    )


def test_histograms_of_servers_are_added() -> None:
    one, two = Latency((1.0, 2.0), (1, 2), 2), Latency((1.0, 2.0), (3, 3), 4)
    assert added([one, two]) == Latency((1.0, 2.0), (4, 5), 6)
    assert added([]) is None
    assert added([one, Latency((9.0,), (1,), 1)]) == one
