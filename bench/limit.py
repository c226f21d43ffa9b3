"""The yardstick: the bytes of an append through a bare pipeline, as fast as Python on uvloop carries them.

    client ──APPEND_REQUEST──► relay ──Append──► 3 disk processes: write, fdatasync
           ◄──FEED_DATA──────        ◄──Success──      (answer at 2 of 3)

Every role is a process of its own. Frames have the sizes of the real protocols (a payload of 512 B makes an
APPEND_REQUEST of 568 B, a record of 548 B in a storage Append frame, a FEED_DATA of 36 B); TLS is on or off
alike. The relay cuts the record out of each request, sends what one socket read brought as one Append per
partition to all three, and answers a transaction when two have synced it. A disk process appends the body of
each frame to the file of its partition and syncs each file once per turn of its loop. With `--journal` it
has one file for all partitions, filled with zeros once and written in turn, and syncs it once per turn: what
a storage node with a journal is compared with. Nothing else happens:
no locks, no transaction ids, no checksum checks, no indexes, no sessions, no recovery. What Waltz does on top
of this is what the ratio "ours / limit" shows.

The load is a window: `in_flight` transactions are outstanding, an answer lets the next one go.

    python -m bench.limit [--tls] [--journal] [--in-flight 2000] [--seconds 5] [--payload 512]
                          [--sync inline|thread]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import ssl
import struct
import sys
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import uvloop

from bench.latency import percentiles_ms
from bench.limit_disk import DiskJournal, DiskProtocol
from bench.limit_frames import (
    CHECKSUM,
    FEED,
    LENGTH,
    RECORD_PREFIX,
    REQ_ID,
    REQ_ID_AT,
    STORAGE_HEAD,
    TAIL_AT,
    Framed,
)
from bench.processes import Child, CpuWatch, start_role
from bench.tls import bench_certificate
from waltz_testkit.ports import free_ports

DISKS = 3

Parts = list[bytes | bytearray]
_P = TypeVar("_P", bound=asyncio.BaseProtocol)


class RelayToDisk(Framed):
    """The relay's connection to one disk process: counts its answers."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self._relay = relay
        self.synced = 0

    def frames(self, buffer: bytearray, bounds: list[tuple[int, int]]) -> None:
        self.synced += len(bounds)
        self._relay.disk_answered()


class Relay:
    """Batches on their way: one per socket read of the client, answered in order at 2 of 3."""

    def __init__(self) -> None:
        self.disks: list[RelayToDisk] = []
        self._batches: deque[tuple[RelayFromClient, bytes]] = deque()
        self._frames: list[bytes] = []
        self._sent = 0
        self._answered = 0

    def forward(self, client: RelayFromClient, partition: int, records: Parts, answers: list[bytes]) -> None:
        body = b"".join(records)
        head = STORAGE_HEAD.pack(0x53, 0, 26 + len(body), 6, 1, self._sent, partition, len(answers))
        self._sent += 1
        self._batches.append((client, b"".join(answers)))
        self._frames += (head, body, b"\x00")

    def flush(self) -> None:
        """Send what one socket read of a client brought."""
        frames = b"".join(self._frames)
        self._frames.clear()
        for disk in self.disks:
            disk.transport.write(frames)

    def disk_answered(self) -> None:
        committed = sorted(disk.synced for disk in self.disks)[1]
        due = committed - self._answered
        if due <= 0:
            return
        self._answered = committed
        batches = self._batches
        if due == 1:
            client, answer = batches.popleft()
            client.transport.write(answer)
            return
        answers: dict[RelayFromClient, list[bytes]] = {}
        for _ in range(due):
            client, answer = batches.popleft()
            answers.setdefault(client, []).append(answer)
        for client, parts in answers.items():
            client.transport.write(b"".join(parts))


class RelayFromClient(Framed):
    """One connection from a client: cuts the records out of the requests of one socket read, by partition."""

    def __init__(self, relay: Relay, checked: bool) -> None:
        super().__init__()
        self._relay = relay
        self._checked = checked

    def frames(self, buffer: bytearray, bounds: list[tuple[int, int]]) -> None:
        by_partition: dict[int, tuple[Parts, list[bytes]]] = {}
        pack_answer, partition_of = FEED.pack, LENGTH.unpack_from
        for start, after in bounds:
            partition = partition_of(buffer, start + REQ_ID_AT + 8)[0]
            pair = by_partition.get(partition)
            if pair is None:
                pair = by_partition[partition] = ([], [])
            req_id = buffer[start + REQ_ID_AT : start + 24]
            tail = buffer[start + TAIL_AT : after]
            if (
                self._checked
                and zlib.crc32(memoryview(tail)[8:-4]) != CHECKSUM.unpack_from(tail, len(tail) - 4)[0]
            ):
                raise ValueError("a request does not match its checksum")
            pair[0].extend((RECORD_PREFIX, req_id, tail))
            pair[1].append(pack_answer(0x4C, 4, 29, 4, req_id, 0, 0))
        for partition, (records, answers) in by_partition.items():
            self._relay.forward(self, partition, records, answers)
        self._relay.flush()


