"""The sink while tasks, copies of tasks and drivers are killed: the target has every row once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from spark_tests.local_log import LocalLog
from spark_tests.sink.program import BATCH, DIE, KILL_DRIVER, STAND_STILL, STREAM, TWO_HOSTS, Arguments
from waltz_spark.sink import CLAIM_HEADER
from waltz_spark.sink.task_claims import Claim

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROWS = 800
SOURCE, TARGET = 2, 3
SECONDS = 280


@pytest.fixture(scope="module")
def first(log: LocalLog) -> int:
    """Where the rows of these tests begin; they are large enough to leave Spark's buffers."""
    return log.append(SOURCE, (b"%06d" % (i // 2) + bytes(5000) for i in range(ROWS)))[0]


def payloads(log: LocalLog, first: int) -> Counter[bytes]:
    return Counter(t.data or b"" for t in log.transactions(SOURCE) if t.transaction_id >= first)


def arguments(log: LocalLog, directory: Path, kind: str, first: int, **changes: object) -> Arguments:
    (directory / "mark").write_text(str(log.end(TARGET) - 1))
    base = Arguments(
        keys=log.keys,
        kind=kind,
        source=SOURCE,
        first=first,
        target=TARGET,
        directory=str(directory),
        master="local[2,3]",
        faults={},
        conf={},
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def run(program: Arguments) -> int:
    output = Path(program.directory) / "output"
    with output.open("ab") as file:  # not a pipe: left-overs of a killed driver would hold it open
        process = subprocess.Popen(program.command(), stdout=file, stderr=file, start_new_session=True)
        try:
            code = process.wait(SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code not in (0, -9):
        pytest.fail(output.read_text()[-8000:])
    return code


def written(log: LocalLog, since: int) -> Counter[bytes]:
    transactions = (t for t in log.transactions(TARGET) if t.transaction_id >= since)
    return Counter(t.data or b"" for t in transactions if t.header != CLAIM_HEADER)


def attempts(log: LocalLog, since: int) -> Counter[int]:
    """How many attempts at each task there were."""
    claims = (
        Claim.decode(t.data or b"")
        for t in log.transactions(TARGET)
        if t.transaction_id >= since and t.header == CLAIM_HEADER
    )
    return Counter(task for task, _ in {(c.key.task, c.attempt) for c in claims if c is not None})


def test_a_stream_over_a_dead_task_and_a_dead_driver(log: LocalLog, tmp_path: Path, first: int) -> None:
    since = log.end(TARGET)
    program = arguments(log, tmp_path, STREAM, first, faults={"0": (DIE, 200), "1": (KILL_DRIVER, 200)})
    codes = [run(program)]
    assert codes == [-9]
    assert written(log, since).total() > 0
    codes.append(run(program))
    assert codes == [-9, 0]
    assert written(log, since) == payloads(log, first)
    assert list((tmp_path / "checkpoint" / "waltz-sink").iterdir())


def test_a_batch_write_with_a_speculative_copy(log: LocalLog, tmp_path: Path, first: int) -> None:
    since = log.end(TARGET)
    conf = {
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
    }
    program = arguments(
        log, tmp_path, BATCH, first, master=TWO_HOSTS, faults={"1": (STAND_STILL, 300)}, conf=conf
    )
    assert run(program) == 0
    assert (tmp_path / f"1-{STAND_STILL.replace(' ', '-')}").exists()
    assert attempts(log, since)[1] >= 2
    assert written(log, since) == payloads(log, first)
