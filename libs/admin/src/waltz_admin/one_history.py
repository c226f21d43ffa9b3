"""Do the copies that a way out is made of have one history? (rule A8, ADR 8)

Where no majority took part in the last session, its copies hold what was copied from the others
(`restored_metadata.Doubt`): at the last records that two of them have, their headers are the same. If not, a
disk was put back from a copy and others have continued without it, and whoever listed its session as the last
one would cut what the others have acknowledged. Nothing is written here, and each node is asked in the
session that it is in, which changes nothing on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product

from waltz_admin.copies import NodePartition
from waltz_admin.errors import AdminError, UnreachableError, UnsafeChangeError
from waltz_admin.restored_metadata import Doubt, Rebuilt
from waltz_admin.tree import parse_connect_string
from waltz_cluster.serializers import StoreParams
from waltz_protocol.aio.storage_connection import StorageConnection
from waltz_protocol.aio.tls import TlsSettings, client_context
from waltz_protocol.errors import WaltzProtocolError
from waltz_protocol.types import RecordHeader

COMPARED_RECORDS = 1000
"""So many of the last records that two copies have are compared: an append that was sent again may be in both
logs behind a difference."""
_HEADERS_AT_ONCE = 100
_PARTITIONS_AT_ONCE = 16
_ANSWER_SECONDS = 10.0

Ports = Mapping[str, StorageConnection]


async def check_one_history(params: StoreParams, found: Iterable[Rebuilt], tls: TlsSettings) -> None:
    """UnsafeChangeError, which says what to do, where copies that must hold the same records do not, or do
    not show them."""
    doubted = {one.partition_id: one.doubt for one in found if one.doubt is not None}
    nodes = {node for doubt in doubted.values() for node in (*doubt.later, *doubt.earlier)}
    places = asyncio.Semaphore(_PARTITIONS_AT_ONCE)
    async with AsyncExitStack() as stack:
        ports = {node: await stack.enter_async_context(_port(node, params, tls)) for node in sorted(nodes)}

        async def compared(partition: int, doubt: Doubt) -> str | None:
            async with places:
                return await _why_not(ports, partition, doubt)

        why = await asyncio.gather(*(compared(*one) for one in doubted.items()))
    wrong = dict[int, str]((p, text) for p, text in zip(doubted, why, strict=True) if text)
    if wrong:
        first, *more = wrong
        also = f" (also refused: partitions {','.join(map(str, more))})" if more else ""
        raise UnsafeChangeError(f"partition {first}: {wrong[first]}{also}")


@asynccontextmanager
async def _port(node: str, params: StoreParams, tls: TlsSettings) -> AsyncIterator[StorageConnection]:
    try:
        port = await StorageConnection.open(
            parse_connect_string(node),
            cluster_key=params.cluster_key,
            num_partitions=params.num_partitions,
            tls=client_context(tls),
            request_timeout_seconds=_ANSWER_SECONDS,
        )
    except (WaltzProtocolError, OSError) as error:
        raise UnsafeChangeError(_unreadable(node, error)) from error
    try:
        yield port
    finally:
        port.close()


def _unreadable(node: str, error: Exception) -> str:
    return (
        f"no majority took part in the last session, so the records of those who did are compared with those of the others "
        f"first, and {node} does not show its own: {error}. Nothing was changed. Try again when it shows them: its storage "
        "port has to be open, and the partition available there"
    )


async def _why_not(ports: Ports, partition: int, doubt: Doubt) -> str | None:
    """Why the metadata of the partition must not be written; None when the records are the same."""
    different: dict[tuple[str, str], int] = {}
    for (later, one), (earlier, other) in product(doubt.later.items(), doubt.earlier.items()):
        last = min(_last(one), _last(other))
        first = max(0, last - COMPARED_RECORDS + 1)
        while first <= last and (later, earlier) not in different:
            count = min(_HEADERS_AT_ONCE, last - first + 1)
            try:
                own = await _headers(ports, later, one, first, count)
                theirs = await _headers(ports, earlier, other, first, count)
            except UnreachableError as error:
                return str(error)
            alike = zip(own, theirs, strict=False)
            for mine, its in alike:
                if mine != its:
                    different[later, earlier] = first
                    break
                first += 1
    return _refusal(partition, doubt, different) if different else None


async def _headers(
    ports: Ports, node: str, copy: NodePartition, first: int, count: int
) -> list[RecordHeader]:
    """At least one. UnreachableError, with what a person is to read."""
    session_id = copy.session_id if copy.fence_session_id is None else copy.fence_session_id
    try:
        found = await ports[node].record_header_list(session_id, copy.partition_id, first, count)
        if not found:
            raise AdminError(f"it has no record {first}")
    except (AdminError, WaltzProtocolError) as error:
        raise UnreachableError(_unreadable(node, error)) from error
    return found


def _refusal(partition: int, doubt: Doubt, different: Mapping[tuple[str, str], int]) -> str:
    later = {one for one, _ in different}
    apart = sorted({other for _, other in different})
    reset = [*apart, *(node for node in doubt.earlier if node not in apart)][: doubt.resets]
    left = {*apart} - {*reset}
    rest = f"; reset {_named(left)} in the same way only where it is refused as a fork then" if left else ""
    return (
        f"{_named(later)} completed session {doubt.session_id}, in which no majority took part, with other records than "
        f"{_named(apart)}, at the latest from record {min(different.values())} on: probably a disk was put back from a copy, "
        f"and the others have continued without it. Nothing was changed. To keep the records of {_named(apart)}: "
        f"{_how(later)}, and run this command again if the partition is still a fault. To keep those of {_named(later)} "
        f"instead, and lose what the others have acknowledged since: {_how(reset, f' -p {partition}')}, run this command "
        f"again{rest}"
    )


def _how(nodes: Collection[str], option: str = "") -> str:
    where = "its directory" if len(nodes) == 1 else "the directory of each"
    return f"stop {_named(nodes)}, run `waltz storage restore-reset{option}` on {where}, start again"


def _last(copy: NodePartition) -> int:
    return -1 if copy.max_transaction_id is None else copy.max_transaction_id


def _named(nodes: Collection[str]) -> str:
    return ", ".join(sorted(nodes))
