"""`python -m tests.coverage.simulated FIRST:END`: seeds of the simulator in this process, where it can be
measured."""

from __future__ import annotations

import sys

from tests.sim.cluster.world import Choice
from tests.sim.run import run_seed


def main() -> int:
    """1 when a seed failed."""
    first, end = map(int, sys.argv[1].split(":"))
    failed = [seed for seed in range(first, end) if not run_seed(seed, Choice(second_opinion=False)).ok]
    print(f"simulated {end - first} seeds, failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
