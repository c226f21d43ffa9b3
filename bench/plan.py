"""What is measured, how long, and against which target. `FULL` is `make bench`, `QUICK` a smoke run for
CI."""

from __future__ import annotations

from dataclasses import dataclass

from bench.figures import Target, at_least, at_most, tls_name


@dataclass(frozen=True, slots=True)
class WriteMode:
    """A write load: `in_flight` appends outstanding over `partitions` partitions.

    Closed-loop writers are that many coroutines that append one after another; pipelined means one source per
    partition that keeps its window full without waiting for single answers.
    """

    in_flight: int
    partitions: int
    pipelined: bool = False
    locks: int = 0

    @property
    def load(self) -> str:
        """For people: the load with the number of transactions in flight per partition."""
        per_partition = self.in_flight / self.partitions
        if self.pipelined:
            text = f"pipelined, {per_partition:g} in flight in each of {_partitions(self.partitions)}"
        else:
            writers = f"{self.in_flight} writer{'s' if self.in_flight > 1 else ''}"
            text = f"{writers}, {_partitions(self.partitions)}, {per_partition:g} in flight per partition"
        return text + (", 1 write lock" if self.locks == 1 else "")

    @property
    def label(self) -> str:
        """Short, for the picture."""
        text = f"{self.in_flight // self.partitions} x {self.partitions} pipelined" if self.pipelined else ""
        text = text or f"{self.in_flight} writers on {self.partitions}"
        return text + (", locks" if self.locks else "")


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count > 1 else ''}"


WINDOWS = (5, 50, 200, 1000, 5000)
"""Appends in flight per partition: `client.maxConcurrentTransactions` has its default from this measure."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One kind of run."""

    seconds: float
    runs: int
    modes: tuple[WriteMode, ...]
    partitions: int = 8
    payload_bytes: int = 512
    read_at_least: int = 400_000  # transactions in the log before it is read back
    start_records: int = 1_000_000  # records on a storage node before its start is timed
    catch_up_records: int = 1_000_000  # that a storage node is behind
    catch_up_rounds: int = 2
    counted_appends: int = 10_000
    session_timeout_ms: int = 4_000
    settle_seconds: float = 3.0  # how long writers are watched after a process ended
    hostile_seconds: float = 4.0  # of each attack, and of the calm before it
    hostile_thorough: bool = True  # every attack on every port; otherwise one light attack on each
    spark_long_transactions: int = 1_000_000  # read by one task
    spark_seconds: float = 20.0  # of paced appends under a streaming query
    tls_modes: tuple[bool, ...] = (False, True)
    operator_clusters: int = 50
    operator_partitions: int = 64
    operator_seconds: float = 300.0  # at rest
    windows: tuple[int, ...] = WINDOWS
    fan_out_pairs: int = 3
    fan_out_idle_seconds: float = 10.0
    curve_partitions: tuple[int, ...] = (1, 8, 64, 128, 256, 1000)
    curve_journal_file_bytes: int = 32 << 20  # the default of a storage node
    takeover_partitions: int = 1000
    takeover_paces: tuple[float, ...] = (1.0, 0.0)
    """Seconds from one append of a partition to its next; 0: as soon as the one before is acknowledged."""


PIPELINED = WriteMode(2000, 8, pipelined=True)

FULL = Plan(
    seconds=5.0,
    runs=1,
    modes=(
        WriteMode(1, 1),
        WriteMode(10, 1),
        WriteMode(50, 1),
        WriteMode(50, 8),
        WriteMode(500, 1, pipelined=True),
        PIPELINED,
        WriteMode(2000, 8, pipelined=True, locks=1),
    ),
)
QUICK = Plan(
    seconds=1.0,
    runs=1,
    modes=(WriteMode(1, 1), WriteMode(50, 1), PIPELINED),
    read_at_least=20_000,
    start_records=20_000,
    catch_up_records=20_000,
    catch_up_rounds=1,
    session_timeout_ms=2_000,
    settle_seconds=1.5,
    hostile_seconds=0.5,
    hostile_thorough=False,
    spark_long_transactions=20_000,
    spark_seconds=6.0,
    tls_modes=(True,),
    operator_clusters=4,
    operator_partitions=8,
    operator_seconds=60.0,
    windows=(5, 1000),
    fan_out_pairs=1,
    fan_out_idle_seconds=2.0,
    curve_partitions=(8,),
    curve_journal_file_bytes=4 << 20,
    takeover_partitions=50,
    takeover_paces=(0.0,),
)

