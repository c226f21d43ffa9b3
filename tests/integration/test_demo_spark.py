"""`make demo-spark` with few rows: the command of the Makefile as make prints it, to its end."""

import os
import signal
import subprocess

import pytest

from tests.integration.recipes import recipe
from tests.repo.files import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ROWS = 2_000
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compile little, collect simply: for Java processes that live for seconds."""
_SECONDS = 270


def test_the_spark_demo_passes_with_few_rows() -> None:
    command = recipe("demo-spark", f"ROWS={ROWS}")
    assert command.endswith(f"--rows {ROWS}")
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    with subprocess.Popen(
        ["bash", "-c", f"exec env {command}"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
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
