"""Two clients that write and read at the same time, one of each implementation, and what they know
afterwards.

Both write to every partition, one transaction at a time each, and take a lock of a few that they share. A
payload is `writer/partition/number.attempt/lock/seen`: `seen` is the id of the last transaction with this
lock that the writer had applied when it decided; the lock makes sure that it is the last one in the log, too.
No payload is sent twice.
"""

import asyncio
import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests.interop.live.loops import run
from tests.interop.live.mix import Mix
from waltz_client import LockId, WaltzClient
from waltz_client.errors import AppendError, Outcome

LOCKS = 5
_PAUSE_SECONDS = 0.02
_DEADLINE_SECONDS = 60
_SECONDS = 150.0
PROGRESS = 10
"""Acknowledged appends that show that a client gets on."""


@dataclass
class Known:
    """What the writers know. Payloads are unique; a place is (partition, transaction id)."""

    sent: set[str] = field(default_factory=set)
    acknowledged: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    """None: acknowledged, and the place is among the delivered."""
    failed: set[str] = field(default_factory=set)
    delivered: dict[tuple[int, int], set[str]] = field(default_factory=dict)

    def deliver(self, partition: int, transaction_id: int, payload: str) -> None:
        """What a reader was given at this place."""
        self.delivered.setdefault((partition, transaction_id), set()).add(payload)


class OurLoad:
    """Our client, in a thread of its own."""

    def __init__(self, config: Path, known: Known) -> None:
        self._config, self._known = config, known
        self._stop = threading.Event()
        self._last: dict[int, float] = {}
        self._longest_pause = 0.0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="our-load")
        self._thread.start()

    def stop(self) -> None:
        """What is on its way is waited for."""
        self._stop.set()
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive(), "an append of ours does not end"
        if self._failure is not None:
            raise self._failure

    def take_longest_pause(self) -> float:
        """Seconds: the longest time without an acknowledgement in one partition since this was asked last."""
        now = time.monotonic()
        for last in list(self._last.values()):
            self._longest_pause = max(self._longest_pause, now - last)
        longest, self._longest_pause = self._longest_pause, 0.0
        self._last = dict.fromkeys(self._last, now)
        return longest

    def _run(self) -> None:
        try:
            run(self._all())
        except BaseException as error:
            self._failure = error

    async def _all(self) -> None:
        async with WaltzClient.connect(self._config) as client:
            partitions = range(client.num_partitions)
            seen: dict[tuple[int, int], int] = {}
            applied = dict.fromkeys(partitions, -1)
            async with asyncio.TaskGroup() as group:
                reader = group.create_task(self._read(client, seen, applied))
                async with asyncio.TaskGroup() as writers:
                    for partition in partitions:
                        writers.create_task(self._write(client, partition, seen, applied))
                reader.cancel()

    async def _read(
        self, client: WaltzClient, seen: dict[tuple[int, int], int], applied: dict[int, int]
    ) -> None:
        async with client.feed(list(applied), after=-1) as feed:
            async for transaction in feed:
                partition, transaction_id = transaction.partition_id, transaction.transaction_id
                payload = bytes(transaction.data or b"").decode()
                seen[partition, lock_of(payload)] = transaction_id
                applied[partition] = transaction_id
                self._known.deliver(partition, transaction_id, payload)

    async def _write(
        self, client: WaltzClient, partition: int, seen: dict[tuple[int, int], int], applied: dict[int, int]
    ) -> None:
        number = 0
        while not self._stop.is_set():
            lock = number % LOCKS
            payload = (
                f"ours-{client.client_id}/{partition}/{number}.0/{lock}/{seen.get((partition, lock), -1)}"
            )
            number += 1
            self._known.sent.add(payload)
            try:
                done = await client.append(
                    partition=partition,
                    data=payload.encode(),
                    write_locks=[LockId("register", lock)],
                    as_of=applied[partition],
                    deadline_seconds=_DEADLINE_SECONDS,
                    max_attempts=1,
                )
            except AppendError as error:
                if error.outcome is Outcome.FAILED:
                    self._known.failed.add(payload)
            else:
                self._known.acknowledged[payload] = (partition, done.transaction_id)
                now = time.monotonic()
                self._longest_pause = max(self._longest_pause, now - self._last.get(partition, now))
                self._last[partition] = now
            await asyncio.sleep(_PAUSE_SECONDS)


