"""One target in a process of its own, guided by coverage (`atheris`, that is libFuzzer).

A separate process, because libFuzzer never returns, and because the product's modules must be instrumented
while they are imported.
"""

from __future__ import annotations

import importlib
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.fuzz.target import Target, check_with_memory, load

# An input that hangs this long (seconds) is a finding. Long, because the machine may be busy.
HANG_SECONDS = 20
# What one allocation may not exceed, beyond what the process has at its start.
SPARE_MEMORY_BYTES = 1 << 30
# Their branches guide the run.
PACKAGES = ("waltz_protocol", "waltz_cluster", "waltz_storage", "waltz_server", "waltz_client", "yaml")
# Every so many inputs the memory of one is measured.
MEASURE_EVERY = 64


def fuzz(name: str, seconds: int, corpus: Path, findings: Path, seed: int) -> None:
    """Run until the time is over or something is found; ends the process."""
    atheris = importlib.import_module("atheris")  # not there on every platform
    with atheris.instrument_imports(include=list(PACKAGES)):
        target = load(name)
    _limit_memory()
    flags = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-timeout={HANG_SECONDS}",
        f"-max_len={target.max_input_bytes}",
        f"-artifact_prefix={findings}/",
        f"-seed={seed}",
        "-rss_limit_mb=0",
        "-print_final_stats=1",
        "-len_control=20",
        str(corpus),
    ]
    atheris.Setup(flags, _with_measures(target))
    atheris.Fuzz()


def _with_measures(target: Target) -> Callable[[bytes], None]:
    count = 0

    def run(data: bytes) -> None:
        nonlocal count
        count += 1
        if count % MEASURE_EVERY:
            target.check(data)
        else:
            check_with_memory(target, data)

    return run


def _limit_memory() -> None:
    """A huge allocation, whose pages nobody touches, fails as MemoryError instead of passing unseen."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def main(arguments: Sequence[str]) -> None:
    """`NAME SECONDS CORPUS FINDINGS SEED`."""
    name, seconds, corpus, findings, seed = arguments
    fuzz(name, int(seconds), Path(corpus), Path(findings), int(seed))


if __name__ == "__main__":
    main(sys.argv[1:])
