"""The demo's checker finds planted faults; its data and measures are what they say."""

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from itertools import islice

import pytest

from flights import __main__ as command
from flights.checker import FlightChecker, Verdict
from flights.data import NO_AIRCRAFT, Flight, FlightPlan, encode_payload, load_flights, make_plan
from flights.faults import Fault
from flights.measures import Measures, latency_bucket, longest_pause_seconds
from flights.report import pauses

Log = list[tuple[int, int, bytes]]
PARTITIONS = 3


@pytest.fixture(scope="module")
def plan() -> FlightPlan:
    return make_plan(load_flights(2_000), PARTITIONS)


def _log(plan: FlightPlan, seed: int = 1) -> Log:
    """A faultless log in some order of commits."""
    order = list(plan.flights)
    random.Random(seed).shuffle(order)
    next_id: Counter[int] = Counter()
    last: dict[tuple[int, str], int] = {}
    log = []
    for flight in order:
        partition = plan.partition(flight)
        previous = None if flight.tailnum is None else last.get((partition, flight.tailnum))
        log.append((partition, next_id[partition], encode_payload(flight, previous)))
        if flight.tailnum is not None:
            last[partition, flight.tailnum] = next_id[partition]
        next_id[partition] += 1
    return log


def _check(plan: FlightPlan, log: Log) -> Verdict:
    checker = FlightChecker(plan.flights)
    for entry in log:
        checker.add(*entry)
    return checker.verdict()


def _kinds(verdict: Verdict) -> set[str]:
    return {finding.split(" (")[0] for finding in verdict.findings}


def _renumbered(log: Log) -> Log:
    counts: Counter[int] = Counter()
    result = []
    for partition, _, data in log:
        result.append((partition, counts[partition], data))
        counts[partition] += 1
    return result


def test_faultless_log_passes(plan: FlightPlan) -> None:
    verdict = _check(plan, _log(plan))
    assert verdict.passed, verdict.findings
    assert verdict.transactions == 2_000
    assert verdict.chained > 500


def test_missing_row_is_found(plan: FlightPlan) -> None:
    log = _log(plan)
    lost = next(index for index, (_, _, data) in enumerate(log) if json.loads(data)["tailnum"] is None)
    verdict = _check(plan, _renumbered(log[:lost] + log[lost + 1 :]))
    assert not verdict.passed
    assert "missing" in _kinds(verdict)


def test_duplicate_row_is_found(plan: FlightPlan) -> None:
    log = _log(plan)
    verdict = _check(plan, _renumbered([*log, log[-1]]))
    assert {"duplicate", "sum of delays"} <= _kinds(verdict)


def test_gap_in_the_ids_is_found(plan: FlightPlan) -> None:
    log = _log(plan)
    partition, transaction_id, data = log[-1]
    assert "gap" in _kinds(_check(plan, [*log[:-1], (partition, transaction_id + 1, data)]))


@pytest.mark.parametrize("named", [None, 0, 10**6])
def test_wrong_previous_flight_is_found(plan: FlightPlan, named: int | None) -> None:
    log = _log(plan)
    index = next(
        index for index, (_, _, data) in enumerate(log) if json.loads(data)["previous"] not in (None, named)
    )
    partition, transaction_id, data = log[index]
    log[index] = (partition, transaction_id, json.dumps({**json.loads(data), "previous": named}).encode())
    assert _kinds(_check(plan, log)) == {"wrong previous"}


def test_two_writers_that_both_held_an_aircraft_are_found(plan: FlightPlan) -> None:
    """What a broken lock would do: both read the same previous flight."""
    log = _log(plan)
    seen: dict[tuple[int, str], int] = {}
    for index, (partition, transaction_id, data) in enumerate(log):
        payload = json.loads(data)
        if payload["tailnum"] is None:
            continue
        key = (partition, payload["tailnum"])
        if (
            payload["previous"] is not None
            and key in seen
            and json.loads(log[seen[key]][2])["previous"] is not None
        ):
            stale = json.loads(log[seen[key]][2])["previous"]
            log[index] = (partition, transaction_id, json.dumps({**payload, "previous": stale}).encode())
            break
        seen[key] = index
    else:
        raise AssertionError("no chain of three in the sample")
    assert _kinds(_check(plan, log)) == {"wrong previous"}


def test_changed_values_are_found_by_row_and_by_sum(plan: FlightPlan) -> None:
    log = _log(plan)
    partition, transaction_id, data = log[5]
    log[5] = (partition, transaction_id, json.dumps({**json.loads(data), "dep_delay": 10_000}).encode())
    assert _kinds(_check(plan, log)) == {"different values", "sum of delays"}


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"row":"x"}'])
def test_foreign_transactions_are_findings_not_crashes(plan: FlightPlan, data: bytes) -> None:
    verdict = _check(plan, [*_log(plan), (99, 0, data)])
    assert not verdict.passed