class Client(Framed):
    """Keeps `in_flight` transactions outstanding and notes how long each took."""

    def __init__(self, in_flight: int, payload_bytes: int, partitions: int) -> None:
        super().__init__()
        self._in_flight = in_flight
        self._partitions = partitions
        data = os.urandom(payload_bytes)
        self._tail = struct.pack(">ii", 0, len(data)) + data + CHECKSUM.pack(zlib.crc32(data))
        self._body_bytes = 37 + len(self._tail)
        self._sequence = 0
        self._outstanding: deque[list[float]] = deque()
        self.latencies: list[tuple[float, int]] = []
        self.committed = 0
        self.draining = False
        self.drained = asyncio.Event()

    def start(self) -> None:
        self._send(self._in_flight)

    def _send(self, count: int) -> None:
        pack, req_id, tail = _CLIENT_HEAD.pack, REQ_ID.pack, self._tail
        body_bytes, first, partitions = self._body_bytes, self._sequence, self._partitions
        parts: list[bytes] = []
        for sequence in range(first, first + count):
            parts.append(
                pack(0x4C, 4, body_bytes, 2, req_id(1, 1, sequence % partitions, sequence), 0, 0, 0, 0)
            )
            parts.append(tail)
        self._sequence = (first + count) & 0x3FFFFFFF
        self._outstanding.append([time.perf_counter(), count])
        self.transport.write(b"".join(parts))

    def frames(self, buffer: bytearray, bounds: list[tuple[int, int]]) -> None:
        now = time.perf_counter()
        answered = left = len(bounds)
        while left:
            oldest = self._outstanding[0]
            taken = min(left, int(oldest[1]))
            self.latencies.append((now - oldest[0], taken))
            left -= taken
            oldest[1] -= taken
            if not oldest[1]:
                self._outstanding.popleft()
        self.committed += answered
        if not self.draining:
            self._send(answered)
        elif not self._outstanding:
            self.drained.set()


_CLIENT_HEAD = struct.Struct(">BHIB16sqiii")  # frame header, type, req id, hwm, 3 x no locks


# --- roles as processes -------------------------------------------------------------------------------------


def _contexts(options: argparse.Namespace) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    if not options.tls:
        return None, None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(options.tls_file)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    return server, client


async def _connect(port: int, factory: Callable[[], _P], tls: ssl.SSLContext | None) -> _P:
    _, protocol = await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", port, ssl=tls)
    return protocol


async def _serve(port: int, factory: Callable[[], asyncio.BaseProtocol], tls: ssl.SSLContext | None) -> None:
    """Serve until the parent goes away (its end of our standard input closes)."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(0, gone.set)
    server = await loop.create_server(factory, "127.0.0.1", port, ssl=tls)
    print("ready", flush=True)
    await gone.wait()
    server.close()


async def disk_main(options: argparse.Namespace) -> None:
    """A disk process: `options.port`, `options.file`."""
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
    journal = DiskJournal(f"{options.file}-journal") if options.journal else None
    count = 0 if options.journal else options.files
    files = [os.open(f"{options.file}-{number}", flags, 0o600) for number in range(count)]
    pool = ThreadPoolExecutor(1) if options.sync == "thread" else None
    await _serve(
        options.port, lambda: DiskProtocol(files, journal, pool, options.checked), _contexts(options)[0]
    )


async def relay_main(options: argparse.Namespace) -> None:
    """The relay: `options.port`, and the disk processes' ports in `options.peers`."""
    server_tls, client_tls = _contexts(options)
    relay = Relay()
    for port in options.peers:
        relay.disks.append(await _connect(port, lambda: RelayToDisk(relay), client_tls))
    await _serve(options.port, lambda: RelayFromClient(relay, options.checked), server_tls)


