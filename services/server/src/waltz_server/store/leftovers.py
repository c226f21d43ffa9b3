"""Deciding the appends that an earlier session left over, by what the resolved log holds (A4)."""

from __future__ import annotations

from collections.abc import Sequence

from waltz_protocol.errors import WaltzProtocolError
from waltz_server.store.api import AppendEntry
from waltz_server.store.session import StoreSession
from waltz_server.store.session_context import SessionEnded

_SETTLE_HEADERS = 1000


async def count_committed(session: StoreSession, leftovers: Sequence[AppendEntry], resolved: int) -> int:
    """How many of the leftovers, from the first on, are in the log up to `resolved`, by transaction id and
    ReqId, one by one; the others never will be.

    Raises `SessionEnded` when no replica of the session can give the headers. Cancellation decides nothing.
    """
    committed = 0
    undecided = [entry for entry in leftovers if entry.transaction_id <= resolved]
    while committed < len(undecided):
        first = undecided[committed].transaction_id
        count = min(_SETTLE_HEADERS, len(undecided) - committed)
        found = await _read_req_ids(session, first, count)
        matching = 0
        for entry, req_id in zip(undecided[committed:], found, strict=False):
            if entry.req_id != req_id:
                break
            matching += 1
        committed += matching
        if matching < len(found):
            break
    return committed


async def _read_req_ids(session: StoreSession, first: int, count: int) -> list[bytes]:
    problems: list[str] = []
    for name, replica in list(session.replicas.items()):
        if replica.ended:
            continue
        try:
            headers = await replica.link.record_header_list(
                session.session_id, session.partition_id, first, count
            )
        except WaltzProtocolError as error:
            problems.append(f"{name}: {error}")
            continue
        if headers and all(h.transaction_id == first + i for i, h in enumerate(headers)):
            return [header.req_id.pack() for header in headers[:count]]
        problems.append(f"{name} has no record {first}")
    raise SessionEnded(f"leftover appends cannot be settled: {'; '.join(problems)}")