def test_row_outside_the_file_is_found(plan: FlightPlan) -> None:
    stranger = encode_payload(plan.flights[0]._replace(row_id=2_000), None)
    assert "foreign row" in _kinds(_check(plan, [*_log(plan), (99, 0, stranger)]))


def test_examples_are_bounded_and_counts_are_not(plan: FlightPlan) -> None:
    verdict = _check(plan, [])
    missing = next(finding for finding in verdict.findings if finding.startswith("missing"))
    assert missing.startswith("missing (2,000): ")
    assert missing.count(";") == 2


def test_the_whole_file_has_its_336776_rows() -> None:
    plan = make_plan(load_flights(None), 8)
    assert len(plan.flights) == 336_776
    assert len(plan.partition_of_carrier) == 16
    assert set(plan.partition_of_carrier.values()) == set(range(8))
    assert plan.flights[0] == Flight(0, "UA", 1545, "N14228", "EWR", "IAH", "2013-01-01T10:00:00Z", 2, 11)
    assert plan.header(next(flight for flight in plan.flights if flight.tailnum is None)) == NO_AIRCRAFT


def test_rows_without_aircraft_lock_only_themselves(plan: FlightPlan) -> None:
    lonely = [flight for flight in plan.flights if flight.tailnum is None]
    assert len({plan.lock(flight) for flight in lonely}) == len(lonely) > 1


def test_measures_survive_the_way_between_processes_and_add_up() -> None:
    one = Measures(retries=2, lock_conflicts=1)
    one.commit(3, 100.0, 0.004)
    one.commit(3, 100.5, 0.4)
    other = Measures.from_message(json.loads(json.dumps(one.to_message())))
    assert other == one
    other.merge(one)
    assert (other.committed, other.retries, other.commits[3].total()) == (4, 4, 4)


@pytest.mark.parametrize("break_it", [lambda m: m.update(committed="x"), lambda m: m.update(latencies=3)])
def test_measures_refuse_rubbish(break_it: Callable[[dict[str, object]], None]) -> None:
    message = Measures().to_message()
    break_it(message)
    with pytest.raises(ValueError, match="not a message"):
        Measures.from_message(message)


def test_latency_quantiles_are_within_a_tenth() -> None:
    measures = Measures()
    for milliseconds in range(1, 1_001):
        measures.commit(0, 0.0, milliseconds / 1000)
    assert measures.latency_quantile_ms(0.5) == pytest.approx(500, rel=0.1)
    assert measures.latency_quantile_ms(0.99) == pytest.approx(990, rel=0.1)
    assert latency_bucket(0.0) == 0


def _with_commits(*instants: float) -> Measures:
    measures = Measures()
    for instant in instants:
        measures.commit(0, instant, 0.001)
    return measures


def test_a_pause_belongs_to_the_kill_that_caused_it() -> None:
    faults = [Fault("storage-3", 10.0, 20.0), Fault("server-1", 12.0, 21.0)]
    measures = _with_commits(
        9.0, 9.5, 10.01, 10.3, *(10.5 + step / 10 for step in range(15)), 11.99, 16.0, 16.1
    )
    assert pauses(measures, faults, 0) == pytest.approx((0.51, 0.51))
    assert pauses(measures, faults, 1) == pytest.approx((4.01, 4.01))


def test_a_quiet_partition_is_not_counted_as_waiting() -> None:
    measures = _with_commits(*(step / 100 for step in range(1_000)))
    measures.commit(1, 0.0, 0.001)
    measures.commit(1, 9.9, 0.001)
    assert pauses(measures, [Fault("server-1", 5.0, 6.0)], 0)[1] < 0.05


def test_longest_pause_is_the_one_that_touches_the_window() -> None:
    instants = [*islice((index * 0.01 for index in range(10**6)), 100), 5.0, 5.01, 20.0]
    buckets = Counter(round(instant / 0.01) for instant in instants)
    assert longest_pause_seconds(buckets, 0.9, 6.0) == pytest.approx(14.99)
    assert longest_pause_seconds(buckets, 0.9, 4.0) == pytest.approx(4.01)
    assert longest_pause_seconds(buckets, 0.1, 0.2) == pytest.approx(0.01)
    assert longest_pause_seconds(buckets, 6.0, 6.0) == pytest.approx(14.99)
    assert longest_pause_seconds(buckets, 0.1, 0.99) == pytest.approx(0.01)
    assert longest_pause_seconds([], 0.0, 1.0) == 0.0


@pytest.mark.parametrize(("option", "text"), [("--rows", "0"), ("--in-flight", "-1"), ("--writers", "17")])
def test_figures_that_mean_nothing_are_refused(
    option: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["flights", option, text])
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert f"argument {option}: " in capsys.readouterr().err