async def client_main(options: argparse.Namespace) -> None:
    """The load: warm up, measure for `options.seconds`, print one JSON line."""
    client = await _connect(
        options.peers[0],
        lambda: Client(options.in_flight, options.payload, options.files),
        _contexts(options)[1],
    )
    watch = CpuWatch(json.loads(options.pids) | {"client": [os.getpid()]})
    client.start()
    await asyncio.sleep(min(1.0, options.seconds / 3))
    client.latencies.clear()
    committed, started = client.committed, time.perf_counter()
    watch.start()
    await asyncio.sleep(options.seconds)
    elapsed = time.perf_counter() - started
    count = client.committed - committed
    cpu = watch.stop()
    p50, p99 = percentiles_ms(client.latencies, (0.5, 0.99))
    print(
        json.dumps(
            {
                "transactions_per_second": count / elapsed,
                "p50_ms": p50,
                "p99_ms": p99,
                "in_flight": options.in_flight,
                "tls": options.tls,
                "payload_bytes": options.payload,
                "cpu_us_per_transaction": {role: s * 1e6 / max(count, 1) for role, s in cpu.items()},
                "cpu_us_per_transaction_total": sum(cpu.values()) * 1e6 / max(count, 1),
            }
        ),
        flush=True,
    )
    client.draining = True
    async with asyncio.timeout(10):
        await client.drained.wait()
    client.transport.close()


# --- the run ------------------------------------------------------------------------------------------------


def run_limit(
    *,
    tls: bool,
    in_flight: int,
    seconds: float,
    payload_bytes: int = 512,
    sync: str = "inline",
    files: int = 1,
    checked: bool = False,
    journal: bool = False,
    directory: Path | None = None,
) -> dict[str, object]:
    """Start all roles, measure, stop them; the client's figures as a dict. `files`: partitions. `journal`:
    all of them in one file of blocks that are there already."""
    with contextlib.ExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="waltz-limit-", dir=directory)))
        certificate = bench_certificate(where) if tls else None
        common = ["--payload", str(payload_bytes), "--in-flight", str(in_flight), "--seconds", str(seconds)]
        common += ["--sync", sync, "--files", str(files)]
        common += ["--checked"] * checked + ["--journal"] * journal
        if certificate is not None:
            common += ["--tls", "--tls-file", str(certificate)]

        def role(name: str, *arguments: str) -> Child:
            child = start_role("bench.limit", ["--role", name, *arguments, *common])
            stack.callback(child.stop)
            return child

        ports = free_ports(DISKS + 1)
        disks = [
            role("disk", "--port", str(port), "--file", str(where / f"log-{port}")) for port in ports[:DISKS]
        ]
        for disk in disks:
            disk.wait_line("ready")
        relay = role("relay", "--port", str(ports[-1]), "--peers", *map(str, ports[:DISKS]))
        relay.wait_line("ready")
        pids = {"disk": [disk.pid for disk in disks], "relay": [relay.pid]}
        client = role("client", "--peers", str(ports[-1]), "--pids", json.dumps(pids))
        result: dict[str, object] = json.loads(client.read_line(seconds + 30))
        return result


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.limit", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tls", action="store_true", help="TLS on every connection")
    parser.add_argument("--in-flight", type=int, default=2000, help="transactions outstanding at any time")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the measurement")
    parser.add_argument("--payload", type=int, default=512, help="bytes of data per transaction")
    parser.add_argument("--sync", choices=("inline", "thread"), default="inline", help="where fdatasync runs")
    parser.add_argument("--files", type=int, default=1, help="partitions, each with a file (default 1)")
    parser.add_argument("--journal", action="store_true", help="one preallocated file for all partitions")
    parser.add_argument("--checked", action="store_true", help="relay and disks compare every checksum")
    parser.add_argument("--directory", type=Path, help="where the disk processes write (default: temporary)")
    internal = parser.add_argument_group("used by the run itself")
    internal.add_argument("--role", choices=("disk", "relay", "client"), help=argparse.SUPPRESS)
    internal.add_argument("--port", type=int, help=argparse.SUPPRESS)
    internal.add_argument("--peers", type=int, nargs="*", help=argparse.SUPPRESS)
    internal.add_argument("--file", help=argparse.SUPPRESS)
    internal.add_argument("--pids", help=argparse.SUPPRESS)
    internal.add_argument("--tls-file", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


ROLES = {"disk": disk_main, "relay": relay_main, "client": client_main}


def main() -> int:
    options = parse_options()
    if options.role:
        uvloop.run(ROLES[options.role](options))
        return 0
    result = run_limit(
        tls=options.tls,
        in_flight=options.in_flight,
        seconds=options.seconds,
        payload_bytes=options.payload,
        sync=options.sync,
        files=options.files,
        checked=options.checked,
        journal=options.journal,
        directory=options.directory,
    )
    cpu = result["cpu_us_per_transaction"]
    roles = ", ".join(f"{role} {us:.1f}" for role, us in cpu.items()) if isinstance(cpu, dict) else ""
    print(
        f"{result['transactions_per_second']:,.0f} transactions/s   p50 {result['p50_ms']:.2f} ms   "
        f"p99 {result['p99_ms']:.2f} ms   CPU {result['cpu_us_per_transaction_total']:.1f} us each ({roles})   "
        f"{options.in_flight} in flight, TLS {'on' if options.tls else 'off'}",
        file=sys.stderr,
    )
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
