"""Holds what the load processes say against the log. No sockets, no clock: journals and records in,
violations out.

Rules: acknowledged ⇒ in the log exactly once, at its id; failed ⇒ not in the log; nobody's transactions ⇒ not
in the log; ids dense; one id, one transaction, for every reader and forever; what a transaction claims to
have read under its locks is true at its place; what was sent in a pipeline is in the order of sending;
databases are what the log says.
"""

from dataclasses import dataclass, field

from tests.integration.nemesis.history import Delivery, History, Place
from tests.integration.nemesis.load.journal import digest
from tests.integration.nemesis.load.payload import ACCOUNTS, OPENING_BALANCE, Payload, Replica, decode
from tests.integration.nemesis.load.readers import Row


@dataclass
class _Partition:
    """What was read of one partition."""

    digests: list[str] = field(default_factory=list)
    row: Row = field(default_factory=Row)


class LogReading:
    """The log, read in order, checked as it is read. `violations` are lines for people, with the place."""

    def __init__(self, partitions: int) -> None:
        self.violations: list[str] = []
        self.places: dict[str, Place] = {}
        self._partitions = [_Partition() for _ in range(partitions)]
        self._streams: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return sum(len(partition.digests) for partition in self._partitions)

    def marks(self) -> dict[int, int]:
        """Last id read, per partition."""
        return {number: len(each.digests) - 1 for number, each in enumerate(self._partitions)}

    def fingerprint(self) -> list[list[str]]:
        """Digests of everything, to compare two readings."""
        return [partition.digests for partition in self._partitions]

    def digest_at(self, place: Place) -> str | None:
        digests = self._partitions[place[0]].digests
        return digests[place[1]] if place[1] < len(digests) else None

    def add(self, partition: int, transaction_id: int, header: int, data: bytes) -> None:
        """The next transaction of a partition."""
        known = self._partitions[partition]
        if transaction_id != len(known.digests):
            self._wrong(
                "ids not dense", partition, transaction_id, f"where {len(known.digests)} was expected"
            )
            return
        known.digests.append(digest(header, data))
        try:
            payload = decode(data)
        except (ValueError, KeyError):
            self._wrong("not written by us", partition, transaction_id, repr(data[:80]))
            return
        if payload.name in self.places:
            first = self.places[payload.name]
            self._wrong("in the log twice", partition, transaction_id, f"{payload.name}, first at {first}")
        self.places[payload.name] = (partition, transaction_id)
        self._check_claim(partition, transaction_id, known.row.replica, payload)
        known.row.apply(transaction_id, header, data)

    def row_at(self, partition: int) -> Row:
        """What a database holds that has applied everything read here."""
        return self._partitions[partition].row

    def _check_claim(self, partition: int, transaction_id: int, replica: Replica, payload: Payload) -> None:
        body = payload.body
        claimed: object = None
        true: object = None
        if payload.kind == "transfer":
            claimed = body["read"]
            true = [replica.balances[body["from"]], replica.balances[body["to"]]]
        elif payload.kind == "audit":
            claimed, true = body["balances"], replica.balances
            if sum(body["balances"]) != ACCOUNTS * OPENING_BALANCE:
                self._wrong("bank total", partition, transaction_id, f"{sum(body['balances'])}")
        elif payload.kind == "count":
            claimed, true = body["counted"], replica.counts[body["counter"]]
        elif payload.kind == "blind":
            stream = (body["stream"], partition)
            if body["number"] <= self._streams.get(stream, -1):
                self._wrong("pipeline out of order", partition, transaction_id, payload.name)
            self._streams[stream] = body["number"]
        if claimed != true:
            self._wrong(
                "not serializable",
                partition,
                transaction_id,
                f"{payload.name} ({payload.kind}) read {claimed}, the log says {true}",
            )

    def _wrong(self, rule: str, partition: int, transaction_id: int, text: str) -> None:
        self.violations.append(f"{rule}: transaction {transaction_id} of partition {partition}: {text}")


class Checker:
    """One log reading and the history it is held against, over many looks."""

    def __init__(self, history: History, log: LogReading) -> None:
        self.history = history
        self.log = log
        self._due: list[tuple[str, Place]] = []
        self._checked_acks = 0
        self._expected: dict[tuple[str, int], int] = {}
        self._early: list[Delivery] = []

    def before_reading(self) -> None:
        """What is acknowledged by now must be in the log that is read next."""
        self.history.update()
        self._due = list(self.history.acknowledged.items())[self._checked_acks :]
        self._checked_acks = len(self.history.acknowledged)

    def after_reading(self) -> list[str]:
        """New violations."""
        self.history.update()
        found = self.log.violations
        self.log.violations = []
        found += self._check_outcomes()
        found += self._check_deliveries()
        found += [f"in a client: {bug}" for bug in self.history.bugs]
        self.history.bugs = []
        return found

    def at_the_end(self) -> list[str]:
        """Violations that are none before everybody has stopped and the log was read to its end."""
        return [
            f"fork: {each.stream} was given {each.place}, which the log does not have" for each in self._early
        ]

    def _check_outcomes(self) -> list[str]:
        places = self.log.places
        found = [
            f"lost: {name} was acknowledged at {place}, the log has it at {places.get(name)}"
            for name, place in self._due
            if places.get(name) != place
        ]
        self._due = []
        history = self.history
        found += [
            f"failed but present: {name} ({history.failed[name]}) is at {places[name]}"
            for name in history.failed.keys() & places.keys()
        ]
        found += [f"never written: {name} is at {places[name]}" for name in places.keys() - history.invoked]
        return found

    def _check_deliveries(self) -> list[str]:
        found: list[str] = []
        deliveries, self._early = [*self._early, *self.history.take_deliveries()], []
        for each in deliveries:
            partition, transaction_id = each.place
            stream = (each.stream, partition)
            true = self.log.digest_at(each.place)
            if true is None:
                self._early.append(each)  # newer than what was read of the log: for the next look
                continue
            expected = self._expected.get(stream, 0)
            if transaction_id != expected:
                found.append(f"feed out of order: {each.stream}: {each.place} where {expected} was expected")
            if true != each.digest:
                found.append(f"fork: {each.stream} was given another transaction at {each.place}")
            self._expected[stream] = transaction_id + 1
        return found