CURVE_WRITER_TARGETS = {
    1: at_least(17_000),
    8: at_least(15_000),
    128: at_least(12_000),
    1000: at_least(10_000),
}
CURVE_PIPELINED_TARGETS = {8: at_least(60_000), 128: at_least(50_000), 1000: at_least(40_000)}
CURVE_DISK_TARGET = at_most(2.3)
FULL_JOURNAL_START_TARGET = at_most(3.0, binding=True)


def rate_target(mode: WriteMode, tls: bool) -> Target | None:
    """Floor of appends per second, stated for TLS on."""
    if not tls or mode.locks:
        return None
    if mode.pipelined and mode.partitions > 1:
        return at_least(25_000)
    if not mode.pipelined and mode.in_flight == 50 and mode.partitions == 1:
        return at_least(8_000)
    return None


def p50_target(mode: WriteMode, tls: bool) -> Target | None:
    """Ceiling of the median latency in ms, stated for one writer with TLS on."""
    return at_most(1.1) if tls and mode.in_flight == 1 else None


def cpu_target(mode: WriteMode, tls: bool) -> Target | None:
    """Ceiling of CPU microseconds per append over all roles, stated for the pipelined load with TLS on."""
    return at_most(80.0) if tls and mode == PIPELINED else None


def ratio_target(mode: WriteMode, tls: bool) -> Target | None:
    """Floor of our rate / the limit: the one that counts."""
    return at_least(0.35, binding=True) if mode == PIPELINED else None


READ_DATA_TARGET = at_least(20_000)
CATCH_UP_TARGET = at_least(150_000)
READ_HEADERS_TARGET = at_least(150_000)
STORAGE_KILL_TARGET = at_most(1.0, binding=True)
SERVER_TERM_TARGET = at_most(0.5, binding=True)
SERVER_STOP_TARGET = at_most(3.5, binding=True)
START_TARGET = at_most(2.0, binding=True)
STORAGE_RSS_TARGET = at_most(80.0, binding=True)
SERVER_RSS_TARGET = at_most(120.0, binding=True)
TASKS_TARGET = at_most(2.0, binding=True)
HOSTILE_MEMORY_TARGET = at_most(64.0, binding=True)
HOSTILE_P99_TARGET = at_most(2.0, binding=True)
CONSOLE_PAGE_TARGET = at_most(200.0, binding=True)
CONSOLE_MEMORY_TARGET = at_most(150.0, binding=True)
CONSOLE_CPU_TARGET = at_most(2.0, binding=True)
SPARK_RATE_TARGET = at_least(250_000)
SPARK_BLOCKS_TARGET = at_least(2.0)
OPERATOR_MEMORY_TARGET = at_most(400.0, binding=True)
OPERATOR_CPU_TARGET = at_most(10.0, binding=True)
OPERATOR_READS_TARGET = at_most(2.0, binding=True)
OPERATOR_WRITES_TARGET = at_most(0.0, binding=True)
OPERATOR_PASS_TARGET = at_most(60.0, binding=True)
OPERATOR_NOTICE_TARGET = at_most(5.0, binding=True)
SPARK_FEED_TARGET = at_least(0.6, binding=True)
SPARK_CORES_TARGET = at_least(1.1)
SPARK_ARROW_TARGET = at_least(5.0, binding=True)
SPARK_MEMORY_TARGET = at_most(1.1, binding=True)
SPARK_LAG_TARGET = at_most(2.0, binding=True)
SPARK_EMPTY_TRIGGER_TARGET = at_most(150.0, binding=True)


def server_kill_target(session_timeout_ms: int) -> Target:
    """The other servers notice that it is gone, long before the ZooKeeper session ends."""
    return at_most(min(session_timeout_ms / 1000 + 1.0, 1.0), binding=True)


def group_name(what: str, tls: bool) -> str:
    return f"{what}, {tls_name(tls)}"
