"""`make demo-spark` with few rows: the command of the Makefile as make prints it, to its end."""

import os
import signal
import subprocess

import pytest

from tests.repo.files import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ROWS = 2_000
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile little, collect simply: for Java processes that live for seconds."""
_MAKE_SECONDS = 30
_SECONDS = 270


def test_the_spark_demo_passes_with_few_rows() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    asked = ["make", "--dry-run", "--old-file", "setup", "demo-spark", f"ROWS={ROWS}"]
    printed = subprocess.run(
        asked, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=_MAKE_SECONDS
    ).stdout
    (command,) = printed.splitlines()
    assert command.endswith(f"--rows {ROWS}")
    environment["JAVA_TOOL_OPTIONS"] = QUICK_JAVA
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            out, _ = process.communicate(timeout=_SECONDS)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)  # it ends its cluster and its job
    assert process.returncode == 0, out
    loaded, batch, stream, verdict = out.splitlines()
    assert loaded.startswith(f"{ROWS:,} flights appended in ")
    assert verdict == "PASS: both results are those of the file"
    carriers = batch.split()[2]
    assert int(carriers) > 5
    assert stream.split()[2] == carriers
    assert int(stream.split()[-2]) >= 5  # a fifth of the rows per trigger: the checkpoint was used
