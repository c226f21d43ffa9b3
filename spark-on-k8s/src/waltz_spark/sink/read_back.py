"""Reading back: which transactions of a stretch of the log belong to a task.

A transaction belongs to the task when the newest claim before it that names its client is a claim of the task
in the same batch. Pure: it is given headers and payloads and returns which payloads it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from waltz_spark.sink.task_claims import Claim, TaskKey


@dataclass(frozen=True, slots=True)
class Header:
    """A transaction without its payload."""

    transaction_id: int
    client_id: int
    header: int


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """A claim of the same place (query and Spark partition), of any batch."""

    transaction_id: int
    claim: Claim


@dataclass(frozen=True, slots=True)
class RowSeen:
    """A row of the task, written by this attempt or another one."""

    transaction_id: int
    client_id: int
    fingerprint: bytes


Sighting = ClaimSeen | RowSeen


class Survey:
    """Walks a stretch of the log in order. `owners`: clients whose transactions belong to the task at the
    start of the stretch."""

    def __init__(self, key: TaskKey, owners: Iterable[int], claim_header: int) -> None:
        self._key = key
        self._claim_header = claim_header
        self.owners = set(owners)

    def may_be_claim(self, header: Header) -> bool:
        """Whether the payload is needed to know."""
        return header.header == self._claim_header

    def walk(
        self, headers: Iterable[Header], payloads: Mapping[int, bytes]
    ) -> tuple[list[ClaimSeen], list[Header]]:
        """Claims of the place, and the transactions that are rows of the task. `payloads`: by transaction
        id, those of all that `may_be_claim`."""
        claims: list[ClaimSeen] = []
        rows: list[Header] = []
        for header in headers:
            claim = self._claim(header, payloads)
            if claim is None:
                if header.client_id in self.owners:
                    rows.append(header)
                continue
            if claim.key == self._key:
                self.owners.add(claim.client_id)
            else:
                self.owners.discard(claim.client_id)
            if claim.key.same_place(self._key):
                claims.append(ClaimSeen(header.transaction_id, claim))
        return claims, rows

    def _claim(self, header: Header, payloads: Mapping[int, bytes]) -> Claim | None:
        """The claim in a transaction. One that names another client than its writer is a copy, out of another
        log or place."""
        if not self.may_be_claim(header):
            return None
        claim = Claim.decode(payloads[header.transaction_id])
        return claim if claim is not None and claim.client_id == header.client_id else None