class ReleaseLoad:
    """The client of 0.13.2: a process that runs `Load.java`."""

    def __init__(self, mix: Mix, known: Known, name: str) -> None:
        self._known = known
        self._journal = mix.directory / f"{name}.journal"
        self.log = mix.log(name)
        with self._journal.open("wb") as journal, self.log.open("wb") as log:
            command = mix.release.load(mix.config("tools"), name)
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=journal, stderr=log
            )

    def stop(self) -> None:
        """Close its input and wait until nothing is pending; what it wrote down is known then."""
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        stdin.close()
        try:
            code = self._process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._read()
        assert code == 0, self.log.read_text()[-2000:]

    def kill(self) -> None:
        """SIGKILL; what it wrote down is known all the same."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._read()

    def acknowledged(self) -> int:
        """How many appends it has reported as committed until now."""
        return self._journal.read_bytes().count(b"\nC ")

    def _read(self) -> None:
        lines = self._journal.read_text().split("\n")
        for line in lines[:-1]:  # the last one may be half a line
            kind, _, rest = line.partition(" ")
            if kind == "A":
                self._known.sent.add(rest)
            elif kind == "C":
                self._known.acknowledged[rest] = None
            elif kind == "T":
                partition, transaction_id, payload = rest.split(" ", 2)
                self._known.deliver(int(partition), int(transaction_id), payload)


def lock_of(payload: str) -> int:
    """Which lock a payload says it took."""
    return int(payload.split("/")[3])


@dataclass
class Loads:
    """Both clients at once."""

    mix: Mix
    config: str = "tools"
    """The file of our client."""
    known: Known = field(default_factory=Known)
    _lives: int = 0
    ours: OurLoad | None = None
    theirs: ReleaseLoad | None = None

    def start(self) -> None:
        self.ours = OurLoad(self.mix.config(self.config), self.known)
        self._start_theirs()

    def _start_theirs(self) -> None:
        self._lives += 1
        self.theirs = ReleaseLoad(self.mix, self.known, f"java-{self._lives}")

    def kill_theirs(self) -> None:
        """The client of 0.13.2 dies and another one begins."""
        assert self.theirs is not None
        self.theirs.kill()
        self._start_theirs()

    def progress(self) -> tuple[int, int]:
        """Acknowledged until now: ours, and of the present life of theirs."""
        assert self.theirs is not None
        ours = sum(place is not None for place in list(self.known.acknowledged.values()))
        return ours, self.theirs.acknowledged()

    def take_longest_pause(self) -> float:
        """See `OurLoad`."""
        assert self.ours is not None
        return self.ours.take_longest_pause()

    def abandon(self) -> None:
        """End both whatever they wait for: something has failed, and that is what is to be said."""
        if self.theirs is not None:
            self.theirs.kill()
        if self.ours is not None:
            with contextlib.suppress(Exception):
                self.ours.stop()

    def stop(self) -> None:
        """End both; what they know is complete then."""
        ours, theirs, self.ours, self.theirs = self.ours, self.theirs, None, None
        with contextlib.ExitStack() as stack:
            if theirs is not None:
                stack.callback(theirs.stop)
            if ours is not None:
                stack.callback(ours.stop)


@contextlib.contextmanager
def loads(mix: Mix, config: str = "tools") -> Iterator[Loads]:
    """Both write from entry to exit; `config` is the file of our client."""
    both = Loads(mix, config)
    both.start()
    try:
        yield both
    except BaseException:
        both.abandon()
        raise
    both.stop()


def until_progress(both: Loads) -> None:
    """Each client has had further appends acknowledged."""
    before = both.progress()
    deadline = time.monotonic() + _SECONDS
    while any(now < then + PROGRESS for now, then in zip(both.progress(), before, strict=True)):
        assert time.monotonic() < deadline, (before, both.progress())
        time.sleep(0.1)  # a poll of counts
