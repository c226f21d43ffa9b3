"""`python -m tests.integration.nemesis --minutes 10 [--seed N]`: overlapping faults on a cluster of real
processes.

Exit code 0 only if nothing was lost, doubled, forked or resurrected and everything continued after each
healing.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.integration import journals
from tests.integration.nemesis.run import ROUND_SECONDS, Result, Settings, run
from tests.integration.nemesis.table import table

INTERRUPTED = 130


async def _until_done_or_interrupted(settings: Settings) -> Result:
    """Ctrl-C and SIGTERM stop everything in order, also where a shell started this with SIGINT ignored, as it
    does for a job in the background."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await run(settings)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.nemesis", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="decides all faults; printed when not given")
    parser.add_argument("--round-seconds", type=float, default=ROUND_SECONDS)
    parser.add_argument("--no-tls", action="store_true")
    journals.add_option(parser)
    parser.add_argument("--keep", type=Path, help="keep logs, journals and data in this directory")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    again = f"python -m tests.integration.nemesis --minutes {arguments.minutes:g} --seed {seed} --journal {arguments.journal}"
    print(f"seed {seed}; the same faults again: {again}", flush=True)
    logging.basicConfig(level=logging.ERROR)  # lost connections are what this is about
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="waltz-nemesis-") as scratch:
        directory = arguments.keep or Path(scratch)
        settings = Settings(
            directory.absolute(),
            seed,
            arguments.minutes,
            not arguments.no_tls,
            arguments.round_seconds,
            arguments.journal,
            lambda line: print(line, flush=True),
        )
        try:
            result = asyncio.run(_until_done_or_interrupted(settings))
        except asyncio.CancelledError:
            print("interrupted")
            return INTERRUPTED
    print(table(result, seed, time.monotonic() - started))
    print("FAIL" if result.violations else "PASS")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
