"""The book of committed transactions: what anybody was ever shown as committed, checked at the moment it is
shown."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from tests.sim.checkers.payload import uid_of
from tests.sim.checkers.violation import Violation

ReqIdFields = tuple[int, int, int, int]


class Page:
    """One committed transaction as first seen, and by whom."""

    __slots__ = ("by", "data", "header", "req_id")

    def __init__(self, req_id: ReqIdFields, header: int, data: bytes | None, by: str) -> None:
        self.req_id = req_id
        self.header = header
        self.data = data
        self.by = by


class CommitBook:
    """Committed transactions per partition. `report` gets each violation at once.

    `observe` must be called only with what was shown as committed (feeds, data answers, acknowledgements,
    replicas up to a committed mark); an id that was ever observed keeps its record forever.
    """

    def __init__(self, report: Callable[[Violation], None], now: Callable[[], float] = lambda: 0.0) -> None:
        self._report = report
        self._now = now
        self._rises: dict[int, list[tuple[float, int]]] = {}
        self._pages: dict[int, dict[int, Page]] = {}
        self._by_req_id: dict[tuple[int, int, int], int] = {}
        self._by_uid: dict[int, tuple[int, int]] = {}
        self._marks: dict[int, int] = {}
        self._early: dict[tuple[int, int], list[tuple[bytes, str]]] = {}

    def mark(self, partition: int) -> int:
        """The largest id known to be committed, by anybody; -1 if none."""
        return self._marks.get(partition, -1)

    def known(self, partition: int, transaction_id: int) -> Page | None:
        """What was seen under this id."""
        return self._pages.get(partition, {}).get(transaction_id)

    def raise_mark(self, partition: int, transaction_id: int) -> None:
        """Somebody was informed that everything up to this id is committed."""
        if transaction_id > self.mark(partition):
            self._marks[partition] = transaction_id
            self._rises.setdefault(partition, []).append((self._now(), transaction_id))

    def mark_at(self, partition: int, seconds: float) -> int:
        """What `mark` was at this time."""
        rises = self._rises.get(partition, [])
        index = bisect_right(rises, seconds, key=_when)
        return rises[index - 1][1] if index else -1

    def observe(
        self,
        partition: int,
        transaction_id: int,
        req_id: ReqIdFields,
        header: int,
        data: bytes | None,
        by: str,
    ) -> None:
        """Somebody was shown this transaction as committed. `data` None: the payload was not shown.

        Violations: `fork` (another record under this id), `duplicate_req_id` and `duplicate` (the same
        request or payload under two ids).
        """
        pages = self._pages.setdefault(partition, {})
        page = pages.get(transaction_id)
        if page is not None:
            differs = data is not None and page.data is not None and data != page.data
            if differs or page.req_id != req_id or page.header != header:
                self._fork(partition, transaction_id, page, req_id, header, data, by)
            elif page.data is None and data is not None:
                page.data = data
                self._note_uid(partition, transaction_id, data, by)
            return
        pages[transaction_id] = Page(req_id, header, data, by)
        self.raise_mark(partition, transaction_id)
        client_id, _, partition_id, number = req_id  # whatever its generation, or its content (rule E8)
        other = self._by_req_id.setdefault((client_id, partition_id, number), transaction_id)
        if other != transaction_id:
            self._report(
                Violation(
                    "duplicate_req_id",
                    f"partition {partition}: request {req_id} is at {other} and at {transaction_id} (seen by {by})",
                )
            )
        if data is not None:
            self._note_uid(partition, transaction_id, data, by)
        for early, reader in self._early.pop((partition, transaction_id), ()):
            self.observe(partition, transaction_id, req_id, header, early, reader)

    def observe_data(self, partition: int, transaction_id: int, data: bytes, by: str) -> None:
        """Somebody was shown this payload for this id."""
        page = self.known(partition, transaction_id)
        if page is None:  # the request id comes with a feed, later
            self._early.setdefault((partition, transaction_id), []).append((data, by))
            self.raise_mark(partition, transaction_id)
            return
        self.observe(partition, transaction_id, page.req_id, page.header, data, by)

    def _note_uid(self, partition: int, transaction_id: int, data: bytes, by: str) -> None:
        uid = uid_of(data)
        if uid is None:
            return
        place = self._by_uid.setdefault(uid, (partition, transaction_id))
        if place != (partition, transaction_id):
            self._report(
                Violation(
                    "duplicate",
                    f"append {uid} is at {place} and at {(partition, transaction_id)} (partition, id; seen by {by})",
                )
            )

    def _fork(
        self,
        partition: int,
        transaction_id: int,
        page: Page,
        req_id: ReqIdFields,
        header: int,
        data: bytes | None,
        by: str,
    ) -> None:
        self._report(
            Violation(
                "fork",
                f"partition {partition} transaction {transaction_id}: {page.by} saw request {page.req_id} header "
                f"{page.header} data {page.data!r}, {by} saw request {req_id} header {header} data {data!r}",
            )
        )


def _when(rise: tuple[float, int]) -> float:
    return rise[0]
