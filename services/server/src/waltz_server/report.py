"""What a server reports to tools about its clients, contended locks, latency, load, the replicas that it
refuses and the partitions that are not open: the message *server report* (docs/protocol.md), as JSON text.

Everything in it is bounded by the names below, whatever the number of clients and partitions, and so is the
work: the partitions are gone through a slice per turn of the loop, everybody who asks meanwhile gets the same
report, and after it the desk rests `REST` times as long as it worked, `MIN_REST_SECONDS` at least. It holds
ids, addresses, marks, hashes of locks and reasons: no payload, no header, no name of a lock.

Owner of the state here: the loop, by the task `run`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from heapq import nlargest
from typing import Any

from waltz_cluster.quorum import id_ranges
from waltz_protocol.codec import CLIENT
from waltz_protocol.messages.client import ServerReportRequest, ServerReportResponse
from waltz_protocol.types import ReqId
from waltz_runtime.instruments import HISTOGRAM_BOUNDS, Rates
from waltz_server.partition.client import Client
from waltz_server.partition.owned_partition import Partition
from waltz_server.registry import PartitionRegistry
from waltz_server.store.api import ReplicaPhase, StoreState

FORMAT = 1
CLIENTS, LOCKS, LATENCY, LOAD, REPLICAS, NOT_OPEN = 1, 2, 4, 8, 16, 32
ALL_PARTS = CLIENTS | LOCKS | LATENCY | LOAD | REPLICAS | NOT_OPEN
ALL_PARTITIONS = -1
"""In the request id of a question, in place of a partition."""
MAX_CLIENTS = 200
"""Connections that are listed, those furthest behind first; the rest are counted."""
MAX_FURTHEST = 8
"""Partitions of one connection that are listed with their positions, those furthest behind first."""
MAX_RANGES_CHARACTERS = 200
MAX_LOCKS = 100
"""Locks, pairs and lines of the whole server, each."""
MAX_REFUSED = 1000
"""Replicas that are listed, those of the lowest partitions first; the rest are counted."""
MAX_NOT_OPEN = 1000
"""Partitions that are listed with their reasons, those in fault first; the rest are counted."""
MAX_REASON_CHARACTERS = 1000
MAX_ASKING = 1000
_TOOLS = (-1, 0)
"""Client ids of tools, and of a connection that has sent nothing."""
UNITS_PER_TURN = 500
"""One is what a feed costs, a microsecond or two."""
REST = 19
"""So reports take a twentieth of the loop at most."""
MIN_REST_SECONDS = 0.5

Report = dict[str, Any]


class ReportDesk:
    """See the module. `ask` is called by connections, `run` is the owner's task."""

    def __init__(self, registry: PartitionRegistry, cpu: Rates) -> None:
        """`cpu`: what the process uses of the processor, milliseconds per second."""
        self._registry = registry
        self._cpu = cpu
        self._asking: dict[Client, tuple[ReqId, int]] = {}
        self._wanted = asyncio.Event()

    def ask(self, client: Client, message: ServerReportRequest) -> None:
        """Answer with the next report. A client asks once at a time."""
        if client in self._asking or len(self._asking) >= MAX_ASKING:
            client.close("too many reports are asked for")
            return
        self._asking[client] = (message.req_id, message.parts & ALL_PARTS)
        self._wanted.set()

    async def run(self) -> None:
        """Answer, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            asking, self._asking = self._asking, {}
            asking = {client: one for client, one in asking.items() if not client.closed}
            texts: dict[tuple[int, int], str] = {}
            worked = 0.0
            for client, (req_id, parts) in asking.items():
                key = parts, req_id.partition_id
                if key not in texts:
                    started = loop.time()
                    made = await make_report(self._registry, parts, req_id.partition_id, self._cpu)
                    texts[key] = json.dumps(made, separators=(",", ":"))
                    worked += loop.time() - started
                client.send(CLIENT.encode(ServerReportResponse(req_id, texts[key]), client.version))
            await asyncio.sleep(max(MIN_REST_SECONDS, REST * worked))


async def make_report(
    registry: PartitionRegistry, parts: int, partition: int = ALL_PARTITIONS, cpu: Rates | None = None
) -> Report:
    """The parts that were asked for, of one partition or of all; the loop turns in between."""
    chosen = [one for number, one in registry.partitions.items() if partition in (number, ALL_PARTITIONS)]
    report: Report = {"format": FORMAT}
    if parts & CLIENTS:
        report["clients"] = await _clients(registry, chosen, partition == ALL_PARTITIONS)
    if parts & LOCKS:
        report["locks"] = await _locks(chosen)
    if parts & LATENCY:
        report["latency"] = await _latency(chosen)
    if parts & LOAD and cpu is not None:
        report["load"] = await _load(chosen, cpu)
    if parts & REPLICAS:
        report["replicas"] = await _replicas(chosen)
    if parts & NOT_OPEN:
        report["not_open"] = await _not_open(registry, partition)
    return report


class _Pace:
    """Turns of the loop in between: one for each `UNITS_PER_TURN` of work."""

    def __init__(self) -> None:
        self._spent = 0

    async def spend(self, units: int) -> None:
        """So much was done."""
        self._spent += units
        if self._spent >= UNITS_PER_TURN:
            self._spent = 0
            await asyncio.sleep(0)


async def _clients(registry: PartitionRegistry, chosen: Sequence[Partition], everybody: bool) -> Report:
    """Who follows which partition, how far behind, and how much waits for it. `everybody`: those too that
    follow none."""
    furthest: dict[Client, list[tuple[int, int, int, str]]] = {}
    pace = _Pace()
    for partition in chosen:
        mark = partition.high_water_mark
        if mark is None or partition.closed:
            continue
        followers = list(partition.followers())
        for client, position, asked in followers:
            behind = mark - position
            state = _state(client, behind, asked)
            furthest.setdefault(client, []).append((behind, partition.partition_id, position, state))
        await pace.spend(1 + len(followers))
    rows = []
    for one in registry.connections():
        found = furthest.get(one, [])
        if not found and (one.client_id in _TOOLS or not everybody):
            continue
        mounted = [number for number in one.mounted() if number in registry.partitions]
        rows.append(
            {
                "client": one.client_id,
                "address": one.peer,
                "version": one.version,
                "unsent_bytes": one.unsent_bytes,
                "mounted": len(mounted),
                "partitions": _short(id_ranges(mounted), MAX_RANGES_CHARACTERS),
                "following": len(found),
                "behind": sum(behind for behind, *_ in found),
                "furthest": [
                    {"partition": number, "sent": position, "behind": behind, "state": state}
                    for behind, number, position, state in nlargest(MAX_FURTHEST, found)
                ],
            }
        )
        await pace.spend(10)
    kept = nlargest(MAX_CLIENTS, rows, key=lambda row: (row["behind"], row["unsent_bytes"], row["client"]))
    return {"connections": registry.connection_count, "left_out": len(rows) - len(kept), "rows": kept}


def _state(client: Client, behind: int, asked: bool) -> str:
    """In a word that tools show: why a client is where it is."""
    if not asked:
        return "asks for no more"
    if not behind:
        return "up to date"
    return "catching up" if client.writable else "does not read"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


async def _locks(chosen: Sequence[Partition]) -> Report:
    """The most contended locks and pairs, and who waits for whom."""
    refused = 0
    rows: list[Report] = []
    pairs: list[Report] = []
    waiting: list[Report] = []
    pace = _Pace()
    for partition in chosen:
        number, contention = partition.partition_id, partition.contention
        refused += contention.refused_appends
        for lock, one in contention.locks().items():
            rows.append(
                {
                    "partition": number,
                    "lock": lock,
                    "conflicts": one.conflicts,
                    "waits": one.waits,
                    "over": one.over,
                    "transaction": one.transaction,
                    "winner": one.winner,
                    "loser": one.loser,
                }
            )
        for (lock, winner, loser), counted in contention.pairs().items():
            pairs.append(
                {
                    "partition": number,
                    "lock": lock,
                    "winner": winner,
                    "loser": loser,
                    "conflicts": counted.conflicts,
                    "over": counted.over,
                }
            )
        for line in contention.waiting(MAX_LOCKS):
            waiting.append(
                {
                    "partition": number,
                    "lock": line.lock,
                    "holder": line.holder,
                    "clients": list(line.clients),
                    "count": line.count,
                }
            )
        rows = nlargest(MAX_LOCKS, rows, key=lambda row: row["conflicts"] + row["waits"])
        pairs = nlargest(MAX_LOCKS, pairs, key=lambda row: row["conflicts"])
        waiting = nlargest(MAX_LOCKS, waiting, key=lambda row: row["count"])
        await pace.spend(1 + 4 * len(contention.locks()))
    return {"refused": refused, "rows": rows, "pairs": pairs, "waiting": waiting}


async def _latency(chosen: Sequence[Partition]) -> Report:
    """From the arrival of an append to its commit: how many took at most each of the bounds, of the server;
    and the count and the sum of each partition. All of them only grow while the server has the partitions."""
    total = [0] * len(HISTOGRAM_BOUNDS)
    count, partitions = 0, {}
    pace = _Pace()
    for partition in chosen:
        timer = partition.response_latency
        if timer.count:
            count += timer.count
            total = [one + more for one, more in zip(total, timer.histogram(), strict=True)]
            partitions[str(partition.partition_id)] = [timer.count, timer.sum_seconds]
            await pace.spend(UNITS_PER_TURN // 20)
    return {
        "bounds_seconds": list(HISTOGRAM_BOUNDS),
        "count": count,
        "at_most": total,
        "partitions": partitions,
    }


async def _load(chosen: Sequence[Partition], cpu: Rates) -> Report:
    """Averages over 1, 5 and 15 minutes: of the processor, in parts of a core, and for each partition where
    anything happens appends, bytes and transactions sent to clients, each per second. `measured_seconds`:
    since when the server has all of these partitions; an average over more than that is not one yet."""
    now = asyncio.get_running_loop().time()
    pace = _Pace()
    since, partitions = cpu.since, {}
    for partition in chosen:
        since = max(since, partition.causes[0].rates.since)
        rates = []
        for meter in partition.causes:
            meter.rates.tick(now, meter.count)
            rates.append(_averages(meter.rates))
        if any(map(any, rates)):
            partitions[str(partition.partition_id)] = rates
        await pace.spend(UNITS_PER_TURN // 20)
    return {
        "measured_seconds": round(max(now - since, 0.0), 1),
        "cpu": [one / 1000 for one in _averages(cpu)],
        "partitions": partitions,
    }


async def _replicas(chosen: Sequence[Partition]) -> Report:
    """Which replicas the present session of their partition refuses for good, and why; how others are is seen
    from outside."""
    rows: list[Report] = []
    pace = _Pace()
    for partition in sorted(chosen, key=lambda one: one.partition_id):
        statuses = [] if partition.closed else partition.store.replicas
        rows += [
            {"partition": partition.partition_id, "node": one.connect_string, "reason": one.reason}
            for one in statuses
            if one.state is ReplicaPhase.REFUSED
        ]
        await pace.spend(1 + 2 * len(statuses))
    return {"left_out": max(0, len(rows) - MAX_REFUSED), "refused": rows[:MAX_REFUSED]}


async def _not_open(registry: PartitionRegistry, asked: int) -> Report:
    """State and reason of each partition that takes no writes, those of /health: what comes before its first
    colon is the state. A partition that is about to begin anew is here too, which `chosen` lacks."""
    rows: list[Report] = []
    pace = _Pace()
    for number in registry.owned_ids() if asked == ALL_PARTITIONS else [asked]:
        state, _, reason = registry.why_unhealthy(number).partition(": ")
        if state:
            one_line = _short(" ".join(reason.split()), MAX_REASON_CHARACTERS)
            rows.append({"partition": number, "state": state, "reason": one_line})
        await pace.spend(3)
    rows.sort(key=lambda row: (row["state"] != StoreState.FAULT.value, row["partition"]))
    return {"left_out": max(0, len(rows) - MAX_NOT_OPEN), "rows": rows[:MAX_NOT_OPEN]}


def _averages(rates: Rates) -> list[float]:
    return [round(rate, 3) for rate in (rates.m1, rates.m5, rates.m15)]
